"""Reserving turns, without a store: the generic cell rate algorithm over whole microseconds."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.errors import InvalidError

# Callers go on a little late; turns that much further apart keep the limit all the same.
FILL: Final = 0.97


class RateQuota(msgspec.Struct, frozen=True, kw_only=True):
    """At most `count` in any `period_s`; up to `burst` of them at once after a pause.

    Example: `RateQuota(count=30, period_s=1.0)`
    """

    count: Annotated[int, Meta(ge=1)]
    period_s: Annotated[float, Meta(gt=0)] = 1.0
    burst: Annotated[int, Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        if not (1 <= self.burst <= self.count and self.period_s > 0):
            raise InvalidError("a quota has a period above 0 and a burst from 1 to its count", "burst")

    @property
    def interval_us(self) -> int:
        """The time between two turns, so that a burst and the turns after it stay within the count."""
        return -int(-self.period_s * 1e6 / ((self.count - self.burst + 1) * FILL)) + 1

    @property
    def late_us_max(self) -> int:
        """How late a turn may be taken without more than `count` falling into one period."""
        return int(self.period_s * 1e6 * (1 / FILL - 1))


class Reservation(msgspec.Struct, frozen=True):
    """The turns of some callers, in their order, and when the turn after them is free."""

    turns_us: tuple[int, ...]
    next_us: int


def reserve(quota: RateQuota, next_us: int, *, now_us: int, callers: int) -> Reservation:
    """Give `callers` the next free turns; those that a burst may take at once are now."""
    interval_us = quota.interval_us
    first_us = max(next_us, now_us - (quota.burst - 1) * interval_us)
    turns = tuple(max(now_us, first_us + n * interval_us) for n in range(callers))
    return Reservation(turns, first_us + callers * interval_us)
