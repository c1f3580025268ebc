"""A token bucket by monotonic seconds."""

from __future__ import annotations


class TokenBucket:
    """Holds up to `burst` tokens and gains `per_s` a second; what it admits takes one.

    Example: `TokenBucket(per_s=2.0, burst=10, now=clock.monotonic()).take(clock.monotonic())`
    """

    __slots__ = ("_at", "_tokens", "burst", "per_s")

    def __init__(self, *, per_s: float, burst: int, now: float) -> None:
        self.per_s, self.burst = per_s, burst
        self._tokens, self._at = float(burst), now

    def take(self, now: float) -> bool:
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def ready_at(self, now: float) -> float:
        self._refill(now)
        return now if self._tokens >= 1.0 else now + (1.0 - self._tokens) / self.per_s

    def _refill(self, now: float) -> None:
        grown = self._tokens + (now - self._at) * self.per_s
        # A token that is short by a rounding error only would make its waiter wake for nothing, forever.
        self._tokens = min(float(self.burst), grown + 1e-9)
        self._at = now
