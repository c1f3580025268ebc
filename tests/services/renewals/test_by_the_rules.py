"""The rules through the whole service: CSV files in, a calculation over HTTP, each resident's reasons."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.services.renewals.dates import months_before
from holdfast.services.renewals.models import CalculationJob, Property
from holdfast.services.renewals.scoring import DELINQUENT, EXPIRY, MARKET, NO_OFFER
from holdfast.store import Query, patch
from holdfast.testing import ManualClock
from tests.services.renewals.bed import Bed, serving, settle_in
from tests.services.renewals.calculations import jobs_of, opened

# Six months before the last of August is the last of February; New York is four hours behind UTC then.
AS_OF: Final = date(2026, 8, 31)
ZONE: Final = "America/New_York"
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


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose store holds the files, taken in by the command."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    before = structlog.get_config()
    files = Files()
    reference(files)
    files.property("edges", ZONE)
    for id, case in CASES.items():
        files.resident("edges", id, case)
    told = CliRunner().invoke(app, ["renewals", "import", str(files.write(tmp_path / "files")), "--json"])
    structlog.configure(**before)
    # The second price of the same unit and day is the one bad row.
    assert told.exit_code == 1, (told.output, told.exception)
    return tmp_path


async def test_every_rule_holds_from_the_files_to_the_answer(imported: Path) -> None:
    async with serving(imported) as bed:
        told = await bed.calculate("edges", AS_OF)
        page = await bed.get("/properties/edges/renewal-risk?limit=500")
        found = {one["residentId"]: one for one in page["items"]}
        assert set(found) == set(CASES)
        wrong = {id: seen for id, case in CASES.items() if (seen := differs(found[id], case))}
        assert wrong == {}
        flagged = {id for id, case in CASES.items() if case.score >= 40}
        assert {one["residentId"] for one in told["flags"]} == flagged
        assert (told["totalResidents"], told["flaggedCount"]) == (len(CASES), len(flagged))


def differs(seen: Any, case: Case) -> Any:
    """What was found, where it is not what the case says."""
    values = seen["signals"]
    got = (seen["reasons"][EXPIRY]["points"], values[DELINQUENT], values[NO_OFFER], values[MARKET])
    assert seen["riskScore"] == sum(one["points"] for one in seen["reasons"].values())
    right = got == (case.expiry, case.delinquent, case.no_offer, case.market)
    return None if right and seen["riskScore"] == case.score else (got, seen["riskScore"])


async def test_the_reference_residents_score_as_written_from_the_files_to_the_flags(imported: Path) -> None:
    async with serving(imported) as bed:
        told = await bed.calculate("reference", REFERENCE_DAY)
        flags = [(one["residentId"], one["riskScore"], one["riskTier"]) for one in told["flags"]]
        assert flags == [("john", 77, "high"), ("jane", 67, "medium"), ("bob", 63, "medium")]
        assert told["riskTiers"] == {"high": 1, "medium": 2, "low": 1}
        by_john = told["flags"][0]
        assert (by_john["name"], by_john["unitId"], by_john["daysToExpiry"]) == ("john Case", "unit-john", 60)
        assert by_john["signals"] == {EXPIRY: 60, DELINQUENT: True, NO_OFFER: True, MARKET: False}
        page = await bed.get("/properties/reference/renewal-risk?tier=low")
        assert [(one["residentId"], one["riskScore"]) for one in page["items"]] == [("alice", 8)]
        same = await bed.post("/properties/reference/what-if")
        assert (same["riskTiers"], same["moved"]) == (told["riskTiers"], 0)


# Weights for expiry, delinquency, no offer, market rent; thresholds; who is in which tier then.
OTHER_RULES: Final = [
    ((100, 0, 0, 0), (70, 40), {"high": {"jane", "john", "bob"}, "medium": set(), "low": {"alice"}}),
    ((0, 100, 0, 0), (100, 1), {"high": {"john"}, "medium": set(), "low": {"jane", "bob", "alice"}}),
    ((0, 0, 0, 100), (50, 50), {"high": {"jane", "bob"}, "medium": set(), "low": {"john", "alice"}}),
    ((1, 33, 33, 33), (67, 66), {"high": {"jane", "john", "bob"}, "medium": set(), "low": {"alice"}}),
    ((40, 25, 20, 15), (67, 67), {"high": {"jane", "john"}, "medium": set(), "low": {"bob", "alice"}}),
    ((40, 25, 20, 15), (0, 0), {"high": {"jane", "john", "alice", "bob"}, "medium": set(), "low": set()}),
]


async def test_what_if_tells_what_a_run_by_those_rules_then_finds(imported: Path) -> None:
    async with serving(imported) as bed:
        await bed.calculate("reference", REFERENCE_DAY)
        for (expiry, delinquency, no_offer, market), (high, medium), tiers in OTHER_RULES:
            weights = {
                "expiry": expiry, "delinquency": delinquency, "noOffer": no_offer, "marketRent": market,
            }  # fmt: skip
            rules = {"weights": weights, "thresholds": {"high": high, "medium": medium}}
            before = await count_runs(bed)
            would = await bed.post("/properties/reference/what-if", rules)
            assert await count_runs(bed) == before
            assert (await bed.get("/properties/reference/rules"))["weights"]["expiry"] == 40
            status, _ = await bed.ask("PUT", "/properties/reference/rules", json=rules)
            assert status == 200
            done = await bed.calculate("reference", REFERENCE_DAY)
            assert would["riskTiers"] == done["riskTiers"] == {tier: len(who) for tier, who in tiers.items()}
            page = await bed.get("/properties/reference/renewal-risk")
            for tier, who in tiers.items():
                assert {one["residentId"] for one in page["items"] if one["riskTier"] == tier} == who
            for one in page["items"]:
                assert one["riskScore"] == sum(signal["points"] for signal in one["reasons"].values())
            await bed.ask("PUT", "/properties/reference/rules", json={})


async def test_what_if_leaves_the_propertys_own_rules_where_nothing_else_is_asked(imported: Path) -> None:
    async with serving(imported) as bed:
        own = {
            "weights": {"expiry": 10, "delinquency": 80, "noOffer": 5, "marketRent": 5},
            "thresholds": {"high": 60, "medium": 10},
        }
        await bed.ask("PUT", "/properties/reference/rules", json=own)
        done = await bed.calculate("reference", REFERENCE_DAY)
        path = "/properties/reference/what-if"
        same = await bed.post(path)
        assert (same["riskTiers"], same["moved"]) == (done["riskTiers"], 0)
        assert (await bed.post(path, {"weights": own["weights"]}))["moved"] == 0
        assert (await bed.post(path, {"thresholds": own["thresholds"]}))["moved"] == 0
        assert (await bed.post(path, {"thresholds": {"high": 0, "medium": 0}}))["riskTiers"]["high"] == 4


async def count_runs(bed: Bed) -> int:
    query = Query(CalculationJob).where("property_id", "==", "reference").where("status", "==", "completed")
    return await bed.store.count(query.order_by("-calculated_at"))


# A wall clock's day begins and ends at its own midnight, also where that day has 23 or 25 hours.
MIDNIGHTS: Final = [
    ("America/New_York", "2026-03-08T04:59:59Z", "2026-03-07"),
    ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-08"),
    ("America/New_York", "2026-03-09T03:59:59Z", "2026-03-08"),
    ("America/New_York", "2026-03-09T04:00:00Z", "2026-03-09"),
    ("America/New_York", "2026-11-01T03:59:59Z", "2026-10-31"),
    ("America/New_York", "2026-11-02T04:59:59Z", "2026-11-01"),
    ("America/New_York", "2026-11-02T05:00:00Z", "2026-11-02"),
    ("America/Santiago", "2026-09-06T03:59:59Z", "2026-09-05"),
    ("America/Santiago", "2026-09-06T04:00:00Z", "2026-09-06"),
    ("Asia/Kathmandu", "2026-02-28T18:14:59Z", "2026-02-28"),
    ("Asia/Kathmandu", "2026-02-28T18:15:00Z", "2026-03-01"),
    ("Australia/Lord_Howe", "2024-02-28T13:00:00Z", "2024-02-29"),
    ("", "2026-12-31T23:59:59Z", "2026-12-31"),
]


async def test_a_run_is_of_the_day_on_the_propertys_wall(sqlite_url: str) -> None:
    clock = ManualClock()
    async with opened(sqlite_url, clock=clock) as store:
        home = store.tenant("-")
        for n, (zone, at, day) in enumerate(MIDNIGHTS):
            clock.set(datetime.fromisoformat(at))
            await settle_in(home, [], property_id=f"p-{n}")
            await home.commit(patch(Property, f"p-{n}", changes={"time_zone": zone}))
            job = await jobs_of(store).start(f"p-{n}")
            assert job.as_of_date.isoformat() == day, (zone, at)
