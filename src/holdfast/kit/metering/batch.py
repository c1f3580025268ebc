"""Facts of any tenants recorded many to a commit: one insert for the ledger, one change for each sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.errors import AlreadyExistsError
from holdfast.kit.metering.metric_sums import MetricSums
from holdfast.kit.metering.models import METER_MODELS, MeterModels, PeriodModels, fact_id
from holdfast.kit.metering.period_sums import PeriodSums
from holdfast.kit.metering.periods import Sums, day_of, month_of
from holdfast.store import Store, Transaction, Write, create

FACTS_PER_COMMIT: Final = 100
# Others may record the same facts, or count in the same tenant's snapshot, at the same time.
ATTEMPTS: Final = 100


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that used something; it counts once for its tenant and name.

    `fields` are those that a service's own event class adds.
    """

    tenant_id: str
    name: str
    metrics: Mapping[str, int]
    at: datetime
    kind: str = ""
    metadata: Any = None
    fields: Mapping[str, Any] = {}

    def event(self, models: MeterModels) -> Write:
        """The creation of its ledger event."""
        at = self.at.astimezone(UTC)
        event = models.event(
            tenant_id=self.tenant_id, fact=fact_id(self.name), at=at, month=month_of(at), kind=self.kind,
            metrics=dict(self.metrics), metadata=self.metadata, **self.fields,
        )  # fmt: skip
        return create(event)


class Recorded(msgspec.Struct, frozen=True):
    """How many facts were new, and how many were counted before."""

    counted: int
    repeated: int


async def record_facts(
    store: Store, facts: Iterable[Fact], *, models: MeterModels = METER_MODELS
) -> Recorded:
    """Count facts; each is counted once, whoever else records it and however often.

    Facts of several tenants need a privileged handle. What was counted before an error stays counted:
    record all of them again.

    Example: `await record_facts(store, [Fact(tenant_id="acme", name="r1", metrics={"runs": 1}, at=now)])`
    """
    given = [(fact, fact.event(models)) for fact in facts]
    distinct = list({event.key: (fact, event) for fact, event in given}.values())
    batch = _Batch(store, models)
    counted = 0
    for start in range(0, len(distinct), FACTS_PER_COMMIT):
        counted += await batch.record(distinct[start : start + FACTS_PER_COMMIT])
    return Recorded(counted, len(given) - counted)


class _Batch:
    def __init__(self, store: Store, models: MeterModels) -> None:
        self._store, self._models = store, models

    async def record(self, facts: Sequence[tuple[Fact, Write]]) -> int:
        for attempt in range(1, ATTEMPTS + 1):
            found = await self._store.get_many(self._models.event, [event.key for _, event in facts])
            new = [one for one, stored in zip(facts, found, strict=True) if stored is None]
            try:
                if new:
                    await self._commit(new)
                return len(new)
            except AlreadyExistsError:  # another recorded one of them since
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError

    async def _commit(self, facts: Sequence[tuple[Fact, Write]]) -> None:
        writes = [event for _, event in facts]
        by_day = _by_day(fact for fact, _ in facts)
        sums = {tenant_id: sums_of(self._store, tenant_id, self._models) for tenant_id in by_day}
        for tenant_id, days in by_day.items():
            writes += sums[tenant_id].writes(days)
        if not any(one.reads_first for one in sums.values()):
            await self._store.commit(*writes)
            return

        async def act(tx: Transaction) -> None:
            tx.write(*writes)
            for tenant_id, days in by_day.items():
                await sums[tenant_id].add_to_snapshot(tx, days)

        await self._store.transact(act, attempts=ATTEMPTS)


def _by_day(facts: Iterable[Fact]) -> dict[str, dict[str, dict[str, int]]]:
    """The metrics of facts by tenant and day."""
    totals: dict[str, dict[str, dict[str, int]]] = {}
    for fact in facts:
        metrics = totals.setdefault(fact.tenant_id, {}).setdefault(day_of(fact.at), {})
        for name, by in fact.metrics.items():
            metrics[name] = metrics.get(name, 0) + by
    return totals


def sums_of(store: Store, tenant_id: str, models: MeterModels) -> Sums:
    """The sums of a tenant in the layout that the models declare."""
    if isinstance(models.sums, PeriodModels):
        return PeriodSums(store, tenant_id, models.sums)
    return MetricSums(store, tenant_id, models.sums)
