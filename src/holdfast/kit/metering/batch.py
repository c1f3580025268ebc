"""Facts of any tenants recorded many to a commit: one insert for the ledger, one change for each sum."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.errors import AlreadyExistsError
from holdfast.kit.metering.metric_sums import MetricSums, add_upserts
from holdfast.kit.metering.models import (
    METER_MODELS,
    MeterModels,
    PeriodModels,
    UsageEventFields,
    event_id,
    fact_id,
)
from holdfast.kit.metering.period_sums import PeriodSums
from holdfast.kit.metering.periods import Sums
from holdfast.store import Store, Transaction, Write, create_many

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
        (entry,) = make_entries([self], [fact_id(self.name)], models)
        return entry.event


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """A fact, the day that it counts for, and the creation of its ledger event."""

    fact: Fact
    day: str
    event: Write


def make_entries(facts: Sequence[Fact], keys: Iterable[str], models: MeterModels) -> list[LedgerEntry]:
    """Make the ledger events of facts, given with the `fact_id` of each."""
    days: list[str] = []
    events: list[UsageEventFields] = []
    last, event = object(), models.event  # facts of a batch often share their time
    for fact, key in zip(facts, keys, strict=True):
        if fact.at is not last:
            last = fact.at
            at = fact.at if fact.at.tzinfo is UTC else fact.at.astimezone(UTC)
            day = at.date().isoformat()
            month = day[:7]
        days.append(day)
        events.append(event(
            tenant_id=fact.tenant_id, fact=key, at=at, month=month, kind=fact.kind,
            metrics=dict(fact.metrics), metadata=fact.metadata, **fact.fields,
        ))  # fmt: skip
    return list(map(LedgerEntry, facts, days, create_many(events)))


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
    given = list(facts)
    if not given:
        return Recorded(0, 0)
    batch = _Batch(store, models)
    keys = [fact_id(fact.name) for fact in given]
    if store.capabilities.embedded:
        # There is no server to wait for: what is made first has the ids that are looked up.
        entries, first = _distinct(make_entries(given, keys, models)), None
    else:
        ids = list(
            dict.fromkeys([event_id(fact.tenant_id, key) for fact, key in zip(given, keys, strict=True)])
        )
        first = asyncio.ensure_future(batch.stored(ids[:FACTS_PER_COMMIT]))
        entries = await _make_entries(given, keys, models=models, reading=first)
    counted = 0
    for start in range(0, len(entries), FACTS_PER_COMMIT):
        some = entries[start : start + FACTS_PER_COMMIT]
        counted += await batch.record(some, stored=None if start else first)
    return Recorded(counted, len(given) - counted)


async def _make_entries(
    facts: Sequence[Fact],
    keys: Iterable[str],
    *,
    models: MeterModels,
    reading: asyncio.Future[set[str]],
) -> list[LedgerEntry]:
    """Make the entries of distinct facts while a server looks the first of them up."""
    try:
        for _ in range(2):  # one turn of the loop to make the request, one to send it
            await asyncio.sleep(0)
        made = make_entries(facts, keys, models)
    except BaseException as fault:
        # A fact that is refused waits for the read: cancelled, it would cost a connection.
        if not isinstance(fault, Exception):
            reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        raise
    return _distinct(made)


def _distinct(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    return list({entry.event.key: entry for entry in entries}.values())


class _Batch:
    def __init__(self, store: Store, models: MeterModels) -> None:
        self._store, self._models = store, models

    async def stored(self, ids: Sequence[str]) -> set[str]:
        """Return which of these facts are in the ledger."""
        return {one.key for one in await self._store.get_many(self._models.event, ids) if one is not None}

    async def record(self, entries: Sequence[LedgerEntry], *, stored: Awaitable[set[str]] | None) -> int:
        for attempt in range(1, ATTEMPTS + 1):
            taken = await (stored or self.stored([entry.event.key for entry in entries]))
            new = [entry for entry in entries if entry.event.key not in taken]
            try:
                if new:
                    await self._commit(new)
                return len(new)
            except AlreadyExistsError:  # another recorded one of them since
                if attempt == ATTEMPTS:
                    raise
            stored = None
        raise AssertionError

    async def _commit(self, entries: Sequence[LedgerEntry]) -> None:
        writes = [entry.event for entry in entries]
        by_tenant, layout = _by_tenant(entries), self._models.sums
        if not isinstance(layout, PeriodModels):
            shards = self._store.capabilities.counter_shards
            await self._store.commit(*writes, *add_upserts(layout, by_tenant, shards=shards))
            return
        sums = {tenant_id: PeriodSums(self._store, tenant_id, layout) for tenant_id in by_tenant}
        for tenant_id, days in by_tenant.items():
            writes += sums[tenant_id].writes(days)
        if layout.snapshot is None:
            await self._store.commit(*writes)
            return

        async def act(tx: Transaction) -> None:
            tx.write(*writes)
            for tenant_id, days in by_tenant.items():
                await sums[tenant_id].add_to_snapshot(tx, days)

        await self._store.transact(act, attempts=ATTEMPTS)


def _by_tenant(entries: Iterable[LedgerEntry]) -> dict[str, dict[str, dict[str, int]]]:
    """The metrics of facts by tenant and day."""
    totals: dict[str, dict[str, dict[str, int]]] = {}
    for entry in entries:
        fact = entry.fact
        metrics = totals.setdefault(fact.tenant_id, {}).setdefault(entry.day, {})
        for name, by in fact.metrics.items():
            metrics[name] = metrics.get(name, 0) + by
    return totals


def sums_of(store: Store, tenant_id: str, models: MeterModels) -> Sums:
    """The sums of a tenant in the layout that the models declare."""
    if isinstance(models.sums, PeriodModels):
        return PeriodSums(store, tenant_id, models.sums)
    return MetricSums(store, tenant_id, models.sums)
