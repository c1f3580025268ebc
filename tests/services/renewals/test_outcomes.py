"""What became of residents, and what the scores were worth: which score is judged, and by which numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.services.renewals.domain.calibration import Judged, calibrate
from holdfast.services.renewals.domain.money import amount_of
from holdfast.services.renewals.domain.scoring import SIGNALS, Signal
from holdfast.services.renewals.models import LeaseRow, Outcome, Property, RiskScore
from holdfast.services.renewals.queries.outcomes import Outcomes
from holdfast.store import Query, Store, create, patch
from tests.services.renewals.calculation_fixtures import opened
from tests.services.renewals.server import P, Person, Server, settle_in

# -- the numbers ----------------------------------------------------------------------------------


def auc_by_pairs(judged: list[Judged]) -> float | None:
    """The area under the ROC curve: the share of (left, stayed) pairs in the right order, ties half."""
    left = [one.score for one in judged if one.left]
    stayed = [one.score for one in judged if not one.left]
    if not left or not stayed:
        return None
    won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in product(left, stayed))
    return won / (len(left) * len(stayed))


def auc_by_curve(judged: list[Judged]) -> float:
    """The same as trapezoids under the curve of true against false positive rates."""
    left = sum(one.left for one in judged)
    stayed = len(judged) - left
    curve = [(0.0, 0.0)]
    for threshold in sorted({one.score for one in judged}, reverse=True):
        above = [one for one in judged if one.score >= threshold]
        hits = sum(one.left for one in above)
        curve.append(((len(above) - hits) / stayed, hits / left))
    steps = pairwise(curve)
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in steps)


def brier_by_mean(judged: list[Judged]) -> float:
    """The mean squared difference between the foretold share and what happened."""
    return sum((one.score / 100 - one.left) ** 2 for one in judged) / len(judged)


JUDGED: Final = st.lists(st.builds(Judged, st.integers(0, 100), st.booleans()), max_size=40)


@given(JUDGED)
def test_brier_and_auc_are_what_their_definitions_say(judged: list[Judged]) -> None:
    found = calibrate(judged)
    assert found.auc == (None if auc_by_pairs(judged) is None else pytest.approx(auc_by_pairs(judged)))
    if found.auc is not None:
        assert found.auc == pytest.approx(auc_by_curve(judged))
    assert found.brier == (pytest.approx(brier_by_mean(judged)) if judged else None)
    assert (found.count, found.left) == (len(judged), sum(one.left for one in judged))


@given(JUDGED)
def test_every_score_is_in_one_band(judged: list[Judged]) -> None:
    bands = calibrate(judged).bands
    assert [(one.low, one.high) for one in bands] == [(n, n + 9) for n in range(0, 90, 10)] + [(90, 100)]
    for band in bands:
        inside = [one for one in judged if band.low <= one.score <= band.high]
        assert (band.count, band.left) == (len(inside), sum(one.left for one in inside))
        assert band.rate == (band.left / band.count if inside else None)


# Scores of who left, of who stayed; AUC and Brier by hand.
BY_HAND: Final = [
    ([], [], None, None),
    ([100], [], None, 0.0),
    ([], [100], None, 1.0),
    ([50], [50], 0.5, 0.25),
    ([80, 40], [40, 20], 0.875, (0.04 + 0.36 + 0.16 + 0.04) / 4),
    ([10], [90], 0.0, 0.81),
    ([70, 70, 70], [70], 0.5, (3 * 0.09 + 0.49) / 4),
]


@pytest.mark.parametrize(("left", "stayed", "auc", "brier"), BY_HAND)
def test_the_numbers_agree_with_a_hand(
    left: list[int], stayed: list[int], auc: float | None, brier: float | None
) -> None:
    found = calibrate([*(Judged(s, True) for s in left), *(Judged(s, False) for s in stayed)])
    assert found.auc == auc
    assert found.brier == (None if brier is None else pytest.approx(brier))


# -- which score is judged ------------------------------------------------------------------------


def score(at: str, points: int, *, lease_id: str = "lease-jane") -> RiskScore:
    return RiskScore(
        property_id=P, resident_id="jane", lease_id=lease_id, unit_id="u", name="Jane", notice_given=False,
        as_of_date=date(2026, 3, 1), risk_score=points, risk_tier="low", days_to_expiry=9,
        signals={name: Signal(True, 0, "So it is.") for name in SIGNALS},
        calculated_at=datetime.fromisoformat(at),
    )  # fmt: skip


async def judged_by(store: Store, day: str, *, lease_id: str = "lease-jane") -> int | None:
    made = await Outcomes(store).build(
        "jane", lease_id, outcome="left", decided_on=date.fromisoformat(day)
    )  # fmt: skip
    return made.risk_score


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_the_last_score_of_the_lease_before_the_propertys_own_day_is_judged(
    engine: str, request: pytest.FixtureRequest
) -> None:
    async with opened(request.getfixturevalue(f"{engine}_url")) as store:
        home = store.tenant("-")
        await settle_in(home)
        await home.commit(patch(Property, P, changes={"time_zone": "America/New_York"}))
        next_lease = LeaseRow(
            id="lease-next", property_id=P, resident_id="jane", lease_start_date=date(2027, 1, 1),
            lease_end_date=date(2027, 12, 31), monthly_rent=amount_of(100_000),
        )  # fmt: skip
        await home.commit(create(next_lease))
        # The tenth of March begins in New York at four in UTC, the ninth at five: the clocks went on.
        for one in (
            score("2026-03-08T04:59:59Z", 10), score("2026-03-08T05:00:00Z", 20),
            score("2026-03-10T03:59:59Z", 30), score("2026-03-10T04:00:00Z", 40),
            score("2026-03-10T05:00:00Z", 50, lease_id="lease-next"),
        ):  # fmt: skip
            await home.commit(create(one))
        days = {"2026-03-07": None, "2026-03-08": 10, "2026-03-09": 20, "2026-03-10": 30, "2026-03-11": 40}
        assert {day: await judged_by(home, day) for day in days} == days
        assert await judged_by(home, "2026-03-11", lease_id="lease-next") == 50
        assert await judged_by(home, "2026-03-10", lease_id="lease-next") is None


async def test_an_outcome_said_again_is_corrected_and_counted_once(server: Server) -> None:
    await server.calculate()
    tomorrow = (server.runtime.clock.now() + timedelta(days=2)).date().isoformat()

    async def say(who: str, what: str, lease: str | None = None) -> tuple[int, Any]:
        order = {
            "residentId": who, "leaseId": lease or f"lease-{who}", "outcome": what, "decidedOn": tomorrow,
        }  # fmt: skip
        return await server.ask("POST", "/outcomes", json=order)

    for what in ("left", "left", "renewed", "left"):
        assert (await say("john", what))[0] == 201
    assert (await say("alice", "renewed"))[0] == 201
    told = await server.get(f"/calibration?propertyId={P}")
    assert (told["count"], told["left"], told["auc"]) == (2, 1, 1.0)
    assert (await say("john", "renewed"))[0] == 201
    told = await server.get("/calibration")
    assert (told["count"], told["left"], told["auc"]) == (2, 0, None)
    # Somebody else's lease is not theirs to end.
    assert (await say("john", "left", "lease-alice"))[0] == 404


async def test_two_outcomes_never_share_a_place(server: Server) -> None:
    """Ids may hold whatever joins them: a-and-b_c are others than a_b-and-c."""
    await settle_in(server.store, [Person("a", 10, 1_000), Person("a_b", 10, 1_000)], property_id="p-2")
    for resident, lease in (("a", "b_c"), ("a_b", "c")):
        row = LeaseRow(
            id=lease, property_id="p-2", resident_id=resident, lease_start_date=date(2026, 1, 1),
            lease_end_date=date(2026, 12, 31), monthly_rent=amount_of(100_000),
        )  # fmt: skip
        await server.store.commit(create(row))
        order = {"residentId": resident, "leaseId": lease, "outcome": "left", "decidedOn": "2026-03-01"}
        await server.post("/outcomes", order, status=201)
    query = Query(Outcome).where("property_id", "==", "p-2").order_by("-decided_on")
    assert await server.store.count(query) == 2


async def test_an_outcome_before_any_score_is_kept_and_not_judged(server: Server) -> None:
    order = {"residentId": "john", "leaseId": "lease-john", "outcome": "left", "decidedOn": "2026-03-01"}
    made = await server.post("/outcomes", order, status=201)
    assert (made["riskScore"], made["calculatedAt"]) == (None, None)
    await server.calculate()
    assert datetime.fromisoformat(made["recordedAt"]) <= datetime.now(UTC)
    told = await server.get("/calibration")
    assert (told["count"], told["brier"], told["auc"]) == (0, None, None)
    assert all(band["rate"] is None for band in told["bands"])
