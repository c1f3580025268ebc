"""A server process for a benchmark, and keep-alive connections that ask it as fast as it answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar, cast


class Client(asyncio.Protocol):
    """A keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def request(self) -> bytes:
        raise NotImplementedError

    async def ask(self) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(self.request())
        await self._done

    def close(self) -> None:
        self._transport.close()


C = TypeVar("C", bound=Client)


@contextlib.contextmanager
def server(module: str, kind: str, url: str) -> Iterator[int]:
    """The port of a server that prints it; it is killed, so its temporary files are removed here."""
    command = [sys.executable, "-m", module, kind, url]
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": folder}) as process,
    ):
        try:
            assert process.stdout is not None
            # Log lines may come before the port.
            yield next(int(line) for line in process.stdout if line.strip().isdigit())
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def clients(kind: type[C], port: int, count: int) -> AsyncIterator[list[C]]:
    """So many connections to a port."""
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(kind, "127.0.0.1", port))[1] for _ in range(count)]
    yield made
    for client in made:
        client.close()


async def per_second(clients: Sequence[Client], count: int) -> float:
    """Ask as fast as is answered; return requests per second."""
    left = iter(range(count))

    async def go_on(client: Client) -> None:
        for _ in left:
            await client.ask()

    began = time.perf_counter()
    await asyncio.gather(*(go_on(client) for client in clients))
    return count / (time.perf_counter() - began)
