"""An endpoint's rate, shared by all dispatchers on a store: turns are reserved there and taken here."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from holdfast.kit.outbox.models import Endpoint, OutboxModels, Rate
from holdfast.kit.rate_limit import RateQuota, SharedRateLimit
from holdfast.model.document import schema_of
from holdfast.store import Store

# How far ahead turns are reserved: long enough for few commits, short enough to share.
RESERVE_S: Final = 0.5
RESERVED_MAX: Final = 256


def quota_of(rate: Rate) -> RateQuota:
    """The quota that lets `burst` through at once, and after that `per_s` in any second.

    Example: `quota_of(Rate(per_s=20, burst=1))` is `RateQuota(count=20, period_s=1.0, burst=1)`
    """
    whole = max(1, int(rate.per_s))
    return RateQuota(count=whole + rate.burst - 1, period_s=whole / rate.per_s, burst=rate.burst)


class ReservedTurns:
    """The turns that this process has of one endpoint's rate, by its monotonic clock. Knows no store."""

    def __init__(self, rate: Rate) -> None:
        self.rate, self.quota = rate, quota_of(rate)
        self.reserving = False
        self._turns: deque[float] = deque()

    def take(self, now: float) -> bool:
        """Take a turn whose time has come; one that is too late is forfeited."""
        late_s = self.quota.late_us_max / 1e6
        while self._turns and now - self._turns[0] > late_s:
            self._turns.popleft()
        if not self._turns or self._turns[0] > now:
            return False
        self._turns.popleft()
        return True

    def ready_at(self) -> float:
        """Return when the next turn is; never while none is reserved."""
        return self._turns[0] if self._turns else math.inf

    def wanted(self, waiting: int, *, places: int, concurrency: int, took_s: float) -> int:
        """Return how many turns to reserve now, for so many that wait and so many free places.

        A receiver that takes its time gets no more turns than there are places: the rest would be forfeited.
        """
        most = min(RESERVED_MAX, max(self.rate.burst, math.ceil(self.rate.per_s * RESERVE_S)))
        if concurrency * self.quota.interval_us / 1e6 < took_s:
            most = min(most, places)
        most = min(most, waiting)
        return 0 if self.reserving or 2 * len(self._turns) > most else most - len(self._turns)

    def add(self, turns: Iterable[float]) -> None:
        self._turns.extend(turns)


class EndpointRates:
    """Reserves turns of endpoints in the store, under each endpoint's id."""

    def __init__(self, store: Store, models: OutboxModels) -> None:
        self._store, self._clock = store, store.clock
        self._name = f"outbox {schema_of(models.endpoint).path.names[0]}"
        self._limits: dict[str, SharedRateLimit] = {}

    async def reserve(self, endpoint: Endpoint, quota: RateQuota, *, count: int) -> list[float]:
        """Reserve the next free turns and return them by the monotonic clock."""
        limit = self._limits.get(endpoint.id)
        if limit is None or limit.quota != quota:
            store = self._store.tenant(endpoint.tenant_id)
            limit = self._limits[endpoint.id] = SharedRateLimit(store, self._name, quota)
        turns_us = await limit.reserve(endpoint.id, callers=count)
        now_s, now_us = self._clock.monotonic(), self._clock.now_us()
        return [now_s + (turn_us - now_us) / 1e6 for turn_us in turns_us]
