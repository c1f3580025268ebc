"""Clocks are passed in, so that tests control time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Quartz drifts by some 100 ms an hour; a measurement costs a round trip.
SYNC_S = 60.0
SAMPLES = 3


class Clock(Protocol):
    """The source of time for every part of Holdfast.

    `now` may jump when the machine's clock is set; `monotonic` never goes back, so durations inside one
    process are measured with it alone.
    """

    def now(self) -> datetime:
        """The present instant, aware, in UTC, to the microsecond."""
        ...

    def now_us(self) -> int:
        """The same instant as whole microseconds since 1970: what the engines store."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never decreases."""
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

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SharedClock:
    """The time that all processes on one store share: the engine's, advanced by the local monotonic clock.

    Leases, deadlines and schedule slots agree between machines whose clocks differ, and setting a machine's
    clock does not move it. Until the first `sync` it is the local time.

    Example: `clock = SharedClock(); await clock.sync(engine.now_us); clock.skew_s`
    """

    def __init__(self, local: Clock | None = None) -> None:
        self._local = local or SystemClock()
        self.monotonic = self._local.monotonic
        self._offset_us = self._local.now_us() - self._elapsed_us()
        self._synced_s = -math.inf

    def now(self) -> datetime:
        return from_us(self.now_us())

    def now_us(self) -> int:
        return int(self.monotonic() * 1e6) + self._offset_us

    async def sleep(self, seconds: float) -> None:
        await self._local.sleep(seconds)

    @property
    def skew_s(self) -> float:
        """Seconds by which the local clock is ahead of the shared time."""
        return (self._local.now_us() - self.now_us()) / 1e6

    @property
    def stale(self) -> bool:
        """Whether the last measurement is old enough for clocks to have drifted apart."""
        return self.monotonic() - self._synced_s > SYNC_S

    async def sync(self, engine_now_us: Callable[[int], Awaitable[int]]) -> None:
        """Measure the engine's time from a few samples, of which the fastest counts."""
        samples = [await self._sample(engine_now_us) for _ in range(SAMPLES)]
        self._offset_us, self._synced_s = min(samples)[1], self.monotonic()

    async def _sample(self, engine_now_us: Callable[[int], Awaitable[int]]) -> tuple[int, int]:
        sent_us = self._elapsed_us()
        engine_us = await engine_now_us(self._local.now_us())
        took_us = self._elapsed_us() - sent_us
        return took_us, engine_us - sent_us - took_us // 2

    def _elapsed_us(self) -> int:
        return int(self.monotonic() * 1e6)


def from_us(us: int) -> datetime:
    """The instant `us` microseconds after 1970, exact (a float would lose the last digit)."""
    return EPOCH + _MICROSECOND * us


def to_us(instant: datetime) -> int:
    """Whole microseconds since 1970; the inverse of `from_us` for any aware datetime."""
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone; use an aware datetime")
    return (instant - EPOCH) // _MICROSECOND


def parse_instant(text: str) -> datetime:
    """The instant that an ISO 8601 text names, in UTC unless it has a zone; ValueError for other text.

    Example: `parse_instant("2026-11-16T21:00Z")`
    """
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"a time such as 2026-11-16T21:00Z, not {text[:40]!r}") from None
