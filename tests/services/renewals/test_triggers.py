"""Triggers over HTTP, and what becomes of their events: delivered, retried, dead, replayed."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from urllib.parse import quote

from holdfast.simulators.rms import Behave, InjectedFault
from tests.services.renewals.server import ENDPOINTS, P, Person, Server, settle_in

TRIGGER = f"/properties/{P}/residents/john/trigger-renewal-event"


async def test_an_event_is_delivered_signed_and_told_about(server: Server) -> None:
    await server.calculate()
    await server.endpoint()
    told = await server.post(TRIGGER)
    assert told["status"] == "created"
    delivered = await server.delivery(told["deliveryId"], "delivered")
    (got,) = server.rms.state.received
    assert (got.status, got.fault) == (200, "")
    assert got.headers["x-event-id"] == told["eventId"]
    assert got.headers["webhook-id"] == told["eventId"].replace(".", "%2E")
    assert got.headers["x-webhook-signature"].startswith("sha256=")
    assert got.body == delivered["payload"]
    assert (delivered["attemptCount"], delivered["attempts"][0]["status"]) == (1, 200)
    assert '"event":"renewal.risk_flagged"' in got.body
    again = await server.post(TRIGGER)
    assert (again["status"], again["eventId"]) == ("already delivered", told["eventId"])


async def test_fifty_triggers_at_once_make_one_event(server: Server) -> None:
    await server.calculate()
    await server.endpoint()
    told = await asyncio.gather(*(server.post(TRIGGER) for _ in range(50)))
    said = Counter(one["status"] for one in told)
    assert said["created"] == 1
    assert said["created"] + said["already queued"] + said["already delivered"] == 50
    assert len({one["eventId"] for one in told}) == 1
    await server.delivery(told[0]["deliveryId"], "delivered")
    assert len(server.rms.state.received) == 1


async def test_a_refused_event_is_a_dead_letter_that_replays_under_its_id(server: Server) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=400)
    told = await server.post(TRIGGER)
    dead = await server.delivery(told["deliveryId"], "dlq")
    assert (dead["attemptCount"], dead["reason"]) == (1, "HTTP 400")
    (letter,) = (await server.get(f"/dlq?propertyId={P}"))["items"]
    assert (letter["id"], letter["reason"], letter["resolved"]) == (told["deliveryId"], "HTTP 400", False)
    would = await server.post("/dlq/replay", {})
    assert (would["matched"], would["changed"], would["dryRun"]) == (1, 0, True)
    server.rms.run(Behave())
    assert (await server.post(TRIGGER))["status"] == "re-queued"
    arrived = await server.delivery(told["deliveryId"], "delivered")
    assert arrived["replayCount"] == 1
    assert len({one.message_id for one in server.rms.state.received}) == 1
    assert len({one.body for one in server.rms.state.received}) == 1
    assert (await server.get("/dlq"))["items"] == []
    assert (await server.get("/dlq?resolved=true"))["items"][0]["resolution"] == "replayed"


async def test_what_waits_in_all_properties_is_listed_by_the_platform(server: Server) -> None:
    await settle_in(server.store, [Person("Olga", 20, 1_400)], property_id="p-2")
    for id in (P, "p-2"):
        await server.calculate(id)
        await server.endpoint(id)
        await server.change_endpoint("pause", id, reason="maintenance")
    first = await server.post("/properties/p-2/residents/olga/trigger-renewal-event")
    second = await server.post(TRIGGER)
    # A dispatcher may have taken them before it heard of the pause, and gives them back.
    for told in (first, second):
        await server.delivery(told["deliveryId"], "pending")
    waiting = (await server.get("/api/v1/deliveries?outbox=renewals"))["items"]
    assert [(one["endpointId"], one["status"]) for one in waiting] == [(P, "pending"), ("p-2", "pending")]
    detail = await server.get(f"/api/v1/deliveries/renewals/{quote(second['deliveryId'])}")
    assert (detail["eventId"], detail["about"]["resident_id"]) == (second["eventId"], "john")
    await server.change_endpoint("resume", "p-2")
    await server.delivery(first["deliveryId"], "delivered")
    waiting = (await server.get("/api/v1/deliveries?outbox=renewals"))["items"]
    assert [one["id"] for one in waiting] == [second["deliveryId"]]


async def test_one_dead_letter_is_replayed_by_its_id_or_by_triggering_again(server: Server) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=404)
    report = await server.post(f"/properties/{P}/trigger-renewal-events", {"tier": "medium"})
    assert report["counts"] == {"created": 2, "already queued": 0, "already delivered": 0, "re-queued": 0}
    assert report["summary"] == "2 new events are in flight."
    one, two = [item["deliveryId"] for item in report["items"]]
    for id in (one, two):
        await server.delivery(id, "dlq")
    server.rms.run(Behave())
    assert await server.post(f"/dlq/{one}/replay") == {"id": one, "replayed": True}
    await server.delivery(one, "delivered")
    again = await server.post(
        f"/properties/{P}/trigger-renewal-events", {"residents": ["jane", "bob", "john"]}
    )
    assert again["summary"] == (
        "1 new event is in flight; 1 dead event is sent again; 1 was delivered before."
    )
    await server.delivery(two, "delivered")
    nobody = await server.post(f"/properties/{P}/trigger-renewal-events", {"residents": ["nobody"]})
    assert nobody["summary"] == "There was nobody to send."


async def test_a_dead_letter_is_resolved_without_being_sent(server: Server) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=404)
    two = (await server.post(TRIGGER))["deliveryId"]
    await server.delivery(two, "dlq")
    await server.resolve(two)
    assert (await server.get("/dlq"))["items"] == []


async def test_a_gone_receiver_disables_the_endpoint_and_says_so(server: Server) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=410)
    told = await server.post(TRIGGER)
    await server.delivery(told["deliveryId"], "dlq")
    async with asyncio.timeout(60):
        shown = await server.get(f"{ENDPOINTS}/{P}")
        while shown["status"] != "disabled":
            await asyncio.sleep(0.02)
            shown = await server.get(f"{ENDPOINTS}/{P}")
    assert "410" in shown["reason"]
    # Nobody is told that an event was created which would not be sent.
    status, answer = await server.ask("POST", f"/properties/{P}/residents/jane/trigger-renewal-event")
    assert (status, "endpoints enable p-1 --outbox renewals" in answer["error"]["message"]) == (409, True)


async def test_retry_after_is_waited_for(server: Server) -> None:
    await server.calculate()
    await server.endpoint()
    server.rms.inject(InjectedFault(count=1, status=429, retry_after_s=2))
    told = await server.post(TRIGGER)
    delivered = await server.delivery(told["deliveryId"], "delivered")
    first, second = delivered["attempts"]
    assert (first["status"], second["status"]) == (429, 200)
    assert _seconds(first["at"], second["at"]) >= 2.0


async def test_a_redirect_is_not_followed(server: Server) -> None:
    await server.calculate()
    await server.endpoint()
    server.rms.inject(InjectedFault(count=1, status=302))
    told = await server.post(TRIGGER)
    delivered = await server.delivery(told["deliveryId"], "delivered")
    assert [one["status"] for one in delivered["attempts"]] == [302, 200]


def _seconds(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


async def test_events_go_out_by_themselves_where_the_property_says_so(server: Server) -> None:
    await server.endpoint()
    await server.ask("PUT", f"/properties/{P}/rules", json={"send": "high"})
    await server.calculate()
    (sent,) = (await server.get(f"/properties/{P}/deliveries"))["items"]
    assert sent["residentId"] == "john"
    await server.delivery(sent["id"], "delivered")


async def test_without_a_run_or_an_endpoint_a_trigger_says_what_to_do(server: Server) -> None:
    status, answer = await server.ask("POST", TRIGGER)
    assert (status, "calculate it first" in answer["error"]["message"]) == (409, True)
    await server.calculate()
    status, answer = await server.ask("POST", TRIGGER)
    assert (status, "endpoints create" in answer["error"]["message"]) == (409, True)


async def test_figures_tell_of_attempts_and_jobs(server: Server) -> None:
    await server.calculate()
    await server.endpoint()
    told = await server.post(TRIGGER)
    await server.delivery(told["deliveryId"], "delivered")
    async with server.client.get("/metrics", headers={"authorization": f"Bearer {server.token}"}) as answer:
        text = await answer.text()
    assert 'holdfast_renewals_attempts_total{outcome="delivered"} 1.0' in text
    assert 'holdfast_renewals_calculations_total{outcome="carried"} 1.0' in text
