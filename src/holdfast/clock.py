"""Time as a thing you pass in, so that tests and replays own it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """What every part of Holdfast asks for the time.

    `now` may jump when the machine's clock is set; `monotonic` never goes back, so lengths of
    time inside one process are measured with it alone.
    """

    def now(self) -> datetime:
        """The present instant, aware, in UTC, to the microsecond."""
        ...

    def now_us(self) -> int:
        """The same instant as whole microseconds since 1970: what the engines store."""
        ...

    def monotonic(self) -> float:
        """Seconds since an unnamed start; never less than the last answer."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `monotonic` has moved on by `seconds`."""
        ...


class SystemClock:
    """The machine's own clock.

    Example: `SystemClock().now()` gives `datetime(2026, 3, 1, 9, 30, 0, 125431, tzinfo=UTC)`
    """

    def now(self) -> datetime:
        return from_us(self.now_us())

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def from_us(us: int) -> datetime:
    """The instant `us` microseconds after 1970, exact (a float would lose the last digit)."""
    return EPOCH + _MICROSECOND * us


def to_us(instant: datetime) -> int:
    """Whole microseconds since 1970; the inverse of `from_us` for any aware datetime."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone, so it names no instant")
    return (instant - EPOCH) // _MICROSECOND
