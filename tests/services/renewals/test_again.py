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
from tests.services.renewals.bed import Bed, P, Person, settle_in

TRIGGER: Final = f"/properties/{P}/residents/john/trigger-renewal-event"
MANY: Final = f"/properties/{P}/trigger-renewal-events"


async def again(bed: Bed) -> tuple[str, str]:
    """What one and many triggers are told of John, whose event is there."""
    one = await bed.post(TRIGGER)
    many = await bed.post(MANY, {"residents": ["john"]})
    assert many["items"][0]["eventId"] == one["eventId"]
    return one["status"], many["items"][0]["status"]


async def act(bed: Bed, what: str) -> None:
    status, _ = await bed.ask("POST", f"/properties/{P}/endpoint/act", json={"act": what, "reason": "test"})
    assert status == 200


async def test_a_trigger_tells_what_there_is_in_every_state(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    await act(bed, "pause")
    told = await bed.post(TRIGGER)
    id = told["deliveryId"]
    assert told["status"] == "created"
    assert await again(bed) == ("already queued", "already queued")  # pending
    # A dispatcher may have it in hand for a moment, to see that it can't be sent.
    await until_found(lambda: Deliveries(bed.store, models=OUTBOX_MODELS).cancel_one(id))
    assert (await bed.get(f"/deliveries/{id}"))["status"] == "cancelled"
    assert await again(bed) == ("re-queued", "already queued")
    bed.rms.trouble(InjectedFault(count=1, status=503, retry_after_s=2, delay_s=1.0))
    await act(bed, "resume")
    await bed.delivery(id, "sending")
    assert await again(bed) == ("already queued", "already queued")
    await bed.delivery(id, "failed")
    assert await again(bed) == ("already queued", "already queued")
    await bed.delivery(id, "delivered")
    assert await again(bed) == ("already delivered", "already delivered")
    assert [one.status for one in bed.rms.world.received] == [200]
    await bed.calculate()
    bed.rms.trouble(InjectedFault(count=1, status=400))
    next_one = await bed.post(TRIGGER)
    assert (next_one["status"], next_one["eventId"] == told["eventId"]) == ("created", False)
    await bed.delivery(next_one["deliveryId"], "dlq")
    one, other = await again(bed)
    assert (one, other.partition(" ")[0]) == ("re-queued", "already")
    await bed.delivery(next_one["deliveryId"], "delivered")


async def test_who_can_not_be_told_of_is_said_why(bed: Bed) -> None:
    people = [Person("Moved", 10, 1_400, status="moved_out"), Person("Elsa", 10, 1_400)]
    await settle_in(bed.store, people, property_id="p-2")
    await bed.endpoint()

    async def ask(who: str, property_id: str = P) -> tuple[int, str]:
        path = f"/properties/{property_id}/residents/{who}/trigger-renewal-event"
        status, answer = await bed.ask("POST", path)
        return status, str(answer.get("error", {}).get("message"))

    assert await ask("john") == (409, "property 'p-1' was not calculated yet; calculate it first")
    await bed.calculate()
    await bed.calculate("p-2")
    assert (await ask("nobody"))[0] == 404
    assert await ask("elsa") == (404, "no score of resident 'elsa' in the latest run")
    assert await ask("moved", "p-2") == (404, "no score of resident 'moved' in the latest run")
    assert await ask("alice") == (409, "resident 'alice' is not flagged: the latest run says low risk")
    assert (await ask("elsa", "p-2"))[0] == 409
    told = await bed.post(MANY, {"residents": ["alice", "elsa", "moved", "nobody", "jane"]})
    assert [one["residentId"] for one in told["items"]] == ["jane"]
    assert told["skipped"] == ["alice", "elsa", "moved", "nobody"]
    query = Query(DeliveryState).where("endpoint_id", "==", P).order_by("-created_at")
    assert [one.resident_id for one in (await bed.store.query(query)).docs] == ["jane"]


async def test_what_a_run_could_not_send_is_on_record_and_goes_out_once_the_rms_is_back(bed: Bed) -> None:
    await bed.endpoint()
    await bed.ask("PUT", f"/properties/{P}/rules", json={"send": "flagged"})
    await act(bed, "disable")
    run = await bed.calculate()
    assert (await bed.get(f"/jobs/{run['jobId']}"))["sent"] == 0
    skipped = (await bed.get(f"/properties/{P}/deliveries?status=skipped"))["items"]
    assert [one["reason"] for one in skipped] == ["the endpoint is disabled"] * 3
    assert (await bed.ask("POST", TRIGGER))[0] == 409
    await act(bed, "enable")
    assert (await bed.post(MANY))["counts"]["re-queued"] == 3
    for one in skipped:
        assert (await bed.delivery(one["id"], "delivered"))["eventId"] == one["eventId"]
    assert (await bed.get(f"/jobs/{(await bed.calculate())['jobId']}"))["sent"] == 3


async def test_a_dry_run_counts_what_then_happens(bed: Bed) -> None:
    await settle_in(bed.store, [Person(f"S{n}", 10, 1_400) for n in range(7)], property_id="p-2")
    for id in (P, "p-2"):
        await bed.calculate(id)
        await bed.ask("PUT", f"/properties/{id}/endpoint", json={"url": bed.rms.webhook_url(id)})
    bed.rms.run(Behave(failure_rate=1.0, failure_status=422))
    for id in (P, "p-2"):
        await bed.post(f"/properties/{id}/trigger-renewal-events", {})

    async def given_up() -> bool:
        return len((await bed.get("/dlq"))["items"]) == 10

    await until_found(given_up)
    letters = (await bed.get("/dlq"))["items"]
    resolved = next(one["id"] for one in letters if one["propertyId"] == "p-2")
    await bed.post(f"/dlq/{resolved}/resolve", {"note": "told them by telephone"})
    bed.rms.run(Behave())
    for body, count in (({"propertyId": "p-2"}, 6), ({}, 3)):
        would = await bed.post("/dlq/replay", {**body, "dryRun": True})
        did = await bed.post("/dlq/replay", {**body, "dryRun": False})
        assert (would["matched"], would["changed"], would["dryRun"]) == (count, 0, True)
        assert (did["matched"], did["changed"], did["dryRun"]) == (count, count, False)
        assert would["sample"] == did["sample"]

    async def arrived() -> bool:
        return bed.rms.world.counts()["accepted"] == 9

    await until_found(arrived)
    assert bed.rms.world.counts()["repeated"] == 0
    assert resolved not in {one.message_id for one in bed.rms.world.received if one.status == 200}


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


async def test_a_dead_letter_replays_and_an_arrived_event_is_known_months_later(bed: Bed) -> None:
    await bed.calculate()
    await bed.endpoint()
    bed.rms.trouble(InjectedFault(count=1, status=400))
    dead = await bed.post(TRIGGER)
    await bed.delivery(dead["deliveryId"], "dlq")
    arrived = await bed.post(f"/properties/{P}/residents/jane/trigger-renewal-event")
    await bed.delivery(arrived["deliveryId"], "delivered")
    async with days_on(str(bed.runtime.config.store), 300) as store:
        assert await store.privileged().expire(DeliveryState) == 0
    again = await bed.post(f"/properties/{P}/residents/jane/trigger-renewal-event")
    assert again["status"] == "already delivered"
    assert await bed.post(f"/dlq/{dead['deliveryId']}/replay") == {"id": dead["deliveryId"], "replayed": True}
    await bed.delivery(dead["deliveryId"], "delivered")
    # Nothing is kept for ever but what did not arrive.
    async with days_on(str(bed.runtime.config.store), 800) as store:
        assert await store.privileged().expire(DeliveryState) == 2
    letter = await bed.store.get(DeadLetterRow, dead["deliveryId"])
    assert letter is not None
    assert letter.doc.resolved
