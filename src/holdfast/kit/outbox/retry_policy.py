"""When to try again after a failed attempt."""

from __future__ import annotations

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
