"""Sends of callers that come together share one request to the store, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import AlreadyExistsError, BadQueryError, HoldfastError, WrongTypeError
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery, Dispatcher, Endpoint, Event, Outbox, send_batch
from holdfast.kit.outbox.outgoing_attempt import OutgoingAttempt
from holdfast.model import Document
from holdfast.store import Query, Store
from holdfast.store.commit import Commit
from tests.kit.eventually import until
from tests.kit.outbox_fixture import dispatching, endpoint_at, receiving


@pytest.fixture
def documents() -> Sequence[type[Document]]:
    return OUTBOX_MODELS.all


def _event(id: str, **fields: Any) -> Event:
    return Event(id=id, type="thing.made", body=b"{}", **fields)


async def _stored(store: Store) -> dict[str, str]:
    page = await store.privileged().query(Query(Delivery).limit(500))
    return {item.doc.event_id: item.doc.status for item in page.items}


class _Requests:
    """The sizes of the requests that an engine was given."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self._commit = store.engine.commit
        monkeypatch.setattr(store.engine, "commit", self)

    def __call__(self, commits: Sequence[Commit]) -> Any:
        self.sizes.append(len(commits))
        return self._commit(commits)


async def _send_all(outbox: Outbox, events: Sequence[Event], endpoints: Sequence[Endpoint]) -> list[Any]:
    sends = [outbox.send(event, endpoints) for event in events]
    return await asyncio.gather(*sends, return_exceptions=True)


async def test_sends_of_one_iteration_share_their_time_and_later_ones_do_not(live_store: Store) -> None:
    endpoint, outbox = await endpoint_at(live_store, "http://127.0.0.1:9/"), Outbox(live_store)
    for prefix in "ab":
        await _send_all(outbox, [_event(f"{prefix}{n}") for n in range(10)], [endpoint])
    page = await live_store.privileged().query(Query(Delivery).limit(500))
    times = {item.doc.event_id: item.doc.created_at for item in page.items}
    together = [{times[f"{prefix}{n}"] for n in range(1, 10)} for prefix in "ab"]
    assert [len(one) for one in together] == [1, 1]
    assert max(together[0]) < min(together[1])


async def test_a_hundred_callers_are_two_requests(live_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    requests, outbox = _Requests(live_store, monkeypatch), Outbox(live_store)
    sent = await _send_all(outbox, [_event(f"e{n}") for n in range(100)], [endpoint])
    assert sent == [[f"e{n}~ep"] for n in range(100)]
    assert requests.sizes == [1, 99]  # the first came alone
    assert set((await _stored(live_store)).values()) == {"pending"}


async def test_a_caller_that_comes_alone_is_a_request_of_its_own(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    requests, outbox = _Requests(live_store, monkeypatch), Outbox(live_store)
    for n in range(3):
        await outbox.send(_event(f"e{n}"), [endpoint])
    assert requests.sizes == [1, 1, 1]


async def test_callers_that_come_back_together_are_one_request(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first, which finds no other under way; after one that came alone none is waited for."""
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    requests, outbox = _Requests(live_store, monkeypatch), Outbox(live_store)
    for turn in range(3):
        await _send_all(outbox, [_event(f"{turn}-{n}") for n in range(10)], [endpoint])
    assert requests.sizes == [1, 9, 10, 10]
    for n in range(3):
        await outbox.send(_event(f"e{n}"), [endpoint])
    assert requests.sizes[4:] == [1, 1, 1]
    assert not outbox._batch.expects_others


async def test_the_store_has_the_next_sends_before_what_was_committed_is_sent(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it writes them while the loop sends."""
    acts: list[str] = []
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url(), concurrency=20)
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await outbox.send(_event("first"), [endpoint])
        commit, begin = live_store.engine.commit, dispatcher._worker._begin

        def commit_noted(commits: Sequence[Commit]) -> Any:
            acts.extend(f"commit {one.writes[0].key}" for one in commits if one.writes[0].kind == "create")
            return commit(commits)

        def begin_noted(attempt: OutgoingAttempt) -> None:
            acts.append(f"send {attempt.claimed.delivery.id}")
            begin(attempt)

        monkeypatch.setattr(live_store.engine, "commit", commit_noted)
        monkeypatch.setattr(dispatcher._worker, "_begin", begin_noted)

        async def caller(n: int) -> None:
            await outbox.send(_event(f"a{n}"), [endpoint])
            await outbox.send(_event(f"b{n}"), [endpoint])

        await asyncio.gather(*(caller(n) for n in range(10)))
        await until(lambda: dispatcher.status().settled == 21)
    together = range(1, 10)  # the first came alone
    sent = min(acts.index(f"send a{n}~ep") for n in together)
    assert max(acts.index(f"commit b{n}~ep") for n in together) < sent


async def test_one_refused_send_fails_alone(live_store: Store) -> None:
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url())
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await outbox.send(_event("e3"), [endpoint])
        events = [_event(f"e{n}") for n in range(8)]
        events[5] = Event(id="e5", type=7, body=b"{}")  # type: ignore[arg-type]  # no text
        sent = await _send_all(outbox, events, [endpoint])
        refused = {n: type(one) for n, one in enumerate(sent) if isinstance(one, HoldfastError)}
        assert refused == {3: AlreadyExistsError, 5: WrongTypeError}
        await until(lambda: dispatcher.status().settled == 7)
    assert sorted(await _stored(live_store)) == [f"e{n}" for n in range(8) if n != 5]
    assert len(receiver.requests) == 7
    assert _held(dispatcher) == 0


async def test_a_send_that_is_no_commit_fails_alone(live_store: Store) -> None:
    """The store refuses two deliveries of one id before it looks at any of the request."""
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    outbox = Outbox(live_store)
    sends = [outbox.send(_event(f"e{n}"), [endpoint] * (1 + (n == 2))) for n in range(4)]
    sent = await asyncio.gather(*sends, return_exceptions=True)
    assert [n for n, one in enumerate(sent) if isinstance(one, BadQueryError)] == [2]
    assert sorted(await _stored(live_store)) == ["e0", "e1", "e3"]


async def test_a_send_cancelled_before_its_commit_is_not_made(live_store: Store) -> None:
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url())
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await outbox.send(_event("first"), [endpoint])
        tasks = [asyncio.create_task(outbox.send(_event(f"e{n}"), [endpoint])) for n in range(3)]
        await asyncio.sleep(0)  # each has been added
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: dispatcher.status().settled == 3)
    assert await _stored(live_store) == dict.fromkeys(["first", "e0", "e2"], "delivered")
    assert _held(dispatcher) == 0


async def test_what_was_committed_is_sent_though_its_caller_was_cancelled(live_store: Store) -> None:
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url())
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await outbox.send(_event("first"), [endpoint])
        tasks = [asyncio.create_task(outbox.send(_event(f"e{n}"), [endpoint])) for n in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the request is with the store
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: dispatcher.status().settled == 4)
    assert set((await _stored(live_store)).values()) == {"delivered"}
    assert _held(dispatcher) == 0


@pytest.mark.parametrize("endpoints", [1, 2])
async def test_a_fault_while_sends_are_prepared_reaches_their_callers(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, endpoints: int
) -> None:
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        found = [await endpoint_at(live_store, receiver.url(), f"ep{n}") for n in range(endpoints)]
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        await outbox.send(_event("first"), found)

        def fail(*given: object) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(send_batch, "create_many", fail)
        monkeypatch.setattr(Store, "start_creates", fail)
        sent = await _send_all(outbox, [_event(f"e{n}") for n in range(4)], found)
        assert [type(one) for one in sent] == [list, RuntimeError, RuntimeError, RuntimeError]
        await until(lambda: dispatcher.status().settled == 2 * endpoints)
    assert _held(dispatcher) == 0


def _held(dispatcher: Dispatcher) -> int:
    """The places that its queues have given away."""
    return sum(queue.held for queue in dispatcher._queues._queues.values())
