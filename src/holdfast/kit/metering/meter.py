"""The meter: record usage with the fact itself, read exact sums, enforce limits, check for drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from holdfast.errors import (
    AlreadyExistsError,
    BadQueryError,
    DeclarationError,
    LimitReachedError,
)
from holdfast.kit.metering.batch import Fact, Recorded, record_facts, sums_of
from holdfast.kit.metering.models import METER_MODELS, AllowanceFields, MeterModels, fact_id
from holdfast.kit.metering.periods import PAGE, Drift, LedgerTotals, day_of, month_of, month_span
from holdfast.model import schema_of
from holdfast.store import Increment, Query, QueryPage, Store, Transaction, Write, patch, put, upsert

WARN_AT: Final = 0.8


class Meter:
    """One tenant's usage.

    Example: `await store.commit(create(run), *meter.writes("run-1 finished", {"runs": 1}, at=now))`
    """

    def __init__(self, store: Store, *, tenant_id: str, models: MeterModels = METER_MODELS) -> None:
        self._store = store.tenant(tenant_id)
        self._tenant_id, self._models = tenant_id, models
        self._sums = sums_of(self._store, tenant_id, models)

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
        made = self._fact(fact, metrics, at, kind=kind, metadata=metadata, fields=fields)
        return [made.event(self._models), *self._sums.writes({day_of(made.at): metrics})]

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
        made = self._fact(fact, metrics, at, kind=kind, metadata=metadata, fields=fields)
        event, days = made.event(self._models), {day_of(made.at): metrics}
        if await tx.get(self._models.event, event.key) is not None:
            raise AlreadyExistsError(f"the fact {fact!r} was counted before")
        tx.write(event, *self._sums.writes(days))
        await self._sums.add_to_snapshot(tx, days)

    def _fact(
        self,
        name: str,
        metrics: Mapping[str, int],
        at: datetime | None,
        *,
        fields: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Fact:
        at = at or self._store.clock.now()
        return Fact(tenant_id=self._tenant_id, name=name, metrics=metrics, at=at, fields=fields or {}, **more)

    async def record(self, facts: Iterable[tuple[str, Mapping[str, int], datetime]]) -> Recorded:
        """Count many facts, many to a commit; repeated ones are skipped. See `record_facts`."""
        found = (self._fact(name, metrics, at) for name, metrics, at in facts)
        return await record_facts(self._store, found, models=self._models)

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
        row = self._models.allowance(tenant_id=self._tenant_id, name=fact_id(name), used=amount, limit=limit)
        return [upsert(row, {"used": Increment(amount, at_most=limit), "limit": limit})]

    async def take(self, tx: Transaction, name: str, amount: int = 1, *, limit: int) -> None:
        """Take from an allowance in the caller's transaction; LimitReachedError at once, with its usage."""
        stored = await tx.get(self._models.allowance, self._allowance_id(name))
        used = stored.doc.used if stored else 0
        if used + amount > limit:
            raise LimitReachedError(f"{used} of {limit} are used", usage=used, limit=limit)
        row = self._models.allowance(
            tenant_id=self._tenant_id, name=fact_id(name), used=used + amount, limit=limit
        )
        tx.write(put(row))

    def writes_give_back(self, name: str, amount: int = 1) -> list[Write]:
        """Give back what was taken; never below zero."""
        changes = {"used": Increment(-amount, at_least=0)}
        return [patch(self._models.allowance, self._allowance_id(name), changes=changes)]

    async def used(self, name: str) -> int:
        stored = await self._store.get(self._models.allowance, self._allowance_id(name))
        return stored.doc.used if stored else 0

    def _allowance_id(self, name: str) -> str:
        values = {"tenant_id": self._tenant_id, "name": fact_id(name)}
        return schema_of(self._models.allowance).declared.id.make(values.__getitem__) or ""

    async def allowances(self, *, limit: int = 50, cursor: str | None = None) -> QueryPage[AllowanceFields]:
        """All allowances with their usage, by name."""
        query = Query(self._models.allowance).order_by("name").limit(limit).after(cursor)
        return await self._store.query(query)

    async def rebuild(self, month: str, *, mend: bool = False) -> list[Drift]:
        """Sum up the ledger of a month again and compare; with `mend`, correct the stored sums."""
        ledger: LedgerTotals = Counter()
        first, last = month_span(month)
        query = Query(self._models.event).where("at", ">=", first).where("at", "<=", last).order_by("-at")
        async for event in self._store.scan(query.limit(PAGE)):
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


def limit_state(used: int, limit: int) -> Literal["ok", "warning", "reached"]:
    """State of usage against a limit; the warning comes at four fifths."""
    if used >= limit:
        return "reached"
    return "warning" if used >= WARN_AT * limit else "ok"
