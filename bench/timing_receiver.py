"""A receiver that counts, and notes how long each event took from its making to its arrival.

The body begins with the maker's monotonic nanoseconds, 20 digits; on one machine all processes
share that clock. `GET /` gives `{"count", "delays_ms"}` and starts anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import cast

import msgspec
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
SLOW_PATH = b"/never"


class Seen(msgspec.Struct):
    count: int = 0
    delays_ms: list[float] = []


SEEN = Seen()


class Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while (head := data.find(b"\r\n\r\n")) >= 0:
            if data.startswith(b"GET"):
                data = data[head + 4 :]
                self._tell()
                continue
            at = data.lower().find(b"content-length: ", 0, head) + 16
            end = head + 4 + int(data[at : data.find(b"\r\n", at)])
            if len(data) < end:
                break
            self._note(data, head)
            data = data[end:]
        self._rest = data

    def _note(self, data: bytes, head: int) -> None:
        if data.startswith(SLOW_PATH, 5):
            return
        SEEN.count += 1
        SEEN.delays_ms.append((time.monotonic_ns() - int(data[head + 4 : head + 24])) / 1e6)
        self._transport.write(ANSWER)

    def _tell(self) -> None:
        body = msgspec.json.encode(SEEN)
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        SEEN.count, SEEN.delays_ms = 0, []


@contextlib.contextmanager
def receiving() -> Iterator[int]:
    """The port of a receiver in a subprocess."""
    process = subprocess.Popen([sys.executable, "-m", "bench.timing_receiver"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def seen(port: int) -> Seen:
    """The events received since the last call."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    writer.close()
    return msgspec.json.decode(body, type=Seen)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
