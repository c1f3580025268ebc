"""What one endpoint may be sent: a token bucket and a circuit breaker, both by monotonic seconds. Pure."""

from __future__ import annotations

from typing import Literal

from holdfast.kit.outbox import models


class TokenBucket:
    """Tokens that grow back at a steady rate; a send takes one."""

    def __init__(self, rate: models.Rate, now: float) -> None:
        self.rate = rate
        self._tokens = float(rate.burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token if there is one."""
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def ready_at(self, now: float) -> float:
        """When the next token is there."""
        self._refill(now)
        return now if self._tokens >= 1.0 else now + (1.0 - self._tokens) / self.rate.per_s

    def _refill(self, now: float) -> None:
        grown = self._tokens + (now - self._at) * self.rate.per_s
        # A token that is short by a rounding error only would make its waiter wake for nothing, forever.
        self._tokens = min(float(self.rate.burst), grown + 1e-9)
        self._at = now


class CircuitBreaker:
    """Closed: all may pass. Open: none, until its time is up. Half-open: a few probes, which decide.

    A result counts only for the state its send began in, so that stragglers can't reopen or close it.
    """

    def __init__(self, limits: models.BreakerPolicy) -> None:
        self.limits = limits
        self.state: Literal["closed", "open", "half-open"] = "closed"
        self.open_until = 0.0
        self._turn = 0
        self._failures = 0
        self._probing = 0
        self._passed = 0

    def allows(self, now: float) -> bool:
        if self.state == "open" and now >= self.open_until:
            self._move("half-open")
        if self.state == "half-open":
            return self._probing < self.limits.probes
        return self.state == "closed"

    def begin(self) -> int:
        """A send starts; gives the number to report its result under."""
        self._probing += self.state == "half-open"
        return self._turn

    def end(self, turn: int, *, healthy: bool, now: float) -> None:
        if turn != self._turn:
            return
        if not healthy:
            self._failures += 1
            if self.state == "half-open" or self._failures >= self.limits.failures:
                self._move("open")
                self.open_until = now + self.limits.open_s
            return
        self._failures = 0
        self._passed += 1
        if self.state == "half-open" and self._passed >= self.limits.probes:
            self._move("closed")

    def abandon(self, turn: int) -> None:
        """The send never happened, so it says nothing."""
        if turn == self._turn and self.state == "half-open":
            self._probing -= 1

    def _move(self, state: Literal["closed", "open", "half-open"]) -> None:
        self.state = state
        self._turn += 1
        self._failures = self._probing = self._passed = 0
