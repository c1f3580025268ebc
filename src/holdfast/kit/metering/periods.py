"""Days and months of usage, and what a layout of sums does."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

import msgspec

from holdfast.errors import InvalidError
from holdfast.store import Transaction, Write

PAGE: Final = 1_000
# The ledger's sums, by metric and day.
LedgerTotals: TypeAlias = Counter[tuple[str, str]]
# Metrics to add, by day.
ByDay: TypeAlias = Mapping[str, Mapping[str, int]]
# What the ledger says and what is stored, by metric and period.
Comparison: TypeAlias = dict[tuple[str, str], tuple[int, int]]


class Drift(msgspec.Struct, frozen=True):
    """A sum that disagrees with the ledger; `period` is a day, a month or the snapshot of a month."""

    metric: str
    period: str
    ledger: int
    stored: int


class Sums(Protocol):
    """The sums of one tenant, in some layout."""

    # Whether a fact's sums depend on what is stored, so that they need a transaction.
    reads_first: bool

    def writes(self, days: ByDay) -> list[Write]:
        """The writes that add metrics without reading."""

    async def add_to_snapshot(self, tx: Transaction, days: ByDay) -> None:
        """Add metrics where that depends on what is stored."""

    async def day(self, metric: str, day: str) -> int: ...

    async def month(self, metric: str, month: str) -> int: ...

    async def by_day(self, month: str) -> dict[str, dict[str, int]]:
        """A month's sums by metric and day."""

    async def compare(self, ledger: LedgerTotals, month: str) -> Comparison:
        """What the ledger gives for every sum of the month, and what is stored."""

    async def mend(self, tx: Transaction, drift: Drift) -> None:
        """Move a sum by its distance from the ledger, so that what is counted meanwhile stays counted."""


def compare_days(ledger: LedgerTotals, by_day: Mapping[str, Mapping[str, int]]) -> Comparison:
    """The ledger's sums of days and the stored ones."""
    stored = {(metric, day): count for metric, days in by_day.items() for day, count in days.items()}
    return {key: (ledger[key], stored.get(key, 0)) for key in ledger.keys() | stored.keys()}


def by_month(days: ByDay) -> dict[str, Counter[str]]:
    """The metrics of days by month, the earliest first."""
    months: dict[str, Counter[str]] = {}
    for day, metrics in sorted(days.items()):
        months.setdefault(day[:7], Counter()).update(metrics)
    return months


def day_of(at: datetime) -> str:
    return at.astimezone(UTC).date().isoformat()


def month_of(at: datetime) -> str:
    return day_of(at)[:7]


def month_span(month: str) -> tuple[datetime, datetime]:
    """The first and the last moment of a month, `2026-11`."""
    try:
        first = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidError("month is written as in 2026-11", "month") from None
    days = calendar.monthrange(first.year, first.month)[1]
    return first, first.replace(day=days, hour=23, minute=59, second=59, microsecond=999_999)
