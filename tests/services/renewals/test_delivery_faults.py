"""Delivery under fire: an RMS that fails three in ten, refuses, resets and asks to wait; workers killed."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.kit.outbox import BreakerPolicy, Deliveries, EndpointSecrets, RetryPolicy, Selection, new_secret
from holdfast.kit.vault import Vault, new_key
from holdfast.services.renewals.domain.scoring import SIGNALS, Signal
from holdfast.services.renewals.jobs.risk_events import RiskEvents
from holdfast.services.renewals.models import (
    DOCUMENTS,
    EVENT_TYPE,
    OUTBOX_MODELS,
    DeliveryState,
    RiskScore,
    RmsEndpoint,
)
from holdfast.simulators.rms import Behave, InjectedFault, RmsSimulator
from holdfast.simulators.rms.state import ReceivedMessage
from holdfast.store import Query, Store, create
from tests.faults.controlled_process import ControlledProcess, run_processes
from tests.services.renewals.server import AS_OF, Server, settle_in
from tests.services.renewals.test_triggers import TRIGGER

EVENTS = int(os.environ.get("HOLDFAST_RENEWALS_FIRE_EVENTS", "300"))
KILLS = 4
PROPERTIES = ("north", "south", "refusing")
OPEN = ("pending", "sending", "failed")
NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


def score(number: int) -> RiskScore:
    signals = {name: Signal(True, 20, "So it is.") for name in SIGNALS}
    return RiskScore(
        property_id=PROPERTIES[number % 3], resident_id=f"r{number:05}", lease_id="l", unit_id="u", name="N",
        notice_given=False, as_of_date=AS_OF, risk_score=80, risk_tier="high", days_to_expiry=5,
        signals=signals, calculated_at=NOW,
    )  # fmt: skip


@asynccontextmanager
async def home(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, [*DOCUMENTS, *OUTBOX_MODELS.all])
    await store.migrate()
    try:
        yield store.tenant("-")
    finally:
        await store.close()


async def endpoints(store: Store, rms: RmsSimulator, keys: str) -> None:
    secrets = EndpointSecrets(Vault.from_settings(keys))
    for id in PROPERTIES:
        await settle_in(store, [], property_id=id)
        endpoint = RmsEndpoint(
            id=id, url=rms.webhook_url(id), event_types=[EVENT_TYPE], created_at=store.clock.now(),
            concurrency=25, retry=RetryPolicy(waits_s=(0.1, 0.2, 0.4, 0.8)), timeout_s=1.0,
            breaker=BreakerPolicy(failures=1_000),
        )  # fmt: skip
        endpoint.secrets = [secrets.seal(endpoint, new_secret())]
        await store.commit(create(endpoint))


async def under_fire(url: str, keys: str, finished: asyncio.Event) -> list[str]:
    """Two workers; every second one is killed and another takes its place. Gives who was."""
    killed: list[str] = []
    names = iter(f"worker-{n}" for n in range(1_000))

    def order() -> dict[str, str]:
        return {"url": url, "keys": keys, "name": next(names)}

    async def life(until: asyncio.Event, kills: int) -> None:
        for _ in range(kills):
            asked = order()
            async with run_processes("tests.services.renewals.delivery_process", "deliver", asked) as (
                worker,
            ):
                await _live(worker, until, 1.0)
                killed.append(asked["name"])
        async with run_processes("tests.services.renewals.delivery_process", "deliver", order()) as (worker,):
            await worker.hear_until("ready")
            await until.wait()

    await asyncio.gather(life(finished, KILLS // 2), life(finished, KILLS // 2))
    return killed


async def _live(worker: ControlledProcess, until: asyncio.Event, seconds: float) -> None:
    await worker.hear_until("ready")
    try:
        await asyncio.wait_for(until.wait(), seconds)
    except TimeoutError:
        return


async def all_ended(store: Store) -> None:
    query = Query(DeliveryState).where("status", "in", list(OPEN)).order_by("-created_at").limit(1)
    async with asyncio.timeout(90):
        while (await store.query(query)).items:  # noqa: ASYNC110 - other processes tell nobody
            await asyncio.sleep(0.1)


async def everything(store: Store) -> list[DeliveryState]:
    query = Query(DeliveryState).where("status", "in", ["delivered", "dlq"]).order_by("-created_at")
    return [item.doc async for item in store.scan(query.limit(500))]


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_nothing_is_lost_or_doubled_while_the_rms_fails_and_workers_are_killed(url: str) -> None:
    keys = new_key("test")
    finished = asyncio.Event()
    async with home(url) as store, RmsSimulator(clock=SystemClock()) as rms:
        await endpoints(store, rms, keys)
        rms.run(Behave(failure_rate=0.3, delay_s=0.01))
        rms.inject(InjectedFault(count=10_000, status=400, path="/refusing"))
        rms.inject(InjectedFault(count=20, cut=True))
        rms.inject(InjectedFault(count=20, status=429, retry_after_s=1))
        rms.inject(InjectedFault(count=10, cut=True, late=True))
        fire = asyncio.create_task(under_fire(url, keys, finished))
        events = RiskEvents(store)
        scores = [score(n) for n in range(EVENTS)]
        for start in range(0, EVENTS, 60):
            some = scores[start : start + 60]
            for id in PROPERTIES:
                batch = [one for one in some if one.property_id == id]
                await store.transact(lambda tx, batch=batch: events.add(tx, batch))  # type: ignore[misc]
            await asyncio.sleep(0)
        await all_ended(store)
        finished.set()
        killed = await fire
        deliveries = await everything(store)
        judge(deliveries, list(rms.state.received), killed=set(killed))
        await every_dead_letter_replays(
            store, rms, url, keys, dead=sum(d.status == "dlq" for d in deliveries)
        )


def judge(deliveries: list[DeliveryState], received: list[ReceivedMessage], *, killed: set[str]) -> None:
    assert len(deliveries) == EVENTS
    assert len(killed) == KILLS
    arrived: dict[str, list[ReceivedMessage]] = defaultdict(list)
    for one in received:
        arrived[one.message_id].append(one)
    for delivery in deliveries:
        seen = arrived[delivery.event_id]
        assert {one.body for one in seen} <= {delivery.body.decode()}
        fences = [int(one.headers["x-fence"]) for one in seen]
        recorded = {attempt.fence for attempt in delivery.attempts}
        if delivery.endpoint_id == "refusing":
            assert (delivery.status, delivery.reason) == ("dlq", "HTTP 400")
            assert delivery.attempt_count == 1
        elif delivery.status == "delivered":
            assert any(one.status == 200 for one in seen)
        else:
            assert delivery.attempt_count == 5
            assert delivery.reason.startswith("5 attempts failed; the last: ")
        # What arrived without being on record was sent by one who was killed before noting it.
        unnoted = [one for one in seen if int(one.headers["x-fence"]) not in recorded]
        assert {one.headers["x-worker"] for one in unnoted} <= killed, delivery.event_id
        assert fences == sorted(fences)
        assert delivery.rms_response


async def every_dead_letter_replays(
    store: Store, rms: RmsSimulator, url: str, keys: str, *, dead: int
) -> None:
    """Each given-up delivery has one letter with its reason, and goes out again under its id."""
    books = Deliveries(store, models=OUTBOX_MODELS)
    letters = (await books.dead_letters(limit=1_000)).docs
    assert len(letters) == dead
    assert all(letter.reason and letter.deaths == 1 for letter in letters)
    rms.state.clear()
    rms.faults.clear()
    report = await books.replay(Selection(statuses=["dead"]), dry_run=False, limit=1_000)
    assert report.changed == min(dead, 1_000)
    order = {"url": url, "keys": keys, "name": "last"}
    async with run_processes("tests.services.renewals.delivery_process", "deliver", order):
        await all_ended(store)
    assert {one.message_id for one in rms.state.received} == {letter.event_id for letter in letters}
    assert (await books.dead_letters()).docs == []


async def test_attempts_follow_the_schedule_and_the_fifth_failure_is_a_dead_letter(
    server: Server,
) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=503)
    told = await server.post(TRIGGER)
    dead = await server.delivery(told["deliveryId"], "dlq", within_s=90)
    times = [datetime.fromisoformat(one["at"]) for one in dead["attempts"]]
    late = [
        (after - before).total_seconds() - wait
        for before, after, wait in zip(times[:-1], times[1:], (1, 2, 4, 8), strict=True)
    ]
    # Where the machine is idle each is late by milliseconds; busy moments must not fail this.
    assert all(-0.01 <= one < 30.0 for one in late), late
    assert min(late) < 1.0, late
    assert dead["reason"] == "5 attempts failed; the last: HTTP 503"
    assert [one["status"] for one in dead["attempts"]] == [503] * 5
    assert dead["rmsResponse"].startswith("503: ")
    (letter,) = (await server.get("/dlq"))["items"]
    assert letter["reason"] == dead["reason"]


async def test_a_dead_rms_does_not_delay_another_property(server: Server) -> None:
    await settle_in(server.store, property_id="p-2", people=[])
    await server.calculate()
    await server.endpoint()
    await server.create_endpoint("p-2", server.rms.webhook_url("hanging"))
    server.rms.run(Behave())
    server.rms.inject(InjectedFault(count=1_000, hang=True, path="/hanging"))
    slow = [_for_other(n) for n in range(200)]
    events = RiskEvents(server.store)
    await server.store.transact(lambda tx: events.add(tx, slow))
    told = await server.post(TRIGGER)
    await server.delivery(told["deliveryId"], "delivered")
    hanging = Query(DeliveryState).where("status", "in", list(OPEN)).order_by("-created_at")
    assert await server.store.count(hanging) == len(slow)


def _for_other(number: int) -> RiskScore:
    made = score(number)
    made.property_id = "p-2"
    return made
