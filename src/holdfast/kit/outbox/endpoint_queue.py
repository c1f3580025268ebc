"""The deliveries a dispatcher holds for one endpoint, and what the endpoint's limits let through."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import msgspec

from holdfast.kit.outbox.attempt_record import recorded_url
from holdfast.kit.outbox.circuit_breaker import CircuitBreaker
from holdfast.kit.outbox.models import Delivery, Endpoint
from holdfast.kit.outbox.shared_rate import ReservedTurns
from holdfast.kit.outbox.signing import Sign
from holdfast.net import SendFailure, read_url

# How far ahead a rate-limited queue fetches: what it can send before a lease would run thin.
RATE_HORIZON_S: Final = 1.0
# How far ahead any other queue may hold, at the pace it has just shown: far enough to need few claims,
# near enough that another process could take over soon.
PACE_HORIZON_S: Final = 0.25
PACE_OVER_S: Final = 0.1
# An answer that takes longer is slow: its receiver leaves some connections to those that are prompt.
SLOW_S: Final = 0.5
# Where sends wait longer than this for a connection, more at once would only wait longer; where they wait
# very long, their leases might end before they are sent.
WAITED_S: Final = 0.5
WAITED_S_MAX: Final = 5.0
# A send must not outlive its lease; this much is left for the answer to be settled.
SETTLE_S: Final = 1.0


class ClaimedDelivery(msgspec.Struct, eq=False):
    """A delivery this process has claimed; its lease ends at `until_s` by the monotonic clock."""

    delivery: Delivery
    until_s: float
    period: int = 0  # the breaker's, when its send began


class EndpointQueue:
    """One endpoint's deliveries and limits in this process. Knows no store and no network."""

    def __init__(self, endpoint_id: str, *, lease_s: float = math.inf) -> None:
        self.id = endpoint_id
        self._send_s_max = (lease_s - SETTLE_S) / 2
        self.endpoint: Endpoint | None = None
        self.version = -1
        self.host = self.recorded_url = ""
        self.sign: Sign | None = None
        self.waiting: deque[ClaimedDelivery] = deque()
        self.in_flight = 0
        self.reserved = 0  # promised to deliveries whose first commit is under way
        self.has_more = False  # the store may hold more that is due than was fetched
        self.left_out = False  # of a claim over all endpoints, to be claimed for by itself
        self.turns: ReservedTurns | None = None
        self.breaker: CircuitBreaker | None = None
        self.closed_until = 0.0
        self.hung = self.slow = False  # last time; last time it answered
        # Whether a send may well end without an answer, after holding a connection for its whole time.
        self.in_doubt = True
        self.concurrency = 1  # how many it is trusted with now, of its endpoint's concurrency
        self.pace_per_s = self._took_s = 0.0  # what it has sent lately
        self._ended, self._ended_since = 0, 0.0

    # -- the endpoint -----------------------------------------------------------------------------

    def configure(self, endpoint: Endpoint, version: int, *, sign: Sign) -> None:
        """Take on an endpoint's limits; an unchanged limit keeps what it has counted so far."""
        self.endpoint, self.version, self.sign = endpoint, version, sign
        self.recorded_url = recorded_url(endpoint.url)
        try:
            self.host = read_url(endpoint.url).authority
        except SendFailure:
            self.host = endpoint.url  # refused by the sender with the reason
        self.concurrency = min(self.concurrency, endpoint.concurrency)
        rate = endpoint.rate
        if rate is None:
            self.turns = None
        elif self.turns is None or self.turns.rate != rate:
            self.turns = ReservedTurns(rate)
        if self.breaker is None or self.breaker.policy != endpoint.breaker:
            self.breaker = CircuitBreaker(endpoint.breaker)

    def forget_endpoint(self) -> None:
        self.endpoint, self.version = None, -1

    def close_until(self, until: float) -> None:
        """Send nothing before `until`."""
        self.closed_until = max(self.closed_until, until)

    @property
    def active(self) -> bool:
        return self.endpoint is not None and self.endpoint.status == "active"

    # -- room -------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return len(self.waiting) + self.in_flight + self.reserved

    @property
    def capacity(self) -> int:
        """How many this process may hold: those in flight and as many behind them, or what it sends in a
        moment."""
        if self.endpoint is None or self.breaker is None:
            return 1
        if self.breaker.state != "closed":
            return self.breaker.policy.probes
        usual = 2 * (self.concurrency if self.hung or self.slow else self.endpoint.concurrency)
        paced = max(usual, int(self.pace_per_s * PACE_HORIZON_S))
        if self.endpoint.rate is None:
            return paced
        return min(paced, math.ceil(self.endpoint.rate.per_s * RATE_HORIZON_S) + self.endpoint.rate.burst)

    def open_at(self, now: float) -> float:
        """Return when it may send again: now, later, or never while its endpoint is not active."""
        if not self.active or self.breaker is None:
            return math.inf
        at = max(now, self.closed_until)
        return max(at, self.breaker.open_until) if self.breaker.state == "open" else at

    def room(self, now: float) -> int:
        """Return how many more to claim for it now."""
        return 0 if self.open_at(now) > now else max(0, self.capacity - self.held)

    @property
    def may_have_more(self) -> bool:
        return self.has_more or self.left_out

    def wants_refill(self, now: float) -> bool:
        """Half empty, and there may be more: worth another claim."""
        return self.may_have_more and self.room(now) * 2 >= self.capacity

    def wake_at(self, now: float) -> float:
        """Return when to look again, for a queue that holds something or knows of more."""
        if not self.waiting and not self.may_have_more:
            return math.inf
        at = self.open_at(now)
        if self.turns is not None and self.waiting and at <= now:
            return self.turns.ready_at()
        return at if at > now else math.inf

    # -- deliveries -------------------------------------------------------------------------------

    def places(self, now: float) -> int:
        """Return how many deliveries that are about to be committed it can take at once."""
        return 0 if self.has_more else self.room(now)

    def take(self, now: float) -> ClaimedDelivery | None:
        """Return the next delivery to send and count it as in flight; None while a limit says wait."""
        endpoint, breaker = self.endpoint, self.breaker
        if endpoint is None or breaker is None or endpoint.status != "active":
            return None
        # The lease of these ends before an answer could be settled: another worker will get them, untouched.
        stale_s = now + SETTLE_S + min(endpoint.timeout_s, self._send_s_max)
        while self.waiting and self.waiting[0].until_s < stale_s:
            self.waiting.popleft()
            self.has_more = True
        if not self.waiting or self.in_flight >= self.concurrency or now < self.closed_until:
            return None
        if not breaker.allows(now) or (self.turns is not None and not self.turns.take(now)):
            return None
        claimed = self.waiting.popleft()
        claimed.period = breaker.begin()
        self.in_flight += 1
        return claimed

    def turns_wanted(self, now: float) -> int:
        """Return how many turns of its rate to reserve for what waits; 0 for an endpoint without a rate."""
        places = self.concurrency - self.in_flight
        if self.turns is None or not self.waiting or places < 1 or self.open_at(now) > now:
            return 0
        return self.turns.wanted(
            len(self.waiting), places=places, concurrency=self.concurrency, took_s=self._took_s
        )

    def take_all(self) -> list[ClaimedDelivery]:
        """Return everything not in flight, to be released."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self.has_more = self.has_more or bool(waiting)
        return waiting

    def finish(
        self,
        claimed: ClaimedDelivery,
        *,
        healthy: bool,
        hung: bool,
        now: float,
        took_s: float = 0.0,
        waited_s: float = 0.0,
    ) -> bool:
        """Count a send that ended, `hung` when its time was up before there was an answer; return whether its
        breaker opened or closed.

        The receiver had it for `took_s`, after it had waited `waited_s` for a connection.
        """
        self._took_s = took_s
        if not hung:
            self.slow = took_s > SLOW_S
        self._adapt(hung=hung, waited_s=waited_s)
        self.in_flight -= 1
        self._ended += 1
        if now - self._ended_since >= PACE_OVER_S:
            self.pace_per_s = self._ended / (now - self._ended_since)
            self._ended, self._ended_since = 0, now
        assert self.breaker is not None
        return self.breaker.end(claimed.period, healthy=healthy, now=now)

    def _adapt(self, *, hung: bool, waited_s: float) -> None:
        """Let more go at once only while answers come, connections are at hand and more is wanted: a receiver
        that begins to hang then holds few of the connections that others need too."""
        self.hung = self.in_doubt = hung
        if hung:
            self.concurrency = max(1, self.concurrency // 2)
        elif waited_s > WAITED_S_MAX:
            self.concurrency = max(1, self.concurrency - 1)
        elif waited_s > WAITED_S:
            return
        elif self.waiting and self.in_flight >= self.concurrency and self.endpoint is not None:
            self.concurrency = min(self.endpoint.concurrency, self.concurrency + 1)
