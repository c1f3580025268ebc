"""The meter: record usage with the fact itself, read exact sums, enforce limits, check for drift."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.errors import (
    AlreadyExistsError,
    BadQueryError,
    DeclarationError,
    HoldfastError,
    LimitReachedError,
)
from holdfast.kit.metering.metric_sums import MetricSums
from holdfast.kit.metering.models import METER_MODELS, AllowanceFields, MeterModels, PeriodModels
from holdfast.kit.metering.period_sums import PeriodSums
from holdfast.kit.metering.periods import PAGE, Drift, LedgerTotals, Sums, day_of, month_of
from holdfast.model import schema_of
from holdfast.store import Increment, Query, QueryPage, Store, Transaction, Write, create, patch, upsert

WARN_AT: Final = 0.8
# For facts that are recorded one by one: others count in the same tenant's snapshot at the same time.
ATTEMPTS: Final = 100
_FACT_BYTES_MAX: Final = 200


class Recorded(msgspec.Struct, frozen=True):
    """How many facts were new, and how many were counted before."""

    counted: int
    repeated: int


class Meter:
    """One tenant's usage.

    Example: `await store.commit(create(run), *meter.writes("run-1 finished", {"runs": 1}, at=now))`
    """

    def __init__(self, store: Store, *, tenant_id: str, models: MeterModels = METER_MODELS) -> None:
        self._store = store.tenant(tenant_id)
        self._tenant_id, self._models = tenant_id, models
        self._sums = _sums_of(self._store, tenant_id, models)

    def writes(
        self,
        fact: str,
        metrics: Mapping[str, int],
        *,
        at: datetime | None = None,
        kind: str = "",
        metadata: Any = None,
        fields: Mapping[str, Any] | None = None,
    ) -> list[Write]:
        """The ledger event and the sums it moves, for the commit of the fact itself.

        The commit is refused with AlreadyExistsError when the fact was counted before. `fields` are those
        that a service's own event class adds.
        """
        if self._sums.reads_first:
            raise DeclarationError("this meter has a snapshot, which depends on what is stored: use `add`")
        return self._writes(fact, metrics, at=at, kind=kind, metadata=metadata, **(fields or {}))

    async def add(
        self,
        tx: Transaction,
        fact: str,
        metrics: Mapping[str, int],
        *,
        at: datetime | None = None,
        kind: str = "",
        metadata: Any = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Count a fact in the caller's transaction; AlreadyExistsError when it was counted before."""
        at = at or self._store.clock.now()
        writes = self._writes(fact, metrics, at=at, kind=kind, metadata=metadata, **(fields or {}))
        if await tx.get(self._models.event, writes[0].key) is not None:
            raise AlreadyExistsError(f"the fact {fact!r} was counted before")
        tx.write(*writes)
        await self._sums.add_to_snapshot(tx, at, metrics)

    def _writes(
        self, fact: str, metrics: Mapping[str, int], *, at: datetime | None, **fields: Any
    ) -> list[Write]:
        at = (at or self._store.clock.now()).astimezone(UTC)
        event = self._models.event(
            tenant_id=self._tenant_id, fact=_fact_id(fact), at=at, month=month_of(at), metrics=dict(metrics),
            **fields,
        )  # fmt: skip
        return [create(event), *self._sums.writes(at, metrics)]

    async def record(self, facts: Iterable[tuple[str, Mapping[str, int], datetime]]) -> Recorded:
        """Count many facts, each in its own commit; repeated ones are skipped."""
        if self._sums.reads_first:
            outcomes = [await self._record(fact, metrics, at) for fact, metrics, at in facts]
            return Recorded(outcomes.count(True), outcomes.count(False))
        results = await self._store.settle([self.writes(f, metrics, at=at) for f, metrics, at in facts])
        repeated = sum(isinstance(o, AlreadyExistsError) for o in results)
        for result in results:
            if isinstance(result, HoldfastError) and not isinstance(result, AlreadyExistsError):
                raise result
        return Recorded(len(results) - repeated, repeated)

    async def _record(self, fact: str, metrics: Mapping[str, int], at: datetime) -> bool:
        try:
            await self._store.transact(lambda tx: self.add(tx, fact, metrics, at=at), attempts=ATTEMPTS)
        except AlreadyExistsError:
            return False
        return True

    async def day(self, metric: str, day: str) -> int:
        """The exact sum of one day, `2026-11-15`."""
        return await self._sums.day(metric, day)

    async def month(self, metric: str, month: str) -> int:
        """The exact sum of one month, `2026-11`."""
        return await self._sums.month(metric, month)

    async def month_sums(self, month: str) -> dict[str, int]:
        """The exact sums of all metrics in one month."""
        return {metric: sum(days.values()) for metric, days in (await self.daily_sums(month)).items()}

    async def daily_sums(self, month: str) -> dict[str, dict[str, int]]:
        """The exact sums of a month by metric and day."""
        return await self._sums.by_day(month)

    async def this_month(self, metric: str) -> int:
        return await self.month(metric, month_of(self._store.clock.now()))

    def writes_take(self, name: str, amount: int = 1, *, limit: int) -> list[Write]:
        """Take from an allowance in the caller's commit; LimitReachedError past the limit.

        Concurrent callers never exceed it together. Put the period into the name (`"runs 2026-11"`) for a
        limit per period; use `writes_give_back` for a limit on what is in use at a time.
        """
        if amount < 1:
            raise BadQueryError("take at least 1")
        if amount > limit:
            raise LimitReachedError(f"{amount} requested, {limit} allowed", limit=limit)
        row = self._models.allowance(tenant_id=self._tenant_id, name=_fact_id(name), used=amount, limit=limit)
        return [upsert(row, {"used": Increment(amount, at_most=limit), "limit": limit})]

    def writes_give_back(self, name: str, amount: int = 1) -> list[Write]:
        """Give back what was taken; never below zero."""
        changes = {"used": Increment(-amount, at_least=0)}
        return [patch(self._models.allowance, self._allowance_id(name), changes=changes)]

    async def used(self, name: str) -> int:
        stored = await self._store.get(self._models.allowance, self._allowance_id(name))
        return stored.doc.used if stored else 0

    def _allowance_id(self, name: str) -> str:
        values = {"tenant_id": self._tenant_id, "name": _fact_id(name)}
        return schema_of(self._models.allowance).declared.id.make(values.__getitem__) or ""

    async def allowances(self, *, limit: int = 50, cursor: str | None = None) -> QueryPage[AllowanceFields]:
        """All allowances with their usage, by name."""
        query = Query(self._models.allowance).order_by("name").limit(limit).after(cursor)
        return await self._store.query(query)

    async def rebuild(self, month: str, *, mend: bool = False) -> list[Drift]:
        """Sum up the ledger of a month again and compare; with `mend`, correct the stored sums."""
        ledger: LedgerTotals = Counter()
        query = Query(self._models.event).where("month", "==", month).order_by("at").limit(PAGE)
        async for event in self._store.scan(query):
            for metric, by in event.doc.metrics.items():
                ledger[metric, day_of(event.doc.at)] += by
        compared = await self._sums.compare(ledger, month)
        drifts = [
            Drift(metric, period, expected, stored)
            for (metric, period), (expected, stored) in sorted(compared.items())
            if expected != stored
        ]
        if mend:
            for drift in drifts:
                await self._store.transact(lambda tx, drift=drift: self.mend(tx, drift))  # type: ignore[misc]
        return drifts

    async def mend(self, tx: Transaction, drift: Drift) -> None:
        """Move a sum by its distance from the ledger, so that what is counted meanwhile stays counted."""
        await self._sums.mend(tx, drift)


class MeterFactory(Protocol):
    """The meter of a tenant: the platform's own, or a service's."""

    def __call__(self, tenant_id: str, *, models: MeterModels = METER_MODELS) -> Meter: ...


def _sums_of(store: Store, tenant_id: str, models: MeterModels) -> Sums:
    if isinstance(models.sums, PeriodModels):
        return PeriodSums(store, tenant_id, models.sums)
    return MetricSums(store, tenant_id, models.sums)


def limit_state(used: int, limit: int) -> Literal["ok", "warning", "reached"]:
    """State of usage against a limit; the warning comes at four fifths."""
    if used >= limit:
        return "reached"
    return "warning" if used >= WARN_AT * limit else "ok"


def _fact_id(fact: str) -> str:
    """A key of any kind as an id: itself where it is valid, otherwise its digest."""
    if fact and len(fact.encode()) <= _FACT_BYTES_MAX and "/" not in fact and fact.isprintable():
        return fact
    return "sha256-" + hashlib.sha256(fact.encode()).hexdigest()
