"""The meter: record usage with the fact itself, read exact sums, enforce limits, check for drift."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import AlreadyExistsError, BadQueryError, HoldfastError, LimitReachedError
from holdfast.kit.metering.models import Allowance, UsageEvent, UsageSum
from holdfast.store import Increment, Query, QueryPage, Store, Write, create, patch, upsert

WARN_AT: Final = 0.8
PAGE: Final = 1_000
_FACT_BYTES_MAX: Final = 200


class Recorded(msgspec.Struct, frozen=True):
    """How many facts were new, and how many were counted before."""

    counted: int
    repeated: int


class Drift(msgspec.Struct, frozen=True):
    """A sum that disagrees with the ledger."""

    metric: str
    day: str
    ledger: int
    stored: int


class Meter:
    """One tenant's usage.

    Example: `await store.commit(create(run), *meter.writes("run-1 finished", {"runs": 1}, at=now))`
    """

    def __init__(self, store: Store, *, tenant_id: str) -> None:
        self._store = store.tenant(tenant_id)
        self._tenant_id = tenant_id

    def writes(
        self,
        fact: str,
        metrics: Mapping[str, int],
        *,
        at: datetime | None = None,
        kind: str = "",
        metadata: Any = None,
    ) -> list[Write]:
        """The ledger event and the sums it moves, for the commit of the fact itself.

        The commit is refused with AlreadyExistsError when the fact was counted before.
        """
        at = (at or self._store.clock.now()).astimezone(UTC)
        event = UsageEvent(
            tenant_id=self._tenant_id, fact=_fact_id(fact), at=at, month=month_of(at), kind=kind,
            metrics=dict(metrics), metadata=metadata,
        )  # fmt: skip
        return [create(event), *(self._sum(metric, at, by) for metric, by in metrics.items() if by)]

    def _sum(self, metric: str, at: datetime, by: int) -> Write:
        row = UsageSum(
            tenant_id=self._tenant_id, metric=metric, day=day_of(at), month=month_of(at),
            shard=random.randrange(self._store.capabilities.counter_shards), value=by,
        )  # fmt: skip
        return upsert(row, {"value": Increment(by)})

    async def record(self, facts: Iterable[tuple[str, Mapping[str, int], datetime]]) -> Recorded:
        """Count many facts, each in its own commit; repeated ones are skipped."""
        outcomes = await self._store.settle([self.writes(f, metrics, at=at) for f, metrics, at in facts])
        repeated = sum(isinstance(o, AlreadyExistsError) for o in outcomes)
        for outcome in outcomes:
            if isinstance(outcome, HoldfastError) and not isinstance(outcome, AlreadyExistsError):
                raise outcome
        return Recorded(len(outcomes) - repeated, repeated)

    async def day(self, metric: str, day: str) -> int:
        """The exact sum of one day, `2026-11-15`."""
        return int(await self._store.sum(self._of(metric).where("day", "==", day), "value"))

    async def month(self, metric: str, month: str) -> int:
        """The exact sum of one month, `2026-11`."""
        return int(await self._store.sum(self._of(metric).where("month", "==", month), "value"))

    async def month_sums(self, month: str) -> dict[str, int]:
        """The exact sums of all metrics in one month."""
        sums: Counter[str] = Counter()
        query = Query(UsageSum).where("month", "==", month).order_by("metric", "day").limit(PAGE)
        async for row in self._store.scan(query):
            sums[row.doc.metric] += row.doc.value
        return dict(sums)

    async def this_month(self, metric: str) -> int:
        return await self.month(metric, month_of(self._store.clock.now()))

    def _of(self, metric: str) -> Query[UsageSum]:
        return Query(UsageSum).where("metric", "==", metric)

    def writes_take(self, name: str, amount: int = 1, *, limit: int) -> list[Write]:
        """Take from an allowance in the caller's commit; LimitReachedError past the limit.

        Concurrent callers never exceed it together. Put the period into the name (`"runs 2026-11"`) for a
        limit per period; use `writes_give_back` for a limit on what is in use at a time.
        """
        if amount < 1:
            raise BadQueryError("take at least 1")
        if amount > limit:
            raise LimitReachedError(f"{amount} requested, {limit} allowed")
        row = Allowance(tenant_id=self._tenant_id, name=_fact_id(name), used=amount, limit=limit)
        return [upsert(row, {"used": Increment(amount, at_most=limit), "limit": limit})]

    def writes_give_back(self, name: str, amount: int = 1) -> list[Write]:
        """Give back what was taken; never below zero."""
        key = f"{self._tenant_id}_{_fact_id(name)}"
        return [patch(Allowance, key, changes={"used": Increment(-amount, at_least=0)})]

    async def used(self, name: str) -> int:
        stored = await self._store.get(Allowance, f"{self._tenant_id}_{_fact_id(name)}")
        return stored.doc.used if stored else 0

    async def allowances(self, *, limit: int = 50, cursor: str | None = None) -> QueryPage[Allowance]:
        """All allowances with their usage, by name."""
        return await self._store.query(Query(Allowance).order_by("name").limit(limit).after(cursor))

    async def rebuild(self, month: str, *, mend: bool = False) -> list[Drift]:
        """Sum up the ledger of a month again and compare; with `mend`, correct the stored sums."""
        ledger: Counter[tuple[str, str]] = Counter()
        query = Query(UsageEvent).where("month", "==", month).order_by("at").limit(PAGE)
        async for event in self._store.scan(query):
            for metric, by in event.doc.metrics.items():
                ledger[metric, day_of(event.doc.at)] += by
        stored: Counter[tuple[str, str]] = Counter()
        sums = Query(UsageSum).where("month", "==", month).order_by("metric", "day").limit(PAGE)
        async for row in self._store.scan(sums):
            stored[row.doc.metric, row.doc.day] += row.doc.value
        drifts = [
            Drift(metric, day, ledger[metric, day], stored[metric, day])
            for metric, day in sorted(ledger.keys() | stored.keys())
            if ledger[metric, day] != stored[metric, day]
        ]
        if mend:
            for drift in drifts:
                await self._store.commit(self.write_mend(drift))
        return drifts

    def write_mend(self, drift: Drift) -> Write:
        """Move a sum by its distance from the ledger, so that what is counted meanwhile stays counted."""
        by = drift.ledger - drift.stored
        row = UsageSum(
            tenant_id=self._tenant_id, metric=drift.metric, day=drift.day, month=drift.day[:7], shard=0,
            value=by,
        )  # fmt: skip
        return upsert(row, {"value": Increment(by)})


def limit_state(used: int, limit: int) -> Literal["ok", "warning", "reached"]:
    """State of usage against a limit; the warning comes at four fifths."""
    if used >= limit:
        return "reached"
    return "warning" if used >= WARN_AT * limit else "ok"


def day_of(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d")


def month_of(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m")


def _fact_id(fact: str) -> str:
    """A key of any kind as an id: itself where it is valid, otherwise its digest."""
    if fact and len(fact.encode()) <= _FACT_BYTES_MAX and "/" not in fact and fact.isprintable():
        return fact
    return "sha256-" + hashlib.sha256(fact.encode()).hexdigest()
