"""A clock that tests move, for what would take long to wait for."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.clock import SystemClock, to_us


class AdjustableClock(SystemClock):
    """A clock whose hands somebody moves, or holds; what has passed is not changed by it."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.held: datetime | None = None
        self.moved = timedelta(seconds=ahead_s)

    def now_us(self) -> int:
        return to_us(self.held) if self.held else super().now_us() + self.moved // timedelta(microseconds=1)
