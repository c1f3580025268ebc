"""The outbox on every engine: what is put out arrives, and the books say so."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any

import pytest

from holdfast.errors import AlreadyExistsError, TooLargeError
from holdfast.kit.outbox import (
    OUTBOX_MODELS,
    Deliveries,
    Delivery,
    Dispatcher,
    Endpoint,
    Endpoints,
    Event,
    Outbox,
    Selection,
    SignatureVerifier,
    delivery_id,
)
from holdfast.kit.outbox.models import ATTEMPTS_IN_DELIVERY_MAX
from holdfast.kit.outbox.outcome import AttemptOutcome, record_attempt, settle_writes
from holdfast.net import AddressGuard, RawSender, ReceiverResponse
from holdfast.store import Snapshot, Store, Transaction, create, put
from holdfast.store.port import ClaimRequest
from tests.kit.eventually import until
from tests.kit.outbox_fixture import (
    SECRET,
    delivery,
    dispatching,
    endpoint_at,
    receiving,
    send,
    signing,
    state_is,
)
from tests.kit.receiver import OK, Received

DOCUMENTS = list(OUTBOX_MODELS.all)


async def test_an_event_arrives_signed_and_byte_for_byte_and_is_recorded(live_store: Store) -> None:
    body = b'{"price": 1.10,\n "name": "\xc3\xa9"}'
    async with receiving() as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url())
        await send(live_store, endpoint, "evt-1", body=body)
        found = await state_is(live_store, "evt-1", "delivered")
    (request,) = receiver.requests
    assert request.body == body
    assert SignatureVerifier([SECRET]).verify(request.headers, body, now=live_store.clock.now()) == "evt-1"
    (attempt,) = found.attempts
    assert (attempt.status, attempt.excerpt, attempt.fence) == (200, "ok", found.fence)
    assert (found.next_attempt_at, found.owner) == (None, None)
    assert found.finished_at is not None


async def test_an_event_lands_with_the_callers_writes_or_not_at_all(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    beside = Endpoint(id="beside", url="http://127.0.0.1:9/", created_at=live_store.clock.now())
    event = Event(id="evt-1", type="thing.made", body=b"{}")
    acme = live_store.tenant("-")
    await Outbox(live_store).send(event, [endpoint])
    with pytest.raises(AlreadyExistsError):
        await Outbox(live_store).send(event, [endpoint], put(beside))
    assert await acme.get(Endpoint, "beside") is None
    await acme.commit(
        put(beside), *Outbox(live_store).writes(Event(id="evt-2", type="t", body=b"{}"), [endpoint])
    )
    assert (await delivery(live_store, "evt-2")).status == "pending"


async def test_an_endpoint_that_takes_no_such_event_is_recorded_as_skipped(live_store: Store) -> None:
    wants = await endpoint_at(live_store, "http://127.0.0.1:9/", "wants", event_types=["invoice.*"])
    shut = await endpoint_at(live_store, "http://127.0.0.1:9/", "shut", status="disabled")
    await Outbox(live_store).send(Event(id="evt-1", type="invoice.paid", body=b"{}"), [wants, shut])
    await Outbox(live_store).send(Event(id="evt-2", type="user.made", body=b"{}"), [wants])
    states = {
        (one.event_id, one.endpoint_id): (one.status, one.next_attempt_at is None)
        for event_id in ("evt-1", "evt-2")
        for one in await Deliveries(live_store).of_event(event_id)
    }
    assert states == {
        ("evt-1", "wants"): ("pending", False),
        ("evt-1", "shut"): ("skipped", True),
        ("evt-2", "wants"): ("skipped", True),
    }


async def test_a_body_over_the_limit_is_refused_before_anything_is_written(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    outbox = Outbox(live_store, body_bytes_max=100)
    await outbox.send(Event(id="fits", type="t", body=b"x" * 100), [endpoint])
    with pytest.raises(TooLargeError):
        await outbox.send(Event(id="over", type="t", body=b"x" * 101), [endpoint])
    assert await Deliveries(live_store).of_event("over") == []


async def test_a_paused_endpoint_gets_nothing_until_it_is_resumed(live_store: Store) -> None:
    operator = Endpoints(live_store)
    async with receiving() as receiver, receiving() as other:
        endpoint = await endpoint_at(live_store, receiver.url())
        beside = await endpoint_at(live_store, other.url(), "beside")
        assert await operator.pause("ep", reason="maintenance", by="ada")
        assert not await operator.pause("ep", reason="maintenance", by="ada")
        async with dispatching(live_store):
            await send(live_store, endpoint, "evt-1")
            for n in range(3):
                await send(live_store, beside, f"beside-{n}")
                await other.received(n + 1)
            assert receiver.requests == []
            await operator.resume("ep", by="ada")
            await state_is(live_store, "evt-1", "delivered")


async def test_a_late_answer_of_a_lost_lease_can_not_overwrite_a_newer_state(live_store: Store) -> None:
    go = asyncio.Event()

    async def when_told(received: Received) -> bytes:
        await go.wait()
        return OK

    async with receiving(when_told) as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url())
        await send(live_store, endpoint, "evt-1")
        await receiver.received(1)
        taken = await delivery(live_store, "evt-1")
        taken.fence += 1
        taken.owner = "somebody else"
        await live_store.tenant("-").commit(put(taken))
        go.set()
        await until(lambda: dispatcher.status().lost == 1)
    found = await delivery(live_store, "evt-1")
    assert (found.status, found.owner, found.attempts) == ("sending", "somebody else", [])


async def test_a_stopped_dispatcher_finishes_what_is_under_way_and_gives_back_the_rest(
    live_store: Store,
) -> None:
    go = asyncio.Event()

    async def when_told(received: Received) -> bytes:
        await go.wait()
        return OK

    async with receiving(when_told) as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), concurrency=2)
        await send(live_store, endpoint, *(f"evt-{n}" for n in range(4)))
        async with dispatching(live_store) as dispatcher:
            await receiver.received(1)
            await until(lambda: dispatcher.status().buffered == 3)
            asyncio.get_running_loop().call_later(0.2, go.set)
        states = Counter([(await delivery(live_store, f"evt-{n}")).status for n in range(4)])
        assert states == {"delivered": 1, "pending": 3}
        async with dispatching(live_store):
            for n in range(4):
                await state_is(live_store, f"evt-{n}", "delivered")
    assert len(receiver.requests) == 4


async def test_no_more_deliveries_are_held_than_the_limit_however_many_are_due(live_store: Store) -> None:
    held: list[int] = []

    async def note(received: Received) -> bytes:
        held.append(dispatcher.under_way)
        return OK

    async with receiving(note) as receiver:
        for name in ("a", "b", "c"):
            endpoint = await endpoint_at(live_store, receiver.url(), name)
            await send(live_store, endpoint, *(f"{name}-{n}" for n in range(8)))
        async with dispatching(live_store, held_max=5) as dispatcher:
            await receiver.received(24)
    assert 1 <= max(held) <= 5


async def test_two_dispatchers_send_each_delivery_once(live_store: Store) -> None:
    async with receiving() as receiver, dispatching(live_store), dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url())
        await send(live_store, endpoint, *(f"evt-{n}" for n in range(40)))
        for n in range(40):
            await state_is(live_store, f"evt-{n}", "delivered")
    assert Counter(r.headers["webhook-id"] for r in receiver.requests) == {f"evt-{n}": 1 for n in range(40)}


async def test_a_delivery_put_out_beside_a_dispatcher_is_its_own_from_the_first_commit(
    live_store: Store,
) -> None:
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url())
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await outbox.send(Event(id="evt-1", type="t", body=b"{}"), [endpoint])
        first = await state_is(live_store, "evt-1", "delivered")
        with pytest.raises(AlreadyExistsError):
            await outbox.send(Event(id="evt-1", type="t", body=b"{}"), [endpoint])
        await outbox.send(Event(id="evt-2", type="t", body=b"{}"), [endpoint])
        await state_is(live_store, "evt-2", "delivered")
    assert (first.fence, first.attempts[0].fence) == (1, 1)
    assert Counter(r.headers["webhook-id"] for r in receiver.requests) == {"evt-1": 1, "evt-2": 1}


async def test_a_delivery_of_a_transaction_is_handed_over_once_that_is_committed(live_store: Store) -> None:
    async def claim_nothing(request: ClaimRequest) -> list[Snapshot[Any]]:
        return []

    live_store.engine.claim = claim_nothing  # type: ignore[method-assign]
    attempts = count(1)

    home = live_store.tenant("-")

    async def act(tx: Transaction) -> None:
        await tx.get(Endpoint, "other")
        await outbox.add(tx, Event(id="evt-1", type="t", body=b"{}"), [endpoint])
        if next(attempts) == 1:
            # The first attempt conflicts: what it reserved is given back, and nothing is sent.
            await endpoint_at(live_store, receiver.url(), "other")

    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url())
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await home.transact(act)
        await state_is(live_store, "evt-1", "delivered")
    assert next(attempts) == 3
    assert [r.headers["webhook-id"] for r in receiver.requests] == ["evt-1"]


async def test_every_attempt_is_kept_and_the_delivery_does_not_grow(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    await send(live_store, endpoint, "evt-1")
    home, now = live_store.tenant("-"), live_store.clock.now()
    for number in range(ATTEMPTS_IN_DELIVERY_MAX + 3):
        (claimed,) = await live_store.privileged().claim_due(Delivery, limit=1, lease_s=60)
        answer = ReceiverResponse(500 + number, {}, b"x" * 2_000, 0.01)
        record_attempt(claimed.doc, answer, at=now, latency_s=0.01)
        await home.commit(*settle_writes(claimed.doc, AttemptOutcome("failed"), now=now))
    found = await delivery(live_store, "evt-1")
    assert len(found.attempts) == 3
    attempts = await Deliveries(home).attempts(found)
    assert [one.status for one in attempts] == list(range(500, 500 + ATTEMPTS_IN_DELIVERY_MAX + 3))


async def test_a_drain_delivers_what_is_due_and_ends_by_itself(live_store: Store) -> None:
    async with receiving() as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), concurrency=2)
        await send(live_store, endpoint, *(f"evt-{n}" for n in range(12)))
        sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
        async with asyncio.timeout(60):
            await Dispatcher(live_store, sender, signing=signing).drain(60.0)
        await sender.close()
    states = Counter([(await delivery(live_store, f"evt-{n}")).status for n in range(12)])
    assert states == {"delivered": 12}


async def test_undelivered_is_one_question(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    other = await endpoint_at(live_store, "http://127.0.0.1:9/", "other")
    await send(live_store, endpoint, "evt-1", "evt-2")
    await send(live_store, other, "evt-3")
    ledger = Deliveries(live_store)
    assert [d.event_id for d in (await ledger.undelivered()).docs] == ["evt-3", "evt-2", "evt-1"]
    assert [d.event_id for d in (await ledger.undelivered("ep")).docs] == ["evt-2", "evt-1"]
    report = await ledger.cancel(Selection(statuses=["pending"], endpoint_id="ep"), dry_run=False)
    assert (report.matched, report.changed) == (2, 2)
    assert [d.event_id for d in (await ledger.undelivered()).docs] == ["evt-3"]


async def test_a_tenants_outbox_reaches_nobody_elses(live_store: Store) -> None:
    async with receiving() as receiver, dispatching(live_store):
        endpoint = Endpoint(
            id="theirs", tenant_id="acme", url=receiver.url(), created_at=live_store.clock.now()
        )
        acme = live_store.tenant("acme")
        await acme.commit(create(endpoint))
        await Outbox(acme).send(Event(id="evt-1", type="t", body=b"{}"), [endpoint])
        await receiver.received(1)
    assert await live_store.tenant("other").get(Delivery, delivery_id("evt-1", "theirs")) is None
    (found,) = await Deliveries(acme).of_event("evt-1")
    assert found.tenant_id == "acme"
