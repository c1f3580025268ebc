"""Triggering and replaying what is there already, in every state of a delivery and long afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.kit.outbox import Deliveries
from holdfast.services.renewals.models import DOCUMENTS, OUTBOX_MODELS, DeadLetterRow, DeliveryState
from holdfast.simulators.rms import Behave, InjectedFault
from holdfast.store import Query, Store
from tests.kit.eventually import until_found
from tests.services.renewals.server import P, Person, Server, settle_in

TRIGGER: Final = f"/properties/{P}/residents/john/trigger-renewal-event"
MANY: Final = f"/properties/{P}/trigger-renewal-events"


async def again(server: Server) -> tuple[str, str]:
    """What one and many triggers are told of John, whose event is there."""
    one = await server.post(TRIGGER)
    many = await server.post(MANY, {"residents": ["john"]})
    assert many["items"][0]["eventId"] == one["eventId"]
    return one["status"], many["items"][0]["status"]


async def test_a_trigger_tells_what_there_is_in_every_state(server: Server) -> None:
    await server.calculate()
    await server.endpoint()
    await server.change_endpoint("pause")
    told = await server.post(TRIGGER)
    id = told["deliveryId"]
    assert told["status"] == "created"
    assert await again(server) == ("already queued", "already queued")  # pending
    # A dispatcher may have it in hand for a moment, to see that it can't be sent.
    await until_found(lambda: Deliveries(server.store, models=OUTBOX_MODELS).cancel_one(id))
    assert (await server.get(f"/deliveries/{id}"))["status"] == "cancelled"
    assert await again(server) == ("re-queued", "already queued")
    server.rms.inject(InjectedFault(count=1, status=503, retry_after_s=2, delay_s=1.0))
    await server.change_endpoint("resume")
    await server.delivery(id, "sending")
    assert await again(server) == ("already queued", "already queued")
    await server.delivery(id, "failed")
    assert await again(server) == ("already queued", "already queued")
    await server.delivery(id, "delivered")
    assert await again(server) == ("already delivered", "already delivered")
    assert [one.status for one in server.rms.state.received] == [200]
    await server.calculate()
    server.rms.inject(InjectedFault(count=1, status=400))
    next_one = await server.post(TRIGGER)
    assert (next_one["status"], next_one["eventId"] == told["eventId"]) == ("created", False)
    await server.delivery(next_one["deliveryId"], "dlq")
    one, other = await again(server)
    assert (one, other.partition(" ")[0]) == ("re-queued", "already")
    await server.delivery(next_one["deliveryId"], "delivered")


async def test_who_can_not_be_told_of_is_said_why(server: Server) -> None:
    people = [Person("Moved", 10, 1_400, status="moved_out"), Person("Elsa", 10, 1_400)]
    await settle_in(server.store, people, property_id="p-2")
    await server.endpoint()

    async def ask(who: str, property_id: str = P) -> tuple[int, str]:
        path = f"/properties/{property_id}/residents/{who}/trigger-renewal-event"
        status, answer = await server.ask("POST", path)
        return status, str(answer.get("error", {}).get("message"))

    assert await ask("john") == (409, "property 'p-1' was not calculated yet; calculate it first")
    await server.calculate()
    await server.calculate("p-2")
    assert (await ask("nobody"))[0] == 404
    assert await ask("elsa") == (404, "no score of resident 'elsa' in the latest run")
    assert await ask("moved", "p-2") == (404, "no score of resident 'moved' in the latest run")
    assert await ask("alice") == (409, "resident 'alice' is not flagged: the latest run says low risk")
    assert (await ask("elsa", "p-2"))[0] == 409
    told = await server.post(MANY, {"residents": ["alice", "elsa", "moved", "nobody", "jane"]})
    assert [one["residentId"] for one in told["items"]] == ["jane"]
    assert told["skipped"] == ["alice", "elsa", "moved", "nobody"]
    query = Query(DeliveryState).where("endpoint_id", "==", P).order_by("-created_at")
    assert [one.resident_id for one in (await server.store.query(query)).docs] == ["jane"]


async def test_what_a_run_could_not_send_is_on_record_and_goes_out_once_the_rms_is_back(
    server: Server,
) -> None:
    await server.endpoint()
    await server.ask("PUT", f"/properties/{P}/rules", json={"send": "flagged"})
    await server.change_endpoint("disable")
    run = await server.calculate()
    assert (await server.get(f"/jobs/{run['jobId']}"))["sent"] == 0
    skipped = (await server.get(f"/properties/{P}/deliveries?status=skipped"))["items"]
    assert [one["reason"] for one in skipped] == ["the endpoint is disabled"] * 3
    assert (await server.ask("POST", TRIGGER))[0] == 409
    await server.change_endpoint("enable")
    assert (await server.post(MANY, {"tier": "flagged"}))["counts"]["re-queued"] == 3
    for one in skipped:
        assert (await server.delivery(one["id"], "delivered"))["eventId"] == one["eventId"]
    assert (await server.get(f"/jobs/{(await server.calculate())['jobId']}"))["sent"] == 3


async def test_a_dry_run_counts_what_then_happens(server: Server) -> None:
    await settle_in(server.store, [Person(f"S{n}", 10, 1_400) for n in range(7)], property_id="p-2")
    for id in (P, "p-2"):
        await server.calculate(id)
        await server.create_endpoint(id, server.rms.webhook_url(id))
    server.rms.run(Behave(failure_rate=1.0, failure_status=422))
    for id in (P, "p-2"):
        await server.post(f"/properties/{id}/trigger-renewal-events", {"tier": "flagged"})

    async def given_up() -> bool:
        return len((await server.get("/dlq"))["items"]) == 10

    await until_found(given_up)
    letters = (await server.get("/dlq"))["items"]
    resolved = next(one["id"] for one in letters if one["propertyId"] == "p-2")
    await server.resolve(resolved)
    server.rms.run(Behave())
    for body, count in (({"propertyId": "p-2"}, 6), ({}, 3)):
        would = await server.post("/dlq/replay", {**body, "dryRun": True})
        did = await server.post("/dlq/replay", {**body, "dryRun": False})
        assert (would["matched"], would["changed"], would["dryRun"]) == (count, 0, True)
        assert (did["matched"], did["changed"], did["dryRun"]) == (count, count, False)
        assert would["sample"] == did["sample"]

    async def arrived() -> bool:
        return server.rms.state.counts()["accepted"] == 9

    await until_found(arrived)
    assert server.rms.state.counts()["repeated"] == 0
    assert resolved not in {one.message_id for one in server.rms.state.received if one.status == 200}


class Later(SystemClock):
    """The same clock, so many days on."""

    def __init__(self, days: int) -> None:
        self._us = timedelta(days=days) // timedelta(microseconds=1)

    def now_us(self) -> int:
        return super().now_us() + self._us


@asynccontextmanager
async def days_on(url: str, days: int) -> AsyncIterator[Store]:
    store = await open_store(url, list(dict.fromkeys([*DOCUMENTS, *OUTBOX_MODELS.all])), clock=Later(days))
    try:
        yield store
    finally:
        await store.close()


async def test_a_dead_letter_replays_and_an_arrived_event_is_known_months_later(
    server: Server,
) -> None:
    await server.calculate()
    await server.endpoint()
    server.rms.inject(InjectedFault(count=1, status=400))
    dead = await server.post(TRIGGER)
    await server.delivery(dead["deliveryId"], "dlq")
    arrived = await server.post(f"/properties/{P}/residents/jane/trigger-renewal-event")
    await server.delivery(arrived["deliveryId"], "delivered")
    async with days_on(str(server.runtime.config.store), 300) as store:
        assert await store.privileged().expire(DeliveryState) == 0
    again = await server.post(f"/properties/{P}/residents/jane/trigger-renewal-event")
    assert again["status"] == "already delivered"
    assert await server.post(f"/dlq/{dead['deliveryId']}/replay") == {
        "id": dead["deliveryId"],
        "replayed": True,
    }
    await server.delivery(dead["deliveryId"], "delivered")
    # Nothing is kept for ever but what did not arrive.
    async with days_on(str(server.runtime.config.store), 800) as store:
        assert await store.privileged().expire(DeliveryState) == 2
    letter = await server.store.get(DeadLetterRow, dead["deliveryId"])
    assert letter is not None
    assert letter.doc.resolved
