"""One resident, scored by the rules from a few facts."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from holdfast.services.renewals.domain.money import to_cents
from holdfast.services.renewals.domain.scoring import (
    Assessment,
    Facts,
    LeaseFacts,
    LeaseType,
    LedgerTotals,
    Rules,
    assess,
)

AS_OF = date(2026, 3, 1)
LONG_AGO = date(2024, 1, 1)


class Row(NamedTuple):
    """A ledger row: how many days before the as-of date, what, of which code, how much."""

    kind: str
    code: str
    amount: str


def payments(rent: str, *, how_many: int = 6) -> list[Row]:
    return [Row("payment", "rent", rent)] * how_many


def scored(
    *,
    days: int | None = 365,
    rent: str = "1500",
    type: LeaseType = "fixed",
    start: date = LONG_AGO,
    rows: list[Row] | None = None,
    offer: bool = True,
    market: str | None = "1500",
    as_of: date = AS_OF,
    rules: Rules = Rules(),  # noqa: B008 - frozen
) -> Assessment:
    """A resident with nothing against them, but for what the test says."""
    end = None if days is None else as_of + timedelta(days=days)
    ledger = LedgerTotals()
    for row in payments(rent) if rows is None else rows:
        ledger.add(row.kind, row.code, rows=1, cents=to_cents(row.amount))
    lease = LeaseFacts("lease-1", start, end, to_cents(rent), type)
    facts = Facts(lease, ledger, offer, None if market is None else to_cents(market))
    return assess(facts, as_of=as_of, rules=rules)


def lease_from(start: str, end: str | None, *, type: LeaseType = "fixed") -> LeaseFacts:
    return LeaseFacts("l", date.fromisoformat(start), date.fromisoformat(end) if end else None, 100_000, type)
