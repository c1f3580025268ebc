"""A way to a server that breaks exactly where a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

Loss = Literal["request", "answer", "silence"]


class SeveringProxy:
    """Passes bytes both ways until `sever` says whose loss breaks the link; the next link is whole."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loss: Loss | None = None
        self._when: Callable[[bytes], bool] = bool
        self._for_good = False
        self._away = asyncio.Event()
        self.severed = 0

    def sever(self, loss: Loss, *, when: Callable[[bytes], bool], for_good: bool = False) -> None:
        """Break at the first request that `when` picks: before the server gets it, or after it answered.

        After "silence" the link stays open and carries nothing more either way: the server gets the request.

        `for_good` lets nobody through afterwards, until `mend`.
        """
        self._loss, self._when, self._for_good = loss, when, for_good

    def cut(self) -> None:
        """Break every link there is and let nobody through, until `mend`."""
        self._away.set()

    def mend(self) -> None:
        self._for_good = False
        self._away.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away.is_set() or (self._for_good and self.severed):
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        lost = asyncio.Event()
        silent = asyncio.Event()
        ways: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._away.wait()),
            asyncio.create_task(self._requests(reader, up_writer, lost, silent)),
            asyncio.create_task(self._answers(up_reader, writer, lost, silent)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, up_writer):
            end.close()
            with suppress(OSError):
                await end.wait_closed()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lost: asyncio.Event,
        silent: asyncio.Event,
    ) -> None:
        while data := await reader.read(65_536):
            if self._loss is not None and self._when(data):
                loss, self._loss = self._loss, None
                self.severed += 1
                if loss == "request":
                    return
                (silent if loss == "silence" else lost).set()
            elif silent.is_set():
                continue
            writer.write(data)
            await writer.drain()

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lost: asyncio.Event,
        silent: asyncio.Event,
    ) -> None:
        while data := await reader.read(65_536):
            if lost.is_set():
                return
            if silent.is_set():
                continue
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def severing_proxy(url: str) -> AsyncIterator[tuple[SeveringProxy, str]]:
    """A proxy in front of the server a URL names, and the URL that goes through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = SeveringProxy(parts.hostname, parts.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    netloc = parts.netloc.replace(f":{parts.port}", f":{port}")
    try:
        yield proxy, urlunsplit(parts._replace(netloc=netloc))
    finally:
        server.close()
