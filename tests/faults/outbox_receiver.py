"""A receiver that fails as receivers do, and writes down every request before it answers.

`python -m tests.faults.outbox_receiver LOG` prints its port. Three in ten requests fail: an error, no answer
in time, a reset, or a slow answer. Each line of the log: event id, fence, worker, digest of the body,
what was answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from pathlib import Path

import uvloop

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
ERROR = b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops"
FAILING = 0.3
TOO_SLOW_S = 30.0
SLOW_S = 0.15


class Receiver:
    def __init__(self, log: Path) -> None:
        self._log = log.open("a", buffering=1)
        self._random = random.Random(7)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = dict(line.split(": ", 1) for line in head.rstrip("\r\n").split("\r\n")[1:])
        body = await reader.readexactly(int(headers["content-length"]))
        fate = self._fate()
        digest = hashlib.sha256(body).hexdigest()[:16]
        words = (headers["webhook-id"], headers["x-fence"], headers["x-worker"], digest, fate)
        self._log.write(" ".join(words) + "\n")
        if fate == "reset":
            writer.transport.abort()
            return False
        if fate in ("slow", "timeout"):
            await asyncio.sleep(SLOW_S if fate == "slow" else TOO_SLOW_S)
        writer.write(ERROR if fate == "error" else OK)
        await writer.drain()
        return True

    def _fate(self) -> str:
        if self._random.random() >= FAILING:
            return "ok"
        return self._random.choice(["error", "error", "error", "reset", "reset", "slow", "timeout"])


async def main(log: Path) -> None:
    receiver = Receiver(log)
    server = await asyncio.start_server(receiver.talk, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
