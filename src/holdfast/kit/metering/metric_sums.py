"""Sums in one document for each metric and day, in as many shards as the engine wants for a hot counter."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from holdfast.kit.metering.models import UsageSumFields
from holdfast.kit.metering.periods import PAGE, ByDay, Comparison, Drift, LedgerTotals, compare_days
from holdfast.store import Increment, Query, Store, Transaction, Write, upsert

# About 1 KB each: enough for what a few hundred tenants count again and again.
_UPSERTS_MAX: Final = 2_000


@lru_cache(_UPSERTS_MAX, typed=True)
def add_upsert(
    kind: type[UsageSumFields], tenant_id: str, metric: str, day: str, shard: int, by: int, /
) -> Write:
    """Return the upsert that adds to a sum; writes are immutable, so equal ones are made once.

    Cached by type as well: a number that is not an `int` must fail as it would without the cache.
    """
    row = kind(tenant_id=tenant_id, metric=metric, day=day, month=day[:7], shard=shard, value=by)
    return upsert(row, {"value": Increment(by)})


def add_upserts(kind: type[UsageSumFields], by_tenant: Mapping[str, ByDay], *, shards: int) -> list[Write]:
    """Return the upserts that add the metrics of tenants, each to one of the shards of its sum."""
    return [
        add_upsert(kind, tenant_id, name, day, random.randrange(shards) if shards > 1 else 0, by)
        for tenant_id, days in by_tenant.items()
        for day, metrics in days.items()
        for name, by in metrics.items()
        if by
    ]


class MetricSums:
    """The layout of the kit's own meter; see `Sums`."""

    reads_first = False

    def __init__(self, store: Store, tenant_id: str, kind: type[UsageSumFields]) -> None:
        self._store, self._tenant_id, self._kind = store, tenant_id, kind

    def writes(self, days: ByDay) -> list[Write]:
        shards = self._store.capabilities.counter_shards
        return add_upserts(self._kind, {self._tenant_id: days}, shards=shards)

    async def add_to_snapshot(self, tx: Transaction, days: ByDay) -> None:
        return None

    async def day(self, metric: str, day: str) -> int:
        return await self._total(self._of(metric, day[:7]).where("day", "==", day))

    async def month(self, metric: str, month: str) -> int:
        return await self._total(self._of(metric, month).order_by("day"))

    def _of(self, metric: str, month: str) -> Query[UsageSumFields]:
        return Query(self._kind).where("month", "==", month).where("metric", "==", metric).limit(PAGE)

    async def _total(self, query: Query[UsageSumFields]) -> int:
        return sum([row.doc.value async for row in self._store.scan(query)])

    async def by_day(self, month: str) -> dict[str, dict[str, int]]:
        sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        query = Query(self._kind).where("month", "==", month).order_by("metric", "day").limit(PAGE)
        async for row in self._store.scan(query):
            sums[row.doc.metric][row.doc.day] += row.doc.value
        return sums

    async def compare(self, ledger: LedgerTotals, month: str) -> Comparison:
        return compare_days(ledger, await self.by_day(month))

    async def mend(self, tx: Transaction, drift: Drift) -> None:
        by = drift.ledger - drift.stored
        tx.write(add_upsert(self._kind, self._tenant_id, drift.metric, drift.period, 0, by))
