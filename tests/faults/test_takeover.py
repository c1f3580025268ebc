"""A process is killed or stands still: another takes over what it held long before the leases end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.kit.outbox import Delivery, Endpoint, Event, Outbox
from holdfast.store import Query, Store, put
from tests.faults.controlled_process import ControlledProcess, run_processes
from tests.faults.store_opener import opener
from tests.faults.takeover_worker import ALL
from tests.kit.eventually import until_found
from tests.kit.receiver import OK, Serving, serving

EVENTS = [f"evt-{n}" for n in range(3)]
opened = opener(ALL, migrate=True)


class _HoldingFirst:
    """A receiver that answers every request but the first, which waits until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self._first = True

    async def __call__(
        self, state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await state.read(reader)
            if self._first:
                self._first = False
                await self.let_go.wait()
            writer.write(OK)
            await writer.drain()


async def _send(store: Store, receiver: Serving) -> None:
    """Send three events to an endpoint that takes them in order, one after the other."""
    endpoint = Endpoint(
        id="there", url=receiver.url(), created_at=store.clock.now(), fifo=True, concurrency=1, timeout_s=60
    )
    await store.tenant("-").commit(put(endpoint))
    for id in EVENTS:
        await Outbox(store).send(Event(id=id, type="thing.made", body=id.encode()), [endpoint])


async def _delivered(store: Store) -> list[Delivery]:
    query = Query(Delivery).where("status", "==", "delivered").order_by("-created_at")
    found = (await store.tenant("-").query(query)).docs
    return found if len(found) == len(EVENTS) else []


async def _start(receiver: Serving, store: Store, workers: list[ControlledProcess]) -> ControlledProcess:
    """Return the worker that holds the head of the queue: it starts alone, the other once it has sent."""
    holder, other = workers
    assert await holder.hear() == "ready"
    await _send(store, receiver)
    await asyncio.wait_for(receiver.received(1), 60)
    other.resume()
    assert await other.hear() == "ready"
    return holder


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_work_of_a_killed_process_is_taken_over_in_order_before_its_leases_end(url: str) -> None:
    talk = _HoldingFirst()
    order = {"url": url}
    async with opened(url) as store, serving(talk) as receiver:
        async with run_processes("tests.faults.takeover_worker", "deliver", order, order) as workers:
            workers[1].pause()
            holder = await _start(receiver, store, workers)
            await holder.kill()
            await until_found(lambda: _delivered(store), within_s=60)
        assert [one.body.decode() for one in receiver.requests] == [EVENTS[0], *EVENTS]
        talk.let_go.set()


async def test_a_paused_process_is_taken_over_and_refused_when_it_goes_on(sqlite_url: str) -> None:
    talk = _HoldingFirst()
    order = {"url": sqlite_url}
    async with opened(sqlite_url) as store, serving(talk) as receiver:
        async with run_processes("tests.faults.takeover_worker", "deliver", order, order) as workers:
            workers[1].pause()
            holder = await _start(receiver, store, workers)
            holder.pause()
            await until_found(lambda: _delivered(store), within_s=60)
            talk.let_go.set()
            holder.resume()
            while "code=lease_lost" not in await holder.hear():
                pass
        assert [(one.attempt_count, len(one.attempts)) for one in await _delivered(store)] == [(1, 1)] * 3
        assert len(receiver.requests) == len(EVENTS) + 1
