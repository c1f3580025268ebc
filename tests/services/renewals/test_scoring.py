"""The score: the reference residents, a table of edge cases, and what holds for any resident."""

from __future__ import annotations

from datetime import date, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.services.renewals.domain.scoring import (
    DELINQUENT,
    EXPIRY,
    MARKET,
    NO_OFFER,
    SIGNALS,
    Facts,
    LeaseFacts,
    LeaseType,
    LedgerTotals,
    Offer,
    Rules,
    Thresholds,
    Weights,
    assess,
    counts,
    current_lease,
)
from tests.services.renewals.scored_resident import AS_OF, lease_from, payments, scored


def test_the_reference_residents_score_as_the_rules_say() -> None:
    jane = scored(days=45, rent="1400", offer=False, market="1600")
    john = scored(days=60, rent="1500", rows=payments("1500", how_many=5), offer=False, market="1600")
    alice = scored(days=180, rent="1600", offer=True, market="1600")
    bob = scored(days=None, rent="1450", type="month_to_month", offer=False, market="1600")
    found = [(one.score, one.tier) for one in (jane, john, alice, bob)]
    assert found == [(67, "medium"), (77, "high"), (8, "low"), (63, "medium")]


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
    with pytest.raises(msgspec.ValidationError, match=r"weights|int|unknown"):
        msgspec.convert(wrong, Weights)


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
    ledger = LedgerTotals()
    for _ in range(draw(st.integers(0, 8))):
        kind, code = (
            draw(st.sampled_from(["charge", "payment"])),
            draw(st.sampled_from(["rent", "late_fee", ""])),
        )
        ledger.add(kind, code, rows=1, cents=draw(MONEY))
    lease = LeaseFacts("l", start, end, draw(MONEY), type)
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
        sooner = LeaseFacts(lease.id, lease.start, lease.end - timedelta(days=40), lease.rent, lease.type)
        worse.append(Facts(sooner, ledger, one.has_offer, one.market_rent))
    return worse
