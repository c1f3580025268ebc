"""The score: the reference residents, a table of edge cases, and what holds for every resident."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import InvalidError
from holdfast.services.renewals.dates import months_before, whole_months
from holdfast.services.renewals.money import to_cents
from holdfast.services.renewals.scoring import (
    DELINQUENT,
    EXPIRY,
    MARKET,
    NO_OFFER,
    SIGNALS,
    Assessment,
    Facts,
    Lease,
    LeaseType,
    Ledger,
    Offer,
    Rules,
    Thresholds,
    Weights,
    assess,
    check_weights,
    counts,
    current_lease,
    rent_due,
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
    ledger = Ledger()
    for row in payments(rent) if rows is None else rows:
        ledger.add(row.kind, row.code, rows=1, cents=to_cents(row.amount))
    lease = Lease("lease-1", start, end, to_cents(rent), type)
    facts = Facts(lease, ledger, offer, None if market is None else to_cents(market))
    return assess(facts, as_of=as_of, rules=rules)


def test_the_reference_residents_score_as_the_rules_say() -> None:
    jane = scored(days=45, rent="1400", offer=False, market="1600")
    john = scored(days=60, rent="1500", rows=payments("1500", how_many=5), offer=False, market="1600")
    alice = scored(days=180, rent="1600", offer=True, market="1600")
    bob = scored(days=None, rent="1450", type="month_to_month", offer=False, market="1600")
    found = [(one.score, one.tier) for one in (jane, john, alice, bob)]
    assert found == [(67, "medium"), (77, "high"), (8, "low"), (63, "medium")]


# -- the edges of each signal ---------------------------------------------------------------------

EXPIRY_EDGES = [
    (-400, 40), (-1, 40), (0, 40), (1, 38), (29, 38), (30, 38), (31, 32), (45, 32), (60, 32), (61, 24),
    (90, 24), (91, 16), (120, 16), (121, 8), (180, 8), (181, 2), (365, 2), (3_650, 2),
]  # fmt: skip


@pytest.mark.parametrize(("days", "points"), EXPIRY_EDGES)
def test_points_for_expiry_grow_as_the_end_comes_near(days: int, points: int) -> None:
    found = scored(days=days)
    assert (found.signals[EXPIRY].points, found.days_to_expiry) == (points, days)


def test_a_lease_from_month_to_month_has_no_days_and_seven_tenths_of_the_points() -> None:
    for days in (None, -30, 10, 400):
        found = scored(days=days, type="month_to_month")
        assert (found.signals[EXPIRY].points, found.days_to_expiry) == (28, None)


LEDGERS: dict[str, tuple[list[Row], bool | None]] = {
    "no rows": ([], None),
    "six payments, no charges": (payments("1500"), False),
    "five payments, no charges": (payments("1500", how_many=5), True),
    "seven payments, no charges": (payments("1500", how_many=7), False),
    "charges and payments alike": ([Row("charge", "rent", "1500")] * 6 + payments("1500"), False),
    "charges, one payment missing": (
        [Row("charge", "rent", "1500")] * 6 + payments("1500", how_many=5), True,
    ),
    "charges alone": ([Row("charge", "rent", "1500")], True),
    "one charge, paid in parts": ([Row("charge", "rent", "1500"), *payments("750", how_many=2)], False),
    "one charge, a part missing": ([Row("charge", "rent", "1500"), *payments("700", how_many=2)], True),
    "a cent short is tolerated": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1499.99")], False),
    "the tolerance itself": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1499.00")], False),
    "a cent beyond it": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1498.99")], True),
    "overpaid": ([Row("charge", "rent", "1500"), Row("payment", "rent", "1600")], False),
    "a late fee although all is paid": ([*payments("1500"), Row("charge", "late_fee", "50")], True),
    "a late fee alone": ([Row("charge", "late_fee", "50")], True),
    "a late fee that was paid": (
        [*payments("1500"), Row("charge", "late_fee", "50"), Row("payment", "late_fee", "50")], True,
    ),
    "paying a late fee is no rent": (
        [*payments("1500", how_many=5), Row("payment", "late_fee", "1500")], True,
    ),
    "payments for nothing named are rent": ([Row("payment", "", "1500")] * 6, False),
    "parking alone says nothing of rent": ([Row("charge", "parking", "90")], False),
    "parking is no rent": ([Row("charge", "parking", "90"), *payments("1500")], False),
    "parking unpaid is not rent unpaid": ([Row("charge", "parking", "90"), *payments("1500")], False),
    "paying parking is no rent": (
        [*payments("1500", how_many=5), Row("payment", "parking", "1500")], True,
    ),
    "a late fee taken back": (
        [*payments("1500"), Row("charge", "late_fee", "50"), Row("charge", "late_fee", "-50")], False,
    ),
    "a late fee of long ago taken back": ([*payments("1500"), Row("charge", "late_fee", "-50")], False),
    "a returned payment": ([*payments("1500"), Row("payment", "rent", "-1500")], True),
    "a charge taken back": (
        [Row("charge", "rent", "1500"), Row("charge", "rent", "-1500")], False,
    ),
    "cents add up exactly": (
        [Row("charge", "rent", "0.30"), *[Row("payment", "rent", "0.10")] * 3], False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEDGERS)
def test_a_ledger_shows_who_pays_late(case: str) -> None:
    rows, late = LEDGERS[case]
    found = scored(rows=rows).signals[DELINQUENT]
    assert (found.value, found.points) == (late, 25 if late else 0)


def test_without_ledger_rows_there_is_no_data() -> None:
    assert scored(rows=[]).signals[DELINQUENT].sentence.startswith("No data")


def lease_from(start: str, end: str | None, *, type: LeaseType = "fixed") -> Lease:
    return Lease("l", date.fromisoformat(start), date.fromisoformat(end) if end else None, 100_000, type)


# As-of date, lease, months of rent that are due inside the six months before it.
MONTHS_DUE: dict[str, tuple[str, Lease, int]] = {
    "a lease as old as the window": ("2026-03-01", lease_from("2025-09-01", "2026-08-31"), 6),
    "a lease older than the window": ("2026-03-01", lease_from("2020-01-01", "2026-08-31"), 6),
    "as of the end of a long month": ("2026-08-31", lease_from("2020-01-01", "2026-12-31"), 6),
    "as of the end of February": ("2026-02-28", lease_from("2020-01-01", "2026-12-31"), 6),
    "as of leap day": ("2024-02-29", lease_from("2020-01-01", "2026-12-31"), 6),
    "six months after leap day": ("2024-08-29", lease_from("2020-01-01", "2026-12-31"), 6),
    "as of new year": ("2026-01-01", lease_from("2020-01-01", "2026-12-31"), 6),
    "begun two months ago": ("2026-03-01", lease_from("2026-01-01", "2026-12-31"), 2),
    "begun two months and a day ago": ("2026-03-02", lease_from("2026-01-01", "2026-12-31"), 2),
    "begun a day less than two months ago": ("2026-02-28", lease_from("2026-01-01", "2026-12-31"), 1),
    "begun on the 31st": ("2026-04-30", lease_from("2026-01-31", "2026-12-31"), 2),
    "begun today": ("2026-03-01", lease_from("2026-03-01", "2027-02-28"), 0),
    "begins tomorrow": ("2026-03-01", lease_from("2026-03-02", "2027-02-28"), 0),
    "ended a month ago": ("2026-03-01", lease_from("2020-01-01", "2026-02-01"), 5),
    "ended with the month before": ("2026-03-01", lease_from("2025-10-01", "2026-01-31"), 4),
    "ended yesterday": ("2026-03-01", lease_from("2025-03-01", "2026-02-28"), 6),
    "ended before the window": ("2026-03-01", lease_from("2020-01-01", "2025-06-30"), 0),
    "month to month past its first term": (
        "2026-03-01", lease_from("2020-01-01", "2021-01-01", type="month_to_month"), 6,
    ),
    "month to month without an end": ("2026-03-01", lease_from("2026-01-01", None, type="month_to_month"), 2),
}  # fmt: skip


@pytest.mark.parametrize("case", MONTHS_DUE)
def test_rent_is_due_for_the_months_of_the_lease_in_the_window(case: str) -> None:
    as_of, lease, months = MONTHS_DUE[case]
    assert rent_due(lease, date.fromisoformat(as_of)) == months * 100_000


MARKETS = [
    (None, None), ("1500", False), ("1649.99", False), ("1650", False), ("1650.01", True), ("9999", True),
    ("0", False),
]  # fmt: skip


@pytest.mark.parametrize(("market", "above"), MARKETS)
def test_market_rent_counts_when_it_is_more_than_a_tenth_above(
    market: str | None, above: bool | None
) -> None:
    found = scored(rent="1500", market=market).signals[MARKET]
    assert (found.value, found.points) == (above, 15 if above else 0)


def offer(status: str, made: str | None, expires: str | None = None, *, lease_id: str = "l") -> Offer:
    return Offer(
        lease_id, status, date.fromisoformat(made) if made else None,
        date.fromisoformat(expires) if expires else None,
    )  # fmt: skip


OFFERS: dict[str, tuple[Offer, bool]] = {
    "pending": (offer("pending", "2026-02-01"), True),
    "accepted": (offer("accepted", "2026-02-01"), True),
    "declined": (offer("declined", "2026-02-01"), False),
    "expired": (offer("expired", "2026-02-01"), False),
    "pending past its last day": (offer("pending", "2026-01-01", "2026-02-28"), False),
    "pending on its last day": (offer("pending", "2026-01-01", "2026-03-01"), True),
    "accepted before its last day": (offer("accepted", "2026-01-01", "2026-02-28"), True),
    "of another lease": (offer("pending", "2026-02-01", lease_id="old"), False),
    "made before the lease began": (offer("accepted", "2025-05-31"), False),
    "made the day the lease began": (offer("accepted", "2025-06-01"), True),
    "made after the as-of date": (offer("pending", "2026-03-02"), False),
    "made today": (offer("pending", "2026-03-01"), True),
    "made nobody knows when": (offer("pending", None), True),
}


@pytest.mark.parametrize("case", OFFERS)
def test_an_offer_counts_only_for_its_lease_and_time(case: str) -> None:
    made, expected = OFFERS[case]
    assert counts(made, lease_from("2025-06-01", "2026-05-31"), AS_OF) is expected


def test_an_offer_made_after_the_lease_ended_does_not_count() -> None:
    ended = lease_from("2025-01-01", "2025-12-31")
    assert not counts(offer("pending", "2026-01-01"), ended, AS_OF)
    assert counts(offer("pending", "2025-12-31"), ended, AS_OF)


def test_of_two_leases_the_newest_that_has_begun_is_scored() -> None:
    old, new = lease_from("2024-03-01", "2025-02-28"), lease_from("2025-03-01", "2026-02-28")
    later = lease_from("2026-03-02", "2027-03-01")
    assert current_lease([old, new], AS_OF) is new
    assert current_lease([new, later, old], AS_OF) is new
    assert current_lease([later], AS_OF) is later
    assert current_lease([], AS_OF) is None


# -- weights, thresholds, tiers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "tier"),
    [(69, "medium"), (70, "high"), (40, "medium"), (39, "low"), (0, "low")],
)
def test_tiers_begin_at_their_thresholds(points: int, tier: str) -> None:
    weights = Weights(expiry=100 - points, delinquency=0, no_offer=points, market_rent=0)
    # A far-away end gives a twentieth of its weight: take that away by making it nothing.
    found = scored(days=10_000, offer=False, rules=Rules(weights=weights))
    assert found.signals[NO_OFFER].points == points
    thresholds = Thresholds(high=70 + found.signals[EXPIRY].points, medium=40 + found.signals[EXPIRY].points)
    again = scored(days=10_000, offer=False, rules=Rules(weights=weights, thresholds=thresholds))
    assert again.tier == tier


def test_a_property_may_weigh_otherwise() -> None:
    heavy = Rules(weights=Weights(expiry=10, delinquency=80, no_offer=5, market_rent=5))
    assert scored(rows=payments("1500", how_many=1), rules=heavy).signals[DELINQUENT].points == 80


@pytest.mark.parametrize(
    "wrong",
    [{"expiry": 41}, {"expiry": -1, "noOffer": 61}, {"expiry": 1.5}, {"expiry": "40"}, {"colour": 5}],
    ids=["too much", "negative", "a fraction", "text", "unknown"],
)
def test_weights_that_are_no_shares_of_a_hundred_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidError, match=r"weights|int|unknown") as refusal:
        check_weights(wrong)
    assert refusal.value.path == "weights"


# -- months ---------------------------------------------------------------------------------------

BEFORE = [
    ("2026-08-31", 6, "2026-02-28"), ("2024-08-31", 6, "2024-02-29"), ("2024-02-29", 12, "2023-02-28"),
    ("2026-03-31", 1, "2026-02-28"), ("2026-01-15", 1, "2025-12-15"), ("2026-01-01", 0, "2026-01-01"),
    ("2026-05-31", 6, "2025-11-30"),
]  # fmt: skip


@pytest.mark.parametrize(("day", "months", "expected"), BEFORE)
def test_months_are_counted_back_to_a_day_that_exists(day: str, months: int, expected: str) -> None:
    assert months_before(date.fromisoformat(day), months) == date.fromisoformat(expected)


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(0, 120))
def test_counting_months_back_and_forth_agrees(day: date, months: int) -> None:
    assert whole_months(months_before(day, months), day) == months


# -- what holds for everybody ---------------------------------------------------------------------

MONEY = st.integers(0, 1_000_000)
SHARES = st.lists(st.integers(0, 100), min_size=3, max_size=3).map(sorted)


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    a, b, c = draw(SHARES)
    medium, high = sorted((draw(st.integers(0, 100)), draw(st.integers(0, 100))))
    weights = Weights(expiry=a, delinquency=b - a, no_offer=c - b, market_rent=100 - c)
    return Rules(weights, Thresholds(high=high, medium=medium), draw(MONEY))


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    start = draw(st.dates(date(2020, 1, 1), date(2026, 12, 31)))
    type: LeaseType = draw(st.sampled_from(["fixed", "month_to_month"]))
    days = draw(st.integers(-800, 800))
    end = None if type == "month_to_month" and draw(st.booleans()) else AS_OF + timedelta(days=days)
    ledger = Ledger()
    for _ in range(draw(st.integers(0, 8))):
        kind, code = (
            draw(st.sampled_from(["charge", "payment"])),
            draw(st.sampled_from(["rent", "late_fee", ""])),
        )
        ledger.add(kind, code, rows=1, cents=draw(MONEY))
    lease = Lease("l", start, end, draw(MONEY), type)
    return Facts(lease, ledger, draw(st.booleans()), draw(st.none() | MONEY))


@given(facts(), rules())
def test_a_score_is_the_sum_of_its_points_and_stays_in_range(one: Facts, by: Rules) -> None:
    found = assess(one, as_of=AS_OF, rules=by)
    assert set(found.signals) == set(SIGNALS)
    assert found.score == sum(signal.points for signal in found.signals.values())
    assert 0 <= found.score <= 100
    assert all(signal.sentence.endswith(".") for signal in found.signals.values())


@given(facts(), rules())
def test_more_risk_never_lowers_a_score(one: Facts, by: Rules) -> None:
    score = assess(one, as_of=AS_OF, rules=by).score
    for worse in more_at_risk(one):
        assert assess(worse, as_of=AS_OF, rules=by).score >= score


def more_at_risk(one: Facts) -> list[Facts]:
    """The same resident with one thing more against them."""
    lease, ledger = one.lease, one.ledger
    late = replace(ledger, rows=ledger.rows + 1, late_fees=ledger.late_fees + 1)
    unpaid = replace(ledger, paid=ledger.paid // 2)
    worse = [
        Facts(lease, one.ledger, False, one.market_rent),
        Facts(lease, unpaid, one.has_offer, one.market_rent),
    ]
    worse.append(Facts(lease, late, one.has_offer, one.market_rent))
    if one.market_rent is not None:
        worse.append(Facts(lease, ledger, one.has_offer, one.market_rent * 2))
    if lease.type == "fixed" and lease.end is not None and ledger.rent_charges:
        # Rent that nobody charged is due for the lease's months alone, so an earlier end lowers what is due.
        sooner = Lease(lease.id, lease.start, lease.end - timedelta(days=40), lease.rent, lease.type)
        worse.append(Facts(sooner, ledger, one.has_offer, one.market_rent))
    return worse
