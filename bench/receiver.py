"""A receiver that answers 200 as fast as one Python process can: `python -m bench.receiver [CERT]`.

It finds the end of each request and nothing more, so that what is measured is the sender. Prints
its port once it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_LENGTH = b"ontent-length: "


class Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while (end := _end_of_request(data)) is not None:
            data = data[end:]
            self._transport.write(ANSWER)
        self._rest = data


def _end_of_request(data: bytes) -> int | None:
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return None
    at = data.lower().find(_LENGTH, 0, head) + len(_LENGTH)
    end = head + 4 + int(data[at : data.find(b"\r\n", at)])
    return end if len(data) >= end else None


@contextlib.contextmanager
def receiving(certificate: Path | None = None) -> Iterator[int]:
    """The port of a receiver in a subprocess."""
    words = [str(certificate)] if certificate else []
    process = subprocess.Popen([sys.executable, "-m", "bench.receiver", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def main() -> None:
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Receiver, "127.0.0.1", 0, ssl=context, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
