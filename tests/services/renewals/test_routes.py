"""The service over HTTP: calculating, looking at what was calculated, judging it."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest

from holdfast.services.renewals.domain.scoring import Thresholds
from holdfast.services.renewals.models import LeaseRow, RiskScore
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.store import Query, patch
from tests.services.renewals.calculation_fixtures import opened
from tests.services.renewals.flagged_property import flag
from tests.services.renewals.server import AS_OF, P, Person, Server, settle_in

CALCULATE = f"/properties/{P}/renewal-risk/calculate"


async def test_a_run_scores_the_reference_residents(server: Server) -> None:
    told = await server.calculate()
    assert told["totalResidents"] == 4
    assert (told["flaggedCount"], told["riskTiers"]) == (3, {"high": 1, "medium": 2, "low": 1})
    found = [(f["residentId"], f["riskScore"], f["riskTier"], f["daysToExpiry"]) for f in told["flags"]]
    assert found == [("john", 77, "high", 60), ("jane", 67, "medium", 45), ("bob", 63, "medium", None)]
    assert told["flags"][0]["signals"] == {
        "daysToExpiryDays": 60, "paymentHistoryDelinquent": True, "noRenewalOfferYet": True,
        "rentGrowthAboveMarket": False,
    }  # fmt: skip


async def test_a_job_is_accepted_and_its_progress_seen(server: Server) -> None:
    job = await server.post(CALCULATE, {"asOfDate": "2026-03-01"}, status=202)
    assert job["statusUrl"] == f"/renewals/api/v1/jobs/{job['jobId']}"
    ended = await server.renewals.jobs("-").wait(job["jobId"], within_s=30)
    assert ended.status == "completed"
    seen = await server.get(f"/jobs/{job['jobId']}")
    assert (seen["status"], seen["scored"], seen["residents"], seen["skipped"]) == ("completed", 4, 4, 0)


async def test_the_same_key_gives_the_same_job_and_another_request_under_it_is_refused(
    server: Server,
) -> None:
    headers = {"Idempotency-Key": "today"}
    first = await server.post(CALCULATE, {}, status=202, headers=headers)
    await server.renewals.jobs("-").wait(first["jobId"], within_s=30)
    again = await server.post(CALCULATE, {}, status=202, headers=headers)
    other = await server.post(CALCULATE, {}, status=202)
    assert again["jobId"] == first["jobId"] != other["jobId"]
    await server.post(CALCULATE, {"asOfDate": "2026-01-01"}, status=422, headers=headers)


async def test_pages_filter_and_sort(server: Server) -> None:
    await server.calculate()
    path = f"/properties/{P}/renewal-risk"
    high = await server.get(path + "?tier=high")
    assert [one["residentId"] for one in high["items"]] == ["john"]
    assert high["items"][0]["reasons"]["paymentHistoryDelinquent"]["points"] == 25
    soonest = await server.get(path + "?sort=days")
    assert [one["residentId"] for one in soonest["items"]] == ["bob", "jane", "john", "alice"]
    seen, cursor = [], ""
    for _ in range(4):
        page = await server.get(f"{path}?limit=1{cursor}")
        seen += [one["residentId"] for one in page["items"]]
        cursor = f"&cursor={page['cursor']}"
    assert seen == ["john", "jane", "bob", "alice"]


async def test_history_is_kept_for_every_run_and_tiers_stay_as_they_were(server: Server) -> None:
    await server.calculate()
    rules = {"thresholds": {"high": 60, "medium": 5}}
    status, _ = await server.ask("PUT", f"/properties/{P}/rules", json=rules)
    assert status == 200
    kept = await server.get("/residents/jane/risk-history")
    assert [(one["riskScore"], one["riskTier"]) for one in kept["items"]] == [(67, "medium")]
    await server.calculate(as_of=AS_OF + timedelta(days=20))
    kept = await server.get("/residents/jane/risk-history")
    assert [(one["riskScore"], one["riskTier"]) for one in kept["items"]] == [(98, "high"), (67, "medium")]
    old = await server.get(f"/properties/{P}/renewal-risk?asOf={AS_OF}")
    assert {one["residentId"]: one["riskTier"] for one in old["items"]}["jane"] == "medium"
    early = await server.get(f"/properties/{P}/renewal-risk?asOf=2020-01-01")
    assert (early["run"], early["items"]) == (None, [])
    newest, oldest = (await server.get(f"/properties/{P}/runs"))["items"]
    assert newest["calculatedAt"] > oldest["calculatedAt"]
    assert await server.get(f"/properties/{P}/renewal-risk?run={oldest['jobId']}") == old
    status, answer = await server.ask(
        "GET", f"/properties/{P}/renewal-risk?run={oldest['jobId']}&asOf={AS_OF}"
    )
    assert (status, "not by both" in answer["error"]["message"]) == (422, True)


async def test_a_day_is_answered_by_its_own_run_also_when_an_older_day_is_calculated_later(
    server: Server,
) -> None:
    for days in (0, 20, 10, 20):
        await server.calculate(as_of=AS_OF + timedelta(days=days))
    runs = (await server.get(f"/properties/{P}/runs"))["items"]
    for asked, said in ((0, 3), (9, 3), (10, 1), (19, 1), (20, 0), (99, 0)):
        page = await server.get(f"/properties/{P}/renewal-risk?asOf={AS_OF + timedelta(days=asked)}")
        assert page["run"] == runs[said], asked


async def test_a_run_of_another_property_or_one_that_did_not_end_is_none_of_this_property(
    server: Server,
) -> None:
    await settle_in(server.store, [], property_id="p-2")
    told = await server.calculate("p-2")
    for id in (told["jobId"], "run-lost", "__x__", ".."):
        status, answer = await server.ask("GET", f"/properties/{P}/renewal-risk", params={"run": id})
        assert (status, "choose one of its runs" in answer["error"]["message"]) == (404, True), answer


async def test_who_gave_notice_is_scored_and_said_who_left_is_not(server: Server) -> None:
    people = [
        Person("Nora", 100, 1_500, status="notice_given"),
        Person("Olaf", 50, 1_500, status="moved_out"),
    ]
    await settle_in(server.store, people, property_id="p-2")
    told = await server.calculate("p-2")
    assert told["totalResidents"] == 1
    page = await server.get("/properties/p-2/renewal-risk")
    assert [(one["residentId"], one["noticeGiven"]) for one in page["items"]] == [("nora", True)]


async def test_who_has_no_active_lease_is_skipped_and_counted(server: Server) -> None:
    await server.store.commit(patch(LeaseRow, "lease-jane", changes={"status": "terminated"}))
    told = await server.calculate()
    assert (told["totalResidents"], told["skipped"]) == (3, 1)


async def test_what_if_shows_other_tiers_and_stores_nothing(server: Server) -> None:
    await server.calculate()
    before = await server.store.count(
        Query(RiskScore).where("resident_id", "==", "jane").order_by("-calculated_at")
    )
    weights = {"expiry": 100, "delinquency": 0, "noOffer": 0, "marketRent": 0}
    told = await server.post(f"/properties/{P}/what-if", {"weights": weights})
    assert told["riskTiers"] == {"high": 3, "medium": 0, "low": 1}
    assert (told["before"], told["moved"]) == ({"high": 1, "medium": 2, "low": 1}, 2)
    after = await server.store.count(
        Query(RiskScore).where("resident_id", "==", "jane").order_by("-calculated_at")
    )
    assert before == after == 1


async def test_what_if_takes_as_much_memory_for_many_as_for_few(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await flag(store, high=1_500)
        await flag(store, high=12_000, property_id="p-2")
        portfolio, peaks = Portfolio(store.tenant("-")), []
        for property_id, residents in ((P, 1_500), ("p-2", 12_000)):
            tracemalloc.start()
            told = await portfolio.what_if(property_id, thresholds=Thresholds(high=100, medium=95))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert (told.moved, told.risk_tiers["low"]) == (residents, residents)
            assert len(told.examples) == 20
        assert peaks[1] < 1.5 * peaks[0]


async def test_outcomes_judge_the_scores(server: Server) -> None:
    await server.calculate()
    tomorrow = (server.runtime.clock.now() + timedelta(days=1)).date().isoformat()
    for who, what in (("john", "left"), ("alice", "renewed")):
        order = {"residentId": who, "leaseId": f"lease-{who}", "outcome": what, "decidedOn": tomorrow}
        made = await server.post("/outcomes", order, status=201)
        assert made["riskScore"] is not None
    told = await server.get("/calibration")
    assert (told["count"], told["left"], told["auc"]) == (2, 1, 1.0)
    assert told["brier"] == pytest.approx((0.23**2 + 0.08**2) / 2)
    assert sum(band["count"] for band in told["bands"]) == 2


async def test_the_portfolio_shows_every_property(server: Server) -> None:
    await settle_in(server.store, [], property_id="p-2")
    await server.calculate()
    shown = {one["propertyId"]: one for one in (await server.get("/portfolio"))["items"]}
    assert shown["p-2"]["latest"] is None
    assert (shown[P]["latest"]["high"], shown[P]["latest"]["totalResidents"]) == (1, 4)
