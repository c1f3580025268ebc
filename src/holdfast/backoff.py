"""Waits that grow with each failure."""

from __future__ import annotations

import random

import msgspec


class BackOff(msgspec.Struct, frozen=True):
    """Exponential waits up to a limit; `jitter` 0.5 spreads each over its upper half.

    Example: `BackOff(first_s=0.5, wait_s_max=30.0, jitter=0.5).wait_s(failures)`
    """

    first_s: float = 1.0
    factor: float = 2.0
    wait_s_max: float = 60.0
    jitter: float = 0.0

    def wait_s(self, failures: int, roll: float | None = None) -> float:
        """Return the wait after so many failures in a row; `roll`, 0 to 1, is random unless given."""
        # The exponent is bounded because a float overflows long before a failure count does.
        longest_s = min(self.wait_s_max, self.first_s * self.factor ** min(failures - 1, 60))
        if not self.jitter:
            return longest_s
        return longest_s * (1 - self.jitter * (1 - (random.random() if roll is None else roll)))
