"""The circuit breaker of one endpoint, by monotonic seconds. Pure."""

from __future__ import annotations

from typing import Literal

from holdfast.kit.outbox.models import BreakerPolicy

State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """Closed: all may pass. Open: none, until its time is up. Half-open: a few probes, which decide.

    A result counts only for the state its send began in, so that stragglers can't reopen or close it.
    """

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.state: State = "closed"
        self.open_until = 0.0
        self.failures_in_row = 0  # also over probes, for people
        self._period = self._failures = self._probes = self._passed = 0

    def allows(self, now: float) -> bool:
        if self.state == "open" and now >= self.open_until:
            self._move("half-open")
        if self.state == "half-open":
            return self._probes < self.policy.probes
        return self.state == "closed"

    def begin(self) -> int:
        """Count a send that starts; return the number to report its result under."""
        self._probes += self.state == "half-open"
        return self._period

    def end(self, period: int, *, healthy: bool, now: float) -> bool:
        """Count a send that ended; return whether the breaker opened or closed by it."""
        if period != self._period:
            return False
        self.failures_in_row = 0 if healthy else self.failures_in_row + 1
        if not healthy:
            self._failures += 1
            if self.state == "half-open" or self._failures >= self.policy.failures:
                self._move("open")
                self.open_until = now + self.policy.open_s
            return self.state == "open"
        self._failures = 0
        self._passed += 1
        if self.state == "half-open" and self._passed >= self.policy.probes:
            self._move("closed")
            return True
        return False

    def _move(self, state: State) -> None:
        self.state = state
        self._period += 1
        self._failures = self._probes = self._passed = 0
