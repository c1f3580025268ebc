"""Sums in one document for each day and month, and one with the current month for each tenant."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidError
from holdfast.kit.metering.models import PeriodModels, UsageSnapshotFields, metric_fields
from holdfast.kit.metering.periods import ByDay, Comparison, Drift, LedgerTotals, by_month, compare_days
from holdfast.model import schema_of
from holdfast.store import Increment, Store, Transaction, Write, patch, put, upsert

_SNAPSHOT: Final = "snapshot "


class PeriodSums:
    """The layout of `PeriodModels`; see `Sums`."""

    def __init__(self, store: Store, tenant_id: str, models: PeriodModels) -> None:
        self._store, self._tenant_id, self._models = store, tenant_id, models
        self.reads_first = models.snapshot is not None
        self._day, self._month = metric_fields(models.day), metric_fields(models.month)
        self._snapshot = {} if models.snapshot is None else metric_fields(models.snapshot)

    def writes(self, days: ByDay) -> list[Write]:
        unknown = {name for metrics in days.values() for name in metrics} - self._day.keys()
        if unknown:
            raise InvalidError(
                f"{self._models.day.__name__} has no field for {', '.join(sorted(unknown))}: declare one"
            )
        periods = [*days.items(), *by_month(days).items()]
        return [self._add(period, metrics) for period, metrics in periods]

    def _add(self, period: str, metrics: Mapping[str, int]) -> Write:
        daily, now = _is_day(period), self._store.clock.now()
        fields = self._day if daily else self._month
        added: dict[str, Any] = {fields[name]: by for name, by in metrics.items() if by}
        same: dict[str, Any] = {"tenant_id": self._tenant_id, "updated_at": now}
        row = (
            self._models.day(date=period, **same, **added)
            if daily
            else self._models.month(month=period, **same, **added)
        )
        return upsert(row, {name: Increment(by) for name, by in added.items()} | {"updated_at": now})

    async def add_to_snapshot(self, tx: Transaction, days: ByDay) -> None:
        for month, metrics in by_month(days).items():
            await self._add_month(tx, month, metrics)

    async def _add_month(self, tx: Transaction, month: str, metrics: Mapping[str, int]) -> None:
        kind = self._models.snapshot
        if kind is None:
            return
        stored = await tx.get(kind, self._tenant_id)
        if stored is not None and stored.doc.current_month > month:
            return  # a late fact of a month that is over
        # No fact of this month can have come before the snapshot is of this month: it begins at zero.
        snapshot = stored.doc if stored is not None and stored.doc.current_month == month else None
        now = self._store.clock.now()
        if snapshot is None:
            snapshot = kind(tenant_id=self._tenant_id, current_month=month, last_updated_at=now)
        counted = {self._snapshot[name]: by for name, by in metrics.items() if name in self._snapshot}
        changes = {name: getattr(snapshot, name) + by for name, by in counted.items()}
        tx.write(put(msgspec.structs.replace(snapshot, last_updated_at=now, **changes)))

    async def day(self, metric: str, day: str) -> int:
        return (await self._read(day)).get(metric, 0)

    async def month(self, metric: str, month: str) -> int:
        return (await self._read(month)).get(metric, 0)

    async def _read(self, *periods: str) -> dict[str, int]:
        (found,) = await self._read_many(*periods)
        return found

    async def _read_many(self, *periods: str) -> list[dict[str, int]]:
        """The metrics of some days, or of some months; none where nothing was used."""
        daily = _is_day(periods[0])
        kind, fields = (self._models.day, self._day) if daily else (self._models.month, self._month)
        named = [{"tenant_id": self._tenant_id, "date": one, "month": one} for one in periods]
        identity = schema_of(kind).declared.id
        ids = [identity.make(values.__getitem__) or "" for values in named]
        return [
            {} if one is None else {name: getattr(one.doc, field) for name, field in fields.items()}
            for one in await self._store.get_many(kind, ids)
        ]

    async def by_day(self, month: str) -> dict[str, dict[str, int]]:
        days = days_of(month)
        rows = dict(zip(days, await self._read_many(*days), strict=True))
        found = {name: {day: row[name] for day, row in rows.items() if row.get(name)} for name in self._day}
        return {name: days for name, days in found.items() if days}

    async def compare(self, ledger: LedgerTotals, month: str) -> Comparison:
        pairs = compare_days(ledger, await self.by_day(month))
        monthly: Counter[str] = Counter()
        for (name, _), count in ledger.items():
            monthly[name] += count
        whole, snapshot = await self._read(month), await self.snapshot()
        pairs |= {(name, month): (monthly[name], whole.get(name, 0)) for name in self._month}
        if snapshot is not None and snapshot.current_month == month:
            pairs |= {
                (name, _SNAPSHOT + month): (monthly[name], getattr(snapshot, field))
                for name, field in self._snapshot.items()
            }
        return pairs

    async def snapshot(self) -> UsageSnapshotFields | None:
        if self._models.snapshot is None:
            return None
        stored = await self._store.get(self._models.snapshot, self._tenant_id)
        return None if stored is None else stored.doc

    async def mend(self, tx: Transaction, drift: Drift) -> None:
        by = drift.ledger - drift.stored
        if not drift.period.startswith(_SNAPSHOT):
            tx.write(self._add(drift.period, {drift.metric: by}))
            return
        assert self._models.snapshot is not None
        stored = await tx.get(self._models.snapshot, self._tenant_id)
        if stored is not None and _SNAPSHOT + stored.doc.current_month == drift.period:
            changes = {self._snapshot[drift.metric]: Increment(by)}
            tx.write(patch(self._models.snapshot, self._tenant_id, changes=changes))


def days_of(month: str) -> list[str]:
    """The days of a month: `2026-11-01` to `2026-11-30`."""
    year, number = map(int, month.split("-"))
    return [f"{month}-{day:02}" for day in range(1, calendar.monthrange(max(year, 1), number)[1] + 1)]


def _is_day(period: str) -> bool:
    return period.count("-") > 1
