"""Residents as CSV files, each against one rule, with what the rules say of them."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from holdfast.services.renewals.domain.dates import months_before

Ledger = Sequence[tuple[str, str, str, str]]
Offer = tuple[str, str, str, str]
Lease = tuple[str, str, str]

LEASE: Final[Lease] = ("2025-01-01", "2028-01-01", "1000")
PAID: Final[Ledger] = (("2026-08-01", "charge", "rent", "1000"), ("2026-08-03", "payment", "rent", "1000"))
# Status, made at, last day, lease.
OFFERED: Final[Offer] = ("pending", "2026-08-01T12:00:00Z", "", "0")


@dataclass
class Case:
    """A resident with nothing against them, but for what the case says; and which signals count."""

    delinquent: bool | None = False
    no_offer: bool = False
    market: bool | None = False
    expiry: int = 2
    ledger: Ledger = PAID
    offers: Sequence[Offer] = (OFFERED,)
    leases: Sequence[Lease] = (LEASE,)
    prices: Sequence[tuple[str, str]] = (("2026-01-01", "1000"),)
    kind: str = "fixed"

    @property
    def score(self) -> int:
        return self.expiry + 25 * (self.delinquent is True) + 20 * self.no_offer + 15 * (self.market is True)


def paid_on(*days: str, amount: str = "1000") -> Ledger:
    return [(day, "payment", "rent", amount) for day in days]


MONTHS: Final = ("2026-03-01", "2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01", "2026-08-01")

CASES: Final[dict[str, Case]] = {
    "nothing-against-them": Case(),
    # -- the ledger's window, both borders included
    "charged-on-the-first-day": Case(True, ledger=[("2026-02-28", "charge", "rent", "1000")]),
    "charged-the-day-before": Case(None, ledger=[("2026-02-27", "charge", "rent", "1000")]),
    "charged-today": Case(True, ledger=[("2026-08-31", "charge", "rent", "1000")]),
    "charged-tomorrow": Case(None, ledger=[("2026-09-01", "charge", "rent", "1000")]),
    "paid-today": Case(ledger=[PAID[0], ("2026-08-31", "payment", "rent", "1000")]),
    "paid-tomorrow": Case(True, ledger=[PAID[0], ("2026-09-01", "payment", "rent", "1000")]),
    "paid-before-the-window": Case(True, ledger=[PAID[0], ("2026-02-27", "payment", "rent", "1000")]),
    # -- by amount
    "paid-in-parts": Case(ledger=[PAID[0], *paid_on("2026-08-02", "2026-08-20", amount="500")]),
    "a-part-missing": Case(True, ledger=[PAID[0], *paid_on("2026-08-02", amount="500")]),
    "a-dollar-short": Case(ledger=[PAID[0], *paid_on("2026-08-02", amount="999")]),
    "a-cent-more-short": Case(True, ledger=[PAID[0], *paid_on("2026-08-02", amount="998.99")]),
    "paid-in-advance": Case(ledger=[PAID[0], *paid_on("2026-03-15", amount="6000")]),
    "a-payment-returned": Case(True, ledger=[*PAID, ("2026-08-09", "payment", "rent", "-1000")]),
    "a-charge-taken-back": Case(ledger=[PAID[0], ("2026-08-02", "charge", "rent", "-1000")]),
    # -- payments without charges: six months' rent is due
    "six-payments": Case(ledger=paid_on(*MONTHS)),
    "five-payments": Case(True, ledger=paid_on(*MONTHS[1:])),
    "one-payment-of-six-months": Case(ledger=paid_on("2026-04-01", amount="6000")),
    "five-whole-months-paid-four": Case(
        True, expiry=40, ledger=paid_on(*MONTHS[:4]), leases=[("2026-03-01", "2026-07-31", "1000")],
        offers=[("pending", "2026-05-01T12:00:00Z", "", "0")],
    ),
    "five-whole-months-paid-five": Case(
        expiry=40, ledger=paid_on(*MONTHS[:5]), leases=[("2026-03-01", "2026-07-31", "1000")],
        offers=[("pending", "2026-05-01T12:00:00Z", "", "0")],
    ),
    # -- what is no rent
    "no-rows": Case(None, ledger=[]),
    "parking-alone": Case(ledger=[("2026-08-01", "charge", "parking", "90")]),
    "parking-unpaid": Case(ledger=[*PAID, ("2026-08-01", "charge", "parking", "90")]),
    "a-late-fee": Case(True, ledger=[*PAID, ("2026-08-06", "charge", "late_fee", "50")]),
    "a-late-fee-long-ago": Case(ledger=[*PAID, ("2026-02-27", "charge", "late_fee", "50")]),
    "a-late-fee-taken-back": Case(ledger=[
        *PAID, ("2026-08-06", "charge", "late_fee", "50"), ("2026-08-07", "charge", "late_fee", "-50"),
    ]),
    "an-old-late-fee-taken-back": Case(ledger=[*PAID, ("2026-08-07", "charge", "late_fee", "-50")]),
    # -- offers
    "no-offer": Case(no_offer=True, offers=[]),
    "accepted": Case(offers=[("accepted", "2026-08-01T12:00:00Z", "2026-08-10", "0")]),
    "declined": Case(no_offer=True, offers=[("declined", "2026-08-01T12:00:00Z", "", "0")]),
    "expired": Case(no_offer=True, offers=[("expired", "2026-08-01T12:00:00Z", "", "0")]),
    "declined-and-made-anew": Case(offers=[("declined", "2026-08-01T12:00:00Z", "", "0"), OFFERED]),
    "pending-past-its-last-day": Case(
        no_offer=True, offers=[("pending", "2026-08-01T12:00:00Z", "2026-08-30", "0")],
    ),
    "pending-on-its-last-day": Case(offers=[("pending", "2026-08-01T12:00:00Z", "2026-08-31", "0")]),
    "made-before-the-lease": Case(no_offer=True, offers=[("accepted", "2024-12-31T12:00:00Z", "", "0")]),
    "made-late-today-in-new-york": Case(offers=[("pending", "2026-09-01T03:59:59Z", "", "0")]),
    "made-tomorrow-in-new-york": Case(no_offer=True, offers=[("pending", "2026-09-01T04:00:00Z", "", "0")]),
    "made-on-the-lease's-first-day": Case(offers=[("pending", "2025-01-01T05:00:00Z", "", "0")]),
    "made-the-evening-before": Case(no_offer=True, offers=[("pending", "2025-01-01T04:59:59Z", "", "0")]),
    "for-an-older-lease": Case(
        no_offer=True, leases=[LEASE, ("2024-01-01", "2024-12-31", "900")],
        offers=[("pending", "2026-08-01T12:00:00Z", "", "1")],
    ),
    # -- leases
    "ends-today": Case(expiry=40, leases=[("2025-09-01", "2026-08-31", "1000")]),
    "ended-yesterday": Case(expiry=40, leases=[("2025-09-01", "2026-08-30", "1000")]),
    "ends-in-thirty-days": Case(expiry=38, leases=[("2025-09-01", "2026-09-30", "1000")]),
    "ends-in-thirty-one-days": Case(expiry=32, leases=[("2025-09-01", "2026-10-01", "1000")]),
    "month-to-month": Case(expiry=28, kind="month_to_month", leases=[("2025-01-01", "", "1000")]),
    "two-active-leases": Case(leases=[LEASE, ("2024-01-01", "2026-09-01", "500")]),
    "the-next-lease-is-signed": Case(
        expiry=38, leases=[("2025-09-15", "2026-09-14", "1000"), ("2026-09-15", "2027-09-14", "100")],
    ),
    "a-lease-in-the-future-alone": Case(
        no_offer=True, leases=[("2026-10-01", "2027-12-31", "1000")], ledger=[], delinquent=None,
    ),
    # -- market rent
    "no-prices": Case(market=None, prices=[]),
    "a-tenth-above": Case(prices=[("2026-01-01", "1100")]),
    "a-cent-more": Case(market=True, prices=[("2026-01-01", "1100.01")]),
    "dearer-from-today": Case(market=True, prices=[("2026-01-01", "1000"), ("2026-08-31", "1200")]),
    "dearer-from-tomorrow": Case(prices=[("2026-01-01", "1000"), ("2026-09-01", "1200")]),
    "cheaper-since": Case(prices=[("2026-01-01", "1200"), ("2026-05-01", "1000")]),
    "priced-tomorrow-alone": Case(market=None, prices=[("2026-09-01", "1200")]),
    "two-prices-a-day": Case(prices=[("2026-08-01", "1000"), ("2026-08-01", "1200")]),
}  # fmt: skip


class Files:
    """Rows of the platform's tables, written as CSV files."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, str]]] = defaultdict(list)

    def property(self, id: str, zone: str) -> None:
        self.rows["properties"].append({"id": id, "name": f"House {id}", "time_zone": zone})

    def resident(self, property_id: str, id: str, case: Case) -> None:
        at = {"property_id": property_id}
        of = {**at, "resident_id": id}
        self.rows["units"].append({**at, "id": f"unit-{id}", "unit_number": id[:20]})
        self.rows["residents"].append(
            {**at, "id": id, "unit_id": f"unit-{id}", "first_name": id, "last_name": "Case"}
        )
        for n, (start, end, rent) in enumerate(case.leases):
            days = {"lease_start_date": start, "lease_end_date": end, "monthly_rent": rent}
            self.rows["leases"].append({**of, "id": f"lease-{id}-{n}", "lease_type": case.kind, **days})
        for n, (day, kind, code, amount) in enumerate(case.ledger):
            row = {"transaction_type": kind, "charge_code": code, "amount": amount, "transaction_date": day}
            self.rows["resident_ledger"].append({**of, "id": f"entry-{id}-{n}", **row})
        for n, (status, made, last, lease) in enumerate(case.offers):
            row = {"status": status, "created_at": made, "offer_expiration_date": last}
            lease_id = f"lease-{id}-{lease}"
            self.rows["renewal_offers"].append({**of, "id": f"offer-{id}-{n}", "lease_id": lease_id, **row})
        for n, (day, rent) in enumerate(case.prices):
            row = {"base_rent": rent, "market_rent": rent, "effective_date": day}
            self.rows["unit_pricing"].append({"id": f"price-{id}-{n}", "unit_id": f"unit-{id}", **row})

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        for table, rows in self.rows.items():
            with (folder / f"{table}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        return folder


REFERENCE_DAY: Final = date(2026, 3, 1)


def reference(files: Files) -> None:
    """The four of the specification, as their platform would hand them over."""
    months = [months_before(REFERENCE_DAY, n).isoformat() for n in (1, 2, 3, 4, 5, 6)]
    price = [("2025-12-01", "1600")]

    def lease(days: int, rent: str) -> Sequence[Lease]:
        return [("2025-03-01", (REFERENCE_DAY + timedelta(days=days)).isoformat(), rent)]

    files.property("reference", "UTC")
    offers = [("pending", "2026-02-01T00:00:00Z", "", "0")]
    people = {
        "jane": Case(leases=lease(45, "1400"), ledger=paid_on(*months, amount="1400"), offers=[]),
        "john": Case(leases=lease(60, "1500"), ledger=paid_on(*months[1:], amount="1500"), offers=[]),
        "alice": Case(leases=lease(180, "1600"), ledger=paid_on(*months, amount="1600"), offers=offers),
        "bob": Case(
            leases=[("2025-03-01", "", "1450")], kind="month_to_month",
            ledger=paid_on(*months, amount="1450"), offers=[],
        ),
    }  # fmt: skip
    for id, case in people.items():
        case.prices = price
        files.resident("reference", id, case)
