"""Many events sent at once: each is stored or refused by itself, in a few statements."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, HoldfastError, TooLargeError
from holdfast.kit.outbox import OUTBOX_MODELS, Endpoint, Event, Outbox
from holdfast.store import Store, create
from tests.kit.outbox_fixture import delivery, dispatching, endpoint_at, receiving, state_is

DOCUMENTS = list(OUTBOX_MODELS.all)


def _event(name: str, body: bytes = b"{}") -> Event:
    return Event(id=name, type="thing.made", body=body)


async def test_each_event_is_stored_or_refused_by_itself(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    outbox = Outbox(live_store, body_bytes_max=100)
    await outbox.send(_event("before"), [endpoint])
    names = ["e1", "before", "a/b", "e3", "e1"]
    events = [*map(_event, names), _event("e2", b"x" * 101)]
    first, repeated, invalid, last, again, large = await outbox.send_many(events, [endpoint])
    assert (first, last) == (["e1~ep"], ["e3~ep"])
    assert [type(one) for one in (repeated, again, large)] == [
        AlreadyExistsError,
        AlreadyExistsError,
        TooLargeError,
    ]
    assert isinstance(invalid, HoldfastError)
    assert invalid.path == "id"
    assert (await delivery(live_store, "e3")).status == "pending"


@pytest.mark.parametrize("fifo", [False, True])
async def test_many_events_arrive_in_their_order_where_that_is_wanted(live_store: Store, fifo: bool) -> None:
    async with receiving() as receiver, dispatching(live_store) as dispatcher:
        endpoint = await endpoint_at(live_store, receiver.url(), fifo=fifo)
        outbox = Outbox(live_store, local_dispatcher=dispatcher)
        names = [f"e{n}" for n in range(20)]
        results = await outbox.send_many([_event(name, name.encode()) for name in names], [endpoint])
        assert not any(isinstance(one, HoldfastError) for one in results)
        for name in names:
            await state_is(live_store, name, "delivered")
    arrived = [request.body.decode() for request in receiver.requests]
    assert sorted(arrived) == sorted(names)
    assert not fifo or arrived == names


async def test_a_hundred_events_are_a_few_statements(sqlite_url: str, statements: list[str]) -> None:
    store = await open_store(sqlite_url, DOCUMENTS)
    await store.migrate()
    endpoint = Endpoint(id="ep", url="http://127.0.0.1:9/", created_at=store.clock.now())
    await store.tenant("-").commit(create(endpoint))
    statements.clear()
    await Outbox(store).send_many([_event(f"e{n}") for n in range(100)], [endpoint])
    kinds = Counter(statement.split()[0] for statement in statements)
    assert kinds["INSERT"] <= 4
    assert kinds["COMMIT"] == 1
    assert kinds["SELECT"] <= 1
    await store.close()
