"""The service over HTTP: calculating, looking, triggering, delivering, judging; and what is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.kit.access import Tokens
from holdfast.services.renewals.models import LeaseRow, RiskScore
from holdfast.services.renewals.routes import ROUTES
from holdfast.simulators.rms import Behave, Trouble
from holdfast.store import Query, patch
from tests.services.renewals.bed import AS_OF, Bed, P, Person, settle_in

CALCULATE = f"/properties/{P}/renewal-risk/calculate"
TRIGGER = f"/properties/{P}/residents/john/trigger-renewal-event"


async def test_a_run_scores_the_reference_residents(bed: Bed) -> None:
    told = await bed.calculate()
    assert told["totalResidents"] == 4
    assert (told["flaggedCount"], told["riskTiers"]) == (3, {"high": 1, "medium": 2, "low": 1})
    found = [(f["residentId"], f["riskScore"], f["riskTier"], f["daysToExpiry"]) for f in told["flags"]]
    assert found == [("john", 77, "high", 60), ("jane", 67, "medium", 45), ("bob", 63, "medium", None)]
    assert told["flags"][0]["signals"] == {
        "daysToExpiryDays": 60, "paymentHistoryDelinquent": True, "noRenewalOfferYet": True,
        "rentGrowthAboveMarket": False,
    }  # fmt: skip


async def test_a_job_is_accepted_and_its_progress_seen(bed: Bed) -> None:
    job = await bed.post(CALCULATE, {"asOfDate": "2026-03-01"}, status=202)
    assert job["statusUrl"] == f"/renewals/api/v1/jobs/{job['jobId']}"
    ended = await bed.renewals.portfolio("-").jobs.ended(job["jobId"], within_s=30)
    assert ended.status == "completed"
    seen = await bed.get(f"/jobs/{job['jobId']}")
    assert (seen["status"], seen["scored"], seen["residents"], seen["skipped"]) == ("completed", 4, 4, 0)


async def test_the_same_key_gives_the_same_job_and_another_request_under_it_is_refused(bed: Bed) -> None:
    headers = {"Idempotency-Key": "today"}
    first = await bed.post(CALCULATE, {}, status=202, headers=headers)
    await bed.renewals.portfolio("-").jobs.ended(first["jobId"], within_s=30)
    again = await bed.post(CALCULATE, {}, status=202, headers=headers)
    other = await bed.post(CALCULATE, {}, status=202)
    assert again["jobId"] == first["jobId"] != other["jobId"]
    await bed.post(CALCULATE, {"asOfDate": "2026-01-01"}, status=422, headers=headers)


async def test_pages_filter_and_sort(bed: Bed) -> None:
    await bed.calculate()
    path = f"/properties/{P}/renewal-risk"
    high = await bed.get(path + "?tier=high")
    assert [one["residentId"] for one in high["items"]] == ["john"]
    assert high["items"][0]["reasons"]["paymentHistoryDelinquent"]["points"] == 25
    soonest = await bed.get(path + "?sort=days")
    assert [one["residentId"] for one in soonest["items"]] == ["bob", "jane", "john", "alice"]
    seen, cursor = [], ""
    for _ in range(4):
        page = await bed.get(f"{path}?limit=1{cursor}")
        seen += [one["residentId"] for one in page["items"]]
        cursor = f"&cursor={page['cursor']}"
    assert seen == ["john", "jane", "bob", "alice"]


async def test_history_is_kept_for_every_run_and_tiers_stay_as_they_were(bed: Bed) -> None:
    await bed.calculate()
    rules = {"thresholds": {"high": 60, "medium": 5}}
    status, _ = await bed.ask("PUT", f"/properties/{P}/rules", json=rules)
    assert status == 200
    kept = await bed.get("/residents/jane/risk-history")
    assert [(one["riskScore"], one["riskTier"]) for one in kept["items"]] == [(67, "medium")]
    await bed.calculate(as_of=AS_OF + timedelta(days=20))
    kept = await bed.get("/residents/jane/risk-history")
    assert [(one["riskScore"], one["riskTier"]) for one in kept["items"]] == [(98, "high"), (67, "medium")]
    old = await bed.get(f"/properties/{P}/renewal-risk?asOf={AS_OF}")
    assert {one["residentId"]: one["riskTier"] for one in old["items"]}["jane"] == "medium"
    early = await bed.get(f"/properties/{P}/renewal-risk?asOf=2020-01-01")
    assert (early["run"], early["items"]) == (None, [])
    newest, oldest = (await bed.get(f"/properties/{P}/runs"))["items"]
    assert newest["calculatedAt"] > oldest["calculatedAt"]
    assert await bed.get(f"/properties/{P}/renewal-risk?run={oldest['jobId']}") == old
    status, answer = await bed.ask("GET", f"/properties/{P}/renewal-risk?run={oldest['jobId']}&asOf={AS_OF}")
    assert (status, "not by both" in answer["error"]["message"]) == (422, True)


async def test_a_day_is_answered_by_its_own_run_also_when_an_older_day_is_calculated_later(bed: Bed) -> None:
    for days in (0, 20, 10, 20):
        await bed.calculate(as_of=AS_OF + timedelta(days=days))
    runs = (await bed.get(f"/properties/{P}/runs"))["items"]
    for asked, said in ((0, 3), (9, 3), (10, 1), (19, 1), (20, 0), (99, 0)):
        page = await bed.get(f"/properties/{P}/renewal-risk?asOf={AS_OF + timedelta(days=asked)}")
        assert page["run"] == runs[said], asked


async def test_a_run_of_another_property_or_one_that_did_not_end_is_none_of_this_property(bed: Bed) -> None:
    await settle_in(bed.store, [], property_id="p-2")
    told = await bed.calculate("p-2")
    for id in (told["jobId"], "run-lost", "__x__", ".."):
        status, answer = await bed.ask("GET", f"/properties/{P}/renewal-risk", params={"run": id})
        assert (status, "choose one of its runs" in answer["error"]["message"]) == (404, True), answer


async def test_who_gave_notice_is_scored_and_said_who_left_is_not(bed: Bed) -> None:
    people = [
        Person("Nora", 100, 1_500, status="notice_given"),
        Person("Olaf", 50, 1_500, status="moved_out"),
    ]
    await settle_in(bed.store, people, property_id="p-2")
    told = await bed.calculate("p-2")
    assert told["totalResidents"] == 1
    page = await bed.get("/properties/p-2/renewal-risk")
    assert [(one["residentId"], one["noticeGiven"]) for one in page["items"]] == [("nora", True)]


async def test_who_has_no_active_lease_is_skipped_and_counted(bed: Bed) -> None:
    await bed.store.commit(patch(LeaseRow, "lease-jane", changes={"status": "terminated"}))
    told = await bed.calculate()
    assert (told["totalResidents"], told["skipped"]) == (3, 1)


async def test_an_event_is_delivered_signed_and_told_about(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    told = await bed.post(TRIGGER)
    assert told["status"] == "created"
    delivered = await bed.delivery(told["deliveryId"], "delivered")
    (got,) = bed.rms.world.received
    assert (got.status, got.fault) == (200, "")
    assert got.headers["x-event-id"] == told["eventId"] == got.headers["webhook-id"]
    assert got.headers["x-webhook-signature"].startswith("sha256=")
    assert got.body == delivered["payload"]
    assert (delivered["attemptCount"], delivered["attempts"][0]["status"]) == (1, 200)
    assert '"event":"renewal.risk_flagged"' in got.body
    again = await bed.post(TRIGGER)
    assert (again["status"], again["eventId"]) == ("already delivered", told["eventId"])


async def test_fifty_triggers_at_once_make_one_event(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    told = await asyncio.gather(*(bed.post(TRIGGER) for _ in range(50)))
    said = Counter(one["status"] for one in told)
    assert said["created"] == 1
    assert said["created"] + said["already queued"] + said["already delivered"] == 50
    assert len({one["eventId"] for one in told}) == 1
    await bed.delivery(told[0]["deliveryId"], "delivered")
    assert len(bed.rms.world.received) == 1


async def test_a_refused_event_is_a_dead_letter_that_replays_under_its_id(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint(failure_rate=1.0, failure_status=400)
    told = await bed.post(TRIGGER)
    dead = await bed.delivery(told["deliveryId"], "dlq")
    assert (dead["attemptCount"], dead["reason"]) == (1, "HTTP 400")
    (letter,) = (await bed.get(f"/dlq?propertyId={P}"))["items"]
    assert (letter["id"], letter["reason"], letter["resolved"]) == (told["deliveryId"], "HTTP 400", False)
    would = await bed.post("/dlq/replay", {})
    assert (would["matched"], would["changed"], would["dryRun"]) == (1, 0, True)
    bed.rms.run(Behave())
    assert (await bed.post(TRIGGER))["status"] == "re-queued"
    arrived = await bed.delivery(told["deliveryId"], "delivered")
    assert arrived["replayCount"] == 1
    assert len({one.message_id for one in bed.rms.world.received}) == 1
    assert len({one.body for one in bed.rms.world.received}) == 1
    assert (await bed.get("/dlq"))["items"] == []
    assert (await bed.get("/dlq?resolved=true"))["items"][0]["resolution"] == "replayed"


async def test_what_waits_in_all_properties_is_listed_the_next_to_be_tried_first(bed: Bed) -> None:
    await settle_in(bed.store, [Person("Olga", 20, 1_400)], property_id="p-2")
    for id in (P, "p-2"):
        await bed.calculate(id)
        await bed.endpoint(id)
        await bed.post(f"/properties/{id}/endpoint/act", {"act": "pause", "reason": "maintenance"})
    first = await bed.post("/properties/p-2/residents/olga/trigger-renewal-event")
    second = await bed.post(TRIGGER)
    # A dispatcher may have taken them before it heard of the pause, and gives them back.
    for told in (first, second):
        await bed.delivery(told["deliveryId"], "pending")
    waiting = (await bed.get("/deliveries"))["items"]
    assert [(one["propertyId"], one["status"]) for one in waiting] == [("p-2", "pending"), (P, "pending")]
    assert (await bed.get("/deliveries?waiting=due"))["items"] == waiting
    assert (await bed.get("/deliveries?waiting=later"))["items"] == []
    (named,) = (await bed.get("/deliveries", params={"eventId": second["eventId"]}))["items"]
    assert named["id"] == second["deliveryId"]
    assert (await bed.get("/deliveries?eventId=evt-lost"))["items"] == []
    await bed.post("/properties/p-2/endpoint/act", {"act": "resume"})
    await bed.delivery(first["deliveryId"], "delivered")
    assert [one["id"] for one in (await bed.get("/deliveries"))["items"]] == [second["deliveryId"]]


async def test_one_dead_letter_is_replayed_by_its_id_or_by_telling_again(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint(failure_rate=1.0, failure_status=404)
    report = await bed.post(f"/properties/{P}/trigger-renewal-events", {"tier": "medium"})
    assert report["counts"] == {"created": 2, "already queued": 0, "already delivered": 0, "re-queued": 0}
    assert report["summary"] == "2 new events are on their way."
    one, two = [item["deliveryId"] for item in report["items"]]
    for id in (one, two):
        await bed.delivery(id, "dlq")
    bed.rms.run(Behave())
    assert await bed.post(f"/dlq/{one}/replay") == {"id": one, "replayed": True}
    await bed.delivery(one, "delivered")
    again = await bed.post(f"/properties/{P}/trigger-renewal-events", {"residents": ["jane", "bob", "john"]})
    assert again["summary"] == (
        "1 new event is on its way; 1 that had been given up is sent again; 1 was delivered before."
    )
    await bed.delivery(two, "delivered")
    nobody = await bed.post(f"/properties/{P}/trigger-renewal-events", {"residents": ["nobody"]})
    assert nobody["summary"] == "There was nobody to tell of."


async def test_a_dead_letter_is_marked_as_dealt_with_without_being_sent(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint(failure_rate=1.0, failure_status=404)
    two = (await bed.post(TRIGGER))["deliveryId"]
    await bed.delivery(two, "dlq")
    await bed.post(f"/dlq/{two}/resolve", {"note": "told them by telephone"})
    assert (await bed.get("/dlq"))["items"] == []


async def test_a_gone_receiver_disables_the_endpoint_and_says_so(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint(failure_rate=1.0, failure_status=410)
    told = await bed.post(TRIGGER)
    await bed.delivery(told["deliveryId"], "dlq")
    async with asyncio.timeout(10):
        shown = await bed.get(f"/properties/{P}/endpoint")
        while shown["status"] != "disabled":
            await asyncio.sleep(0.02)
            shown = await bed.get(f"/properties/{P}/endpoint")
    assert "410" in shown["reason"]
    # Nobody is told that an event was created which would not be sent.
    status, answer = await bed.ask("POST", f"/properties/{P}/residents/jane/trigger-renewal-event")
    assert (status, "endpoints act p-1 enable" in answer["error"]["message"]) == (409, True)


async def test_retry_after_is_waited_for(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    bed.rms.trouble(Trouble(count=1, status=429, retry_after_s=2))
    told = await bed.post(TRIGGER)
    delivered = await bed.delivery(told["deliveryId"], "delivered")
    first, second = delivered["attempts"]
    assert (first["status"], second["status"]) == (429, 200)
    assert _seconds(first["at"], second["at"]) >= 2.0


async def test_a_redirect_is_not_followed(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    bed.rms.trouble(Trouble(count=1, status=302))
    told = await bed.post(TRIGGER)
    delivered = await bed.delivery(told["deliveryId"], "delivered")
    assert [one["status"] for one in delivered["attempts"]] == [302, 200]


def _seconds(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


async def test_events_go_out_by_themselves_where_the_property_says_so(bed: Bed) -> None:
    await bed.endpoint()
    await bed.ask("PUT", f"/properties/{P}/rules", json={"send": "high"})
    await bed.calculate()
    (sent,) = (await bed.get(f"/properties/{P}/deliveries"))["items"]
    assert sent["residentId"] == "john"
    await bed.delivery(sent["id"], "delivered")


async def test_what_if_shows_other_tiers_and_stores_nothing(bed: Bed) -> None:
    await bed.calculate()
    before = await bed.store.count(
        Query(RiskScore).where("resident_id", "==", "jane").order_by("-calculated_at")
    )
    weights = {"expiry": 100, "delinquency": 0, "noOffer": 0, "marketRent": 0}
    told = await bed.post(f"/properties/{P}/what-if", {"weights": weights})
    assert told["riskTiers"] == {"high": 3, "medium": 0, "low": 1}
    assert (told["before"], told["moved"]) == ({"high": 1, "medium": 2, "low": 1}, 2)
    after = await bed.store.count(
        Query(RiskScore).where("resident_id", "==", "jane").order_by("-calculated_at")
    )
    assert before == after == 1


async def test_outcomes_judge_the_scores(bed: Bed) -> None:
    await bed.calculate()
    tomorrow = (bed.runtime.clock.now() + timedelta(days=1)).date().isoformat()
    for who, what in (("john", "left"), ("alice", "renewed")):
        order = {"residentId": who, "leaseId": f"lease-{who}", "outcome": what, "decidedOn": tomorrow}
        made = await bed.post("/outcomes", order, status=201)
        assert made["riskScore"] is not None
    told = await bed.get("/calibration")
    assert (told["count"], told["left"], told["auc"]) == (2, 1, 1.0)
    assert told["brier"] == pytest.approx((0.23**2 + 0.08**2) / 2)
    assert sum(band["count"] for band in told["bands"]) == 2


async def test_the_portfolio_shows_every_property(bed: Bed) -> None:
    await settle_in(bed.store, [], property_id="p-2")
    await bed.calculate()
    shown = {one["propertyId"]: one for one in (await bed.get("/portfolio"))["items"]}
    assert shown["p-2"]["latest"] is None
    assert (shown[P]["latest"]["high"], shown[P]["latest"]["totalResidents"]) == (1, 4)


# -- refusals -------------------------------------------------------------------------------------

OUTCOME = {"residentId": "nobody", "leaseId": "l", "outcome": "left", "decidedOn": "2026-03-01"}
NOT_THERE = [
    ("POST", "/properties/nowhere/renewal-risk/calculate", {}),
    ("GET", "/jobs/run-nothing", None),
    ("GET", "/trigger-jobs/run-nothing", None),
    ("GET", "/trigger-jobs/__x__", None),
    ("GET", "/properties/nowhere/renewal-risk", None),
    ("GET", "/residents/nobody/risk-history", None),
    ("POST", "/properties/nowhere/residents/john/trigger-renewal-event", {}),
    ("POST", f"/properties/{P}/residents/nobody/trigger-renewal-event", {}),
    ("POST", "/properties/nowhere/trigger-renewal-events", {"tier": "high"}),
    ("GET", "/properties/nowhere/deliveries", None),
    ("GET", "/deliveries/nothing", None),
    ("GET", "/deliveries/__x__", None),
    ("GET", "/jobs/%01", None),
    ("GET", f"/properties/{'x' * 600}/renewal-risk", None),
    ("GET", "/residents/__x__/risk-history", None),
    ("POST", "/properties/__x__/renewal-risk/calculate", {}),
    ("POST", f"/properties/{P}/residents/__x__/trigger-renewal-event", {}),
    ("POST", "/dlq/__x__/replay", {}),
    ("POST", "/dlq/__x__/resolve", {"note": "x"}),
    ("POST", "/dlq/nothing/replay", {}),
    ("POST", "/dlq/nothing/resolve", {"note": "x"}),
    ("POST", "/properties/nowhere/what-if", {}),
    ("GET", "/calibration?propertyId=nowhere", None),
    ("GET", "/properties/nowhere/endpoint", None),
    ("PUT", "/properties/nowhere/endpoint", {"url": "https://rms.example/1"}),
    ("POST", "/properties/nowhere/endpoint/rotate", {}),
    ("POST", "/properties/nowhere/endpoint/act", {"act": "pause"}),
    ("GET", "/properties/nowhere/rules", None),
    ("PUT", "/properties/nowhere/rules", {}),
    ("POST", "/outcomes", OUTCOME),
]

WRONG: list[tuple[str, str, Any, str]] = [
    ("POST", CALCULATE, {"asOfDate": "soon"}, "asOfDate"),
    ("POST", CALCULATE, {"asOfDate": 5}, "asOfDate"),
    ("POST", CALCULATE, {"asOfDate": "0001-01-01"}, "asOfDate"),
    ("POST", CALCULATE, {"colour": "red"}, "colour"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"tier": "huge"}, "tier"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"residents": []}, "residents"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"tier": "high", "residents": ["jane"]}, "not both"),
    ("POST", f"/properties/{P}/what-if", {"weights": {"expiry": 99}}, "weights"),
    ("POST", f"/properties/{P}/what-if", {"thresholds": {"high": 300}}, "high"),
    ("POST", "/dlq/replay", {"dryRun": "perhaps"}, "dryRun"),
    ("POST", "/outcomes", {"residentId": "jane"}, "leaseId"),
    ("POST", "/outcomes", {**OUTCOME, "outcome": "fled"}, "outcome"),
    ("PUT", f"/properties/{P}/endpoint", {"url": "javascript:alert(1)"}, "url"),
    ("PUT", f"/properties/{P}/endpoint", {}, "url"),
    ("PUT", f"/properties/{P}/rules", {"send": "all"}, "send"),
    ("POST", f"/properties/{P}/endpoint/act", {"act": "explode"}, "act"),
    ("GET", f"/properties/{P}/renewal-risk?tier=huge", None, "tier"),
    ("GET", f"/properties/{P}/renewal-risk?limit=0", None, "limit"),
    ("GET", f"/properties/{P}/renewal-risk?asOf=soon", None, "asOf"),
    ("GET", f"/properties/{P}/renewal-risk.csv?asOf=soon", None, "asOf"),
    ("GET", f"/properties/{P}/deliveries?status=lost", None, "status"),
    ("GET", "/deliveries?waiting=always", None, "waiting"),
]  # fmt: skip


async def test_what_is_not_there_is_404_and_what_does_not_fit_is_422_with_its_field(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    for method, path, body in NOT_THERE:
        status, answer = await bed.ask(method, path, json=body)
        assert (status, answer["error"]["code"]) == (404, "not_found"), (method, path, answer)
    for method, path, body, field in WRONG:
        status, answer = await bed.ask(method, path, json=body)
        assert status == 422, (method, path, body, answer)
        assert field in str(answer["error"]), (method, path, body, answer)
    status, answer = await bed.ask("GET", f"/properties/{P}/renewal-risk?cursor=nonsense")
    assert (status, answer["error"]["code"]) == (400, "bad_cursor")


async def test_without_a_run_or_an_endpoint_a_trigger_says_what_to_do(bed: Bed) -> None:
    status, answer = await bed.ask("POST", TRIGGER)
    assert (status, "calculate it first" in answer["error"]["message"]) == (409, True)
    await bed.calculate()
    status, answer = await bed.ask("POST", TRIGGER)
    assert (status, "endpoints set" in answer["error"]["message"]) == (409, True)


async def test_another_portfolio_sees_nothing_of_this_one(bed: Bed) -> None:
    await bed.calculate()
    bed.token = await Tokens(bed.runtime.store).create("other", role="admin", tenant_id="acme")
    assert (await bed.get("/portfolio"))["items"] == []
    for path in (f"/properties/{P}/renewal-risk", "/residents/jane/risk-history"):
        status, _ = await bed.ask("GET", path)
        assert status == 404


def test_every_route_says_what_it_does_with_an_example() -> None:
    for route in ROUTES:
        assert "Example:" in (route.fn.__doc__ or ""), route.paths


async def test_figures_tell_of_attempts_and_jobs(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    told = await bed.post(TRIGGER)
    await bed.delivery(told["deliveryId"], "delivered")
    async with bed.client.get("/metrics", headers={"authorization": f"Bearer {bed.token}"}) as answer:
        text = await answer.text()
    assert 'holdfast_renewals_attempts_total{outcome="delivered"} 1.0' in text
    assert 'holdfast_renewals_calculations_total{outcome="carried"} 1.0' in text
