"""What one delivery costs, counted: tasks, encodes, statements and turns of the dispatcher."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import msgspec
import pytest

from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery, Dispatcher, Endpoint, Event, Outbox, Sign
from holdfast.kit.outbox.direct_handoff import DirectHandoff
from holdfast.kit.outbox.endpoint_queues import BRISK_PER_S, ClaimScope, EndpointQueues
from holdfast.kit.outbox.outcome import DELIVERED, record_attempt, settle_fields
from holdfast.kit.outbox.settler import Settlement, Settler
from holdfast.model import schema
from holdfast.net import ReceiverResponse
from holdfast.store import Store, create
from holdfast.store.sql import blind_patch
from holdfast.testing import ManualClock
from tests.kit.eventually import until
from tests.kit.outbox_fixture import dispatching, endpoint_at, receiving, send, state_is
from tests.kit.receiver import OK, Received, Serving, serving


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    made = await open_store(sqlite_url, OUTBOX_MODELS.all)
    await made.migrate()
    yield made
    await made.close()


def _event(n: int) -> Event:
    return Event(id=f"e{n}", type="thing.made", body=b"{}")


class CountedTasks:
    """The coroutines that tasks were made of, by name."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **named: Any,
    ) -> asyncio.Task[Any]:
        self.names[str(work)] += 1
        return asyncio.Task(work, loop=loop, **named)


async def test_a_delivery_over_an_idle_connection_needs_no_task(store: Store) -> None:
    tasks, loop = CountedTasks(), asyncio.get_running_loop()
    async with receiving() as receiver, dispatching(store) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url())
        outbox = Outbox(store, local_dispatcher=dispatcher)
        for n in range(20):
            if n == 1:
                loop.set_task_factory(tasks)  # the first has opened a connection
            await outbox.send(_event(n), [endpoint])
            await until(lambda: dispatcher.status().settled == n + 1)  # noqa: B023 - awaited in the turn
        loop.set_task_factory(None)
    assert len(receiver.requests) == 20
    assert not [name for name in tasks.names if "DeliveryWorker" in name or "RawSender" in name]


async def test_a_delivered_delivery_is_encoded_once_and_its_outcome_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    encodes: Counter[str] = Counter()

    class CountingEncoder:
        def encode(self, one: Any) -> bytes:
            encodes[type(one).__name__] += 1
            return msgspec.json.encode(one)

    monkeypatch.setattr(schema, "_ENCODER", CountingEncoder())
    monkeypatch.setattr(blind_patch, "_ENCODE", CountingEncoder().encode)
    async with receiving() as receiver, dispatching(store) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url())
        encodes.clear()
        outbox = Outbox(store, local_dispatcher=dispatcher)
        await outbox.send(_event(1), [endpoint])
        await state_is(store, "e1", "delivered")
    assert encodes == {"Delivery": 1, "PatchedFields": 1}


async def test_a_hundred_outcomes_are_settled_in_two_statements(
    sqlite_url: str, statements: list[str]
) -> None:
    store = await open_store(sqlite_url, OUTBOX_MODELS.all)
    await store.migrate()
    now = store.clock.now()
    deliveries = [
        Delivery(
            id=f"e{n}~ep", event_id=f"e{n}", endpoint_id="ep", event_type="thing.made", body=b"{}",
            occurred_at=now, created_at=now, status="sending", owner="me", fence=1, next_attempt_at=now,
        )
        for n in range(100)
    ]  # fmt: skip
    await store.tenant("-").settle([[create(one)] for one in deliveries])
    settler = Settler(store.privileged())
    for one in deliveries:
        record_attempt(one, ReceiverResponse(200, {}, b"", 0.001), at=now, latency_s=0.001)
        settler.add(Settlement(one, 1e9, settle_fields(one, DELIVERED, now=now)))
    statements.clear()
    running = asyncio.create_task(settler.run())
    await settler.flush()
    running.cancel()
    kinds = Counter(" ".join(statement.split()[:2]) for statement in statements)
    assert (settler.settled, settler.lost) == (100, 0)
    assert kinds['UPDATE "holdfast_deliveries"'] == 2
    assert kinds["COMMIT"] == 1
    await store.close()


async def test_commits_ask_for_one_turn_until_the_next_claim_may_be_made(
    sqlite_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, step = 0, Dispatcher._step

    async def counted(self: Dispatcher) -> float:
        nonlocal turns
        turns += 1
        return await step(self)

    answered = asyncio.Event()

    async def say(received: Received) -> bytes:
        await answered.wait()
        return OK

    store = await open_store(sqlite_url, OUTBOX_MODELS.all, clock=clock)
    await store.migrate()
    async with receiving(say) as receiver, dispatching(store):
        endpoint = await endpoint_at(store, receiver.url())
        await send(store, endpoint, "first")
        await receiver.received(1)
        monkeypatch.setattr(Dispatcher, "_step", counted)
        await send(store, endpoint, *(f"e{n}" for n in range(30)))
        assert turns <= 3
        answered.set()
        await clock.advance(0.01)
        async with asyncio.timeout(30):
            await receiver.received(31)
    await store.close()


async def test_a_dispatcher_that_holds_all_it_may_looks_again_only_after_a_while(
    sqlite_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, step = 0, Dispatcher._step

    async def counted(self: Dispatcher) -> float:
        nonlocal turns
        turns += 1
        return await step(self)

    answered = asyncio.Event()

    async def say(received: Received) -> bytes:
        await answered.wait()
        return OK

    store = await open_store(sqlite_url, OUTBOX_MODELS.all, clock=clock)
    await store.migrate()
    async with receiving(say) as receiver, dispatching(store, held_max=1) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url())
        await send(store, endpoint, "first")
        await receiver.received(1)
        await send(store, endpoint, "second")
        monkeypatch.setattr(Dispatcher, "_step", counted)
        await clock.advance(1.0)
        turns = 0
        for _ in range(200):
            await asyncio.sleep(0)
        assert turns <= 2
        assert dispatcher.under_way == 1
        answered.set()
        await until(lambda: dispatcher.under_way == 0)
        await clock.advance(0.1)
        async with asyncio.timeout(30):
            await receiver.received(2)
    await store.close()


async def test_what_is_committed_together_is_sent_by_one_callback(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, send_committed = 0, DirectHandoff._send_committed

    def counted(self: DirectHandoff) -> None:
        nonlocal calls
        calls += 1
        send_committed(self)

    monkeypatch.setattr(DirectHandoff, "_send_committed", counted)
    async with receiving() as receiver, dispatching(store) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url(), concurrency=100)
        outbox = Outbox(store, local_dispatcher=dispatcher)
        await outbox.send(_event(0), [endpoint])
        await until(lambda: dispatcher.status().settled == 1)
        calls = 0
        await outbox.send_many([_event(n) for n in range(1, 51)], [endpoint])
        await until(lambda: dispatcher.status().settled == 51)
    assert calls == 1


async def test_a_brisk_endpoint_is_claimed_for_by_itself_and_once(store: Store) -> None:
    """A share first and then the rest would be two transactions."""
    endpoint = await endpoint_at(store, "http://127.0.0.1:9/", concurrency=100)

    async def signing(_: Endpoint) -> Sign:
        return lambda message_id, at_s, body: ()

    queues = EndpointQueues(store.privileged(), signing, models=OUTBOX_MODELS, lease_s=30.0)
    await queues.load([endpoint.id])
    queue, now = queues.get(endpoint.id), store.clock.monotonic()
    queues.record_claim(ClaimScope(1, only=frozenset({endpoint.id})), {}, cut=False)
    assert queues.all_with_room(now).skip == frozenset()
    queue.pace_per_s = BRISK_PER_S + 1
    assert queues.all_with_room(now).skip == {endpoint.id}
    queues.forget_idle(now)
    scope = queues.refill(now)
    assert scope is not None
    assert scope.only == frozenset({endpoint.id})
    assert scope.per_endpoint >= 200
    assert queue.places(now)  # nothing is known to wait, so that what is committed here is sent at once
    queue.reserved += 1
    queues.record_claim(scope, {}, cut=False)
    assert queues.refill(now) is None
    assert queues.all_with_room(now).skip == frozenset()  # while deliveries are handed over


async def test_headers_that_can_not_be_made_stop_no_other_delivery(store: Store) -> None:
    """Nothing is recorded, because the receiver is not at fault, and the place is free again."""

    def headers(delivery: Delivery, endpoint: Endpoint) -> list[tuple[str, str]]:
        if delivery.event_id == "e0":
            raise ValueError("no header for this one")
        return []

    async with receiving() as receiver, dispatching(store, headers=headers) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url(), concurrency=1)
        outbox = Outbox(store, local_dispatcher=dispatcher)
        for n in range(4):
            await outbox.send(_event(n), [endpoint])
        for n in range(1, 4):
            await state_is(store, f"e{n}", "delivered")
        status = dispatcher.status()
        assert (status.errors, status.in_flight) == (1, 0)
    left = await state_is(store, "e0", "sending")
    assert left.attempts == []


async def test_a_send_whose_endpoint_is_deleted_meanwhile_is_recorded(store: Store) -> None:
    go = asyncio.Event()

    async def when_told(received: Received) -> bytes:
        await go.wait()
        return OK

    async with receiving(when_told) as receiver, dispatching(store) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url())
        await send(store, endpoint, "e1")
        await receiver.received(1)
        dispatcher._queues.get("ep").forget_endpoint()
        go.set()
        found = await state_is(store, "e1", "delivered")
    assert [attempt.status for attempt in found.attempts] == [200]


async def test_sends_that_outlast_the_end_are_abandoned_and_record_nothing(store: Store) -> None:
    async def only_the_first(
        state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await state.read(reader)
        writer.write(OK)
        await state.read(reader)
        await reader.read()

    async with serving(only_the_first) as receiver:
        endpoint = await endpoint_at(store, receiver.url())
        async with dispatching(store, drain_s=0.05) as dispatcher:
            outbox = Outbox(store, local_dispatcher=dispatcher)
            await outbox.send(_event(1), [endpoint])
            await state_is(store, "e1", "delivered")
            await outbox.send(_event(2), [endpoint])
            await receiver.received(2)
        assert dispatcher.status().in_flight == 0
        async with asyncio.timeout(30):
            await receiver.ended.wait()
    left = await state_is(store, "e2", "sending")
    assert (left.attempts, left.fence) == ([], 1)


async def test_what_ended_just_before_the_end_is_left_to_its_lease_and_starts_no_other_send(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as receiver, dispatching(store) as dispatcher:
        endpoint = await endpoint_at(store, receiver.url(), concurrency=1)
        outbox, worker = Outbox(store, local_dispatcher=dispatcher), dispatcher._worker
        conclude, abandoned = worker._conclude_ended, asyncio.Event()
        await outbox.send(_event(2), [endpoint])
        await state_is(store, "e2", "delivered")  # by then the dispatcher knows that nothing else waits

        def abandon_first() -> None:
            worker.abandon()
            conclude()
            abandoned.set()

        monkeypatch.setattr(worker, "_conclude_ended", abandon_first)
        await asyncio.gather(*(outbox.send(_event(n), [endpoint]) for n in range(2)))
        await abandoned.wait()
        assert (worker.in_flight, worker.counts.sent, worker.counts.delivered) == (0, 2, 1)
    left = await state_is(store, "e0", "sending")
    assert (left.attempts, left.fence) == ([], 1)
