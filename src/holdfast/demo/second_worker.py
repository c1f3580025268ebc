"""A second worker process, for people to kill and see what happens.

The parent sends the settings in one line on its standard input and keeps that open: when the parent ends, in
whatever way, the input ends, and so does this process.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Final

import msgspec
import uvloop

from holdfast.config import Config
from holdfast.runtime import Runtime

STOP_S: Final = 2.0
_RUN: Final = f"from {__name__} import main; main()"


class SecondWorker:
    """Starts, kills and stops that process.

    Example:
        second = SecondWorker()
        second.start(runtime.config)
        second.kill()
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    def start(self, config: Config) -> None:
        """Start it if it is not running."""
        if self.pid is not None:
            return
        # In its own session: Ctrl-C is for the parent, which then stops it in order.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(config, enc_hook=str) + b"\n")
        self._process.stdin.flush()

    def kill(self) -> bool:
        """Kill it at once; False when it was not running."""
        if self.pid is None or self._process is None:
            return False
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return True

    def request_stop(self) -> None:
        """Ask it to stop, without waiting."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def close(self) -> None:
        """Ask it to stop, and kill it after a moment."""
        self.request_stop()
        if self._process is None:
            return
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


async def _work() -> None:
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    config = msgspec.json.decode(await lines.readline(), type=Config, dec_hook=lambda kind, text: kind(text))
    runtime = await Runtime.open(config, migrate=False)
    stop = asyncio.Event()
    working = asyncio.create_task(runtime.work(stop))
    try:
        await lines.read()
    finally:
        stop.set()
        await working
        await runtime.close()


def main() -> None:
    """Work until the parent is gone."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work())
