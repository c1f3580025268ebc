"""When to try again: waits after each failed attempt, and what a receiver's Retry-After asks for."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

DOUBLING_WAITS_S: Final = (1.0, 2.0, 4.0, 8.0)
# The waits Standard Webhooks recommends: five seconds first, a day last, three days in all.
LONG_WAITS_S: Final = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """One attempt at once and one after each wait; `jitter` 0.1 spreads each wait by ±10 %.

    `fourxx_dead` gives up at once on an answer that says the request itself is wrong.

    Example: `RetryPolicy(waits_s=LONG_WAITS_S, jitter=0.1)`
    """

    waits_s: Annotated[tuple[float, ...], Meta(max_length=50)] = DOUBLING_WAITS_S
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0
    retry_after_s_max: float = 3_600.0
    fourxx_dead: bool = True

    @property
    def attempts_max(self) -> int:
        return len(self.waits_s) + 1

    def wait_s(self, attempt: int, roll: float = 0.5) -> float | None:
        """The wait after the failed attempt number `attempt`, None when it was the last; `roll` is 0 to 1."""
        if attempt > len(self.waits_s):
            return None
        return self.waits_s[attempt - 1] * (1 + self.jitter * (2 * roll - 1))


def retry_after_s(value: str | None, now: datetime) -> float:
    """The seconds a Retry-After header asks for (a number or an HTTP date); 0 when it asks nothing sane."""
    if not value:
        return 0.0
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < 10 else math.inf
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    # An HTTP date is always GMT, also where its writer left the zone away.
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())
