"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime

from holdfast.clock import from_us, to_us

_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Stands still until `advance` or `set` moves it.

    Sleepers wake in the order of their due times, ties in the order they went to sleep, and each
    one sees `now` at exactly its own due time and may sleep again inside the same `advance`.

    Example:
        clock = ManualClock()
        napping = asyncio.create_task(clock.sleep(30))
        await clock.advance(30)
        assert napping.done()
    """

    def __init__(self, start: datetime = _START) -> None:
        self._now_us = to_us(start)
        self._elapsed_us = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return from_us(self._now_us)

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._elapsed_us / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        due = self._elapsed_us + _us(seconds)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._order), woken))
        await woken

    @property
    def sleepers(self) -> int:
        """The number of tasks that sleep on this clock."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Advance both times by `seconds`, waking sleepers as they become due."""
        if seconds < 0:
            raise ValueError("time only moves on; use set() to turn the wall clock back")
        await settle()
        end = self._elapsed_us + _us(seconds)
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            self._move(max(due, self._elapsed_us))
            if not woken.done():
                woken.set_result(None)
                await settle()
        self._move(end)

    def set(self, instant: datetime) -> None:
        """Set the wall clock to `instant`, also backwards; `monotonic` and sleepers are unaffected."""
        self._now_us = to_us(instant)

    def tick(self, seconds: float) -> None:
        """Advance both times without waking anyone: for code without event loop."""
        self._move(self._elapsed_us + _us(seconds))

    def _move(self, elapsed_us: int) -> None:
        self._now_us += elapsed_us - self._elapsed_us
        self._elapsed_us = elapsed_us


async def settle(turns: int = 20) -> None:
    """Let runnable tasks run, for `turns` turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
