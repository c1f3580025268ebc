"""The worker loop: claims with free room, acts concurrently, outlasts its store, stops in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from holdfast.errors import RetryLaterError
from holdfast.kit.worker_loop import WorkerLoop
from holdfast.model import Claim, Document, document
from holdfast.store import Snapshot, Store, create, put
from tests.kit.eventually import until


@document("errands/{id}", claim=Claim(due="due_at", fence="fence", owner="owner"))
class Errand(Document):
    id: str
    due_at: datetime | None = None
    done: bool = False
    fence: int = 0
    owner: str = ""


DOCUMENTS: list[type[Document]] = [Errand]


class Errands(WorkerLoop[Errand]):
    def __init__(self, store: Store, work: Callable[[str], Awaitable[None]], **settings: Any) -> None:
        super().__init__(store, Errand, **{"concurrency": 3, "lease_s": 60.0, "poll_s": 0.2} | settings)
        self._work = work
        self.outage: Exception | None = None

    async def _claim(self, room: int) -> list[Snapshot[Errand]]:
        if self.outage is not None:
            raise self.outage
        return await super()._claim(room)

    async def _act(self, claimed: Snapshot[Errand], until_s: float) -> None:
        await self._work(claimed.doc.id)
        done = Errand(id=claimed.doc.id, done=True, fence=claimed.doc.fence)
        await self._store.commit(put(done, claimed.fenced))


class Gate:
    """Work that waits until it is let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[str] = []
        self.cancelled = 0

    async def __call__(self, id: str) -> None:
        self.begun.append(id)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def _add(store: Store, *ids: str) -> None:
    now = store.clock.now()
    await store.commit(*(create(Errand(id=id, due_at=now)) for id in ids))


async def _done(store: Store, *ids: str) -> list[bool]:
    return [found is not None and found.doc.done for found in await store.get_many(Errand, ids)]


async def test_no_more_than_the_concurrency_is_claimed_and_an_end_makes_room(live_store: Store) -> None:
    gate, stop, names = Gate(), asyncio.Event(), [f"e{n}" for n in range(7)]
    await _add(live_store, *names)
    worker = Errands(live_store, gate)
    running = asyncio.create_task(worker.run(stop))
    await until(lambda: len(gate.begun) >= 3)
    assert (len(gate.begun), worker.under_way) == (3, 3)
    gate.open.set()
    await until(lambda: len(gate.begun) == 7)
    stop.set()
    await running
    assert all(await _done(live_store, *names))


async def test_what_is_added_while_the_loop_waits_is_taken_at_once(live_store: Store) -> None:
    gate, stop = Gate(), asyncio.Event()
    gate.open.set()
    worker = Errands(live_store, gate, poll_s=600.0)
    running = asyncio.create_task(worker.run(stop))
    await until(lambda: worker.last_turn_at is not None)
    await _add(live_store, "late")
    await until(lambda: gate.begun == ["late"])
    stop.set()
    await running


async def test_a_failing_store_is_backed_off_from_while_work_goes_on(live_store: Store) -> None:
    gate, stop = Gate(), asyncio.Event()
    await _add(live_store, "first")
    worker = Errands(live_store, gate)
    running = asyncio.create_task(worker.run(stop))
    await until(lambda: gate.begun == ["first"])
    worker.outage = RetryLaterError("the store is away", after_s=0.01)
    await until(lambda: worker.errors >= 2)
    assert (worker.under_way, gate.cancelled, "away" in worker.last_error) == (1, 0, True)
    worker.outage = None
    await _add(live_store, "second")
    await until(lambda: gate.begun == ["first", "second"])
    gate.open.set()
    stop.set()
    await running
    assert await _done(live_store, "first", "second") == [True, True]


async def test_a_stop_lets_work_finish_within_its_time_and_a_cancel_does_not(live_store: Store) -> None:
    for cancel, stop_s, cancelled in ((False, None, 0), (False, 0.05, 1), (True, None, 1)):
        gate, stop, name = Gate(), asyncio.Event(), f"{cancel}-{stop_s}"
        await _add(live_store, name)
        worker = Errands(live_store, gate, stop_s=stop_s)
        running = asyncio.create_task(worker.run(stop))
        await until(lambda gate=gate: bool(gate.begun))  # type: ignore[misc]
        if cancel:
            running.cancel()
        stop.set()
        if stop_s is None and not cancel:
            gate.open.set()
        await asyncio.gather(running, return_exceptions=True)
        assert (gate.cancelled, worker.under_way) == (cancelled, 0)
        assert await _done(live_store, name) == [not cancelled]


async def test_working_off_ends_when_nothing_is_due_and_raises_what_failed(live_store: Store) -> None:
    async def work(id: str) -> None:
        if id == "bad":
            raise ValueError("bad errand")

    await _add(live_store, *(f"e{n}" for n in range(8)))
    worker = Errands(live_store, work)
    assert (await worker.work_off(), await worker.work_off()) == (8, 0)
    await _add(live_store, "bad")
    with pytest.raises(ValueError, match="bad errand"):
        await worker.turn()
    assert (worker.errors, "bad errand" in worker.last_error) == (1, True)
