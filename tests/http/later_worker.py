"""A working process whose clock is ahead, so that what a killed one held is due at once: `… AHEAD_S`."""

from __future__ import annotations

import asyncio
import signal
import sys

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.runtime import Runtime


class _Ahead(SystemClock):
    def __init__(self, seconds: float) -> None:
        self._us = int(seconds * 1_000_000)

    def now_us(self) -> int:
        return super().now_us() + self._us


async def _work(ahead_s: float) -> None:
    runtime = await Runtime.open(load_config(), only=["echo-chamber"], clock=_Ahead(ahead_s))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sys.stderr.write("works\n")
    sys.stderr.flush()
    try:
        await runtime.work(stop)
    finally:
        await runtime.close()


if __name__ == "__main__":
    asyncio.run(_work(float(sys.argv[1])))
