"""A receiver over real sockets that says exactly what a test tells it to say."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Received:
    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Serving:
    """A running receiver: what came in, over how many connections, how many at once."""

    port: int = 0
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    open_now: int = 0
    open_most: int = 0

    def url(self, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}/hook?x=1"

    async def read(self, reader: asyncio.StreamReader) -> Received:
        """One whole request; raises `IncompleteReadError` when the sender has gone."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {name: value.strip() for name, _, value in (text.partition(":") for text in lines)}
        length = next((value for name, value in headers.items() if name.lower() == "content-length"), "0")
        body = await reader.readexactly(int(length))
        self.requests.append(Received(line, headers, body))
        self.arrived.set()
        return self.requests[-1]

    async def received(self, count: int) -> None:
        """Return once so many requests came in whole."""
        while len(self.requests) < count:
            self.arrived.clear()
            await self.arrived.wait()


Talk = Callable[[Serving, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[Serving]:
    """Serve `talk` for each connection on a port of its own."""
    state = Serving()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        state.open_now += 1
        state.open_most = max(state.open_most, state.open_now)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await talk(state, reader, writer)
        finally:
            state.open_now -= 1
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            state.ended.set()

    tasks: set[asyncio.Task[None]] = set()

    def started(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(started, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> Talk:
    """Keep the connection and answer with these, the last one again and again."""

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nth = 0
        while True:
            await state.read(reader)
            writer.write(answers[min(nth, len(answers) - 1)])
            await writer.drain()
            nth += 1

    return talk


def answering_once(answer: bytes, *, reset: bool = False) -> Talk:
    """Answer one request, then close; with `reset`, as a killed process would."""

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        writer.write(answer)
        await writer.drain()
        if reset:
            writer.transport.abort()

    return talk


async def never_answering(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await state.read(reader)
    await reader.read()
