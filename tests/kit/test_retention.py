"""What has been kept long enough goes, on every engine."""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.kit import retention
from holdfast.kit.retention import Sweeper
from holdfast.model import Document, Retention, document
from holdfast.store import Query, Store, create
from holdfast.testing import ManualClock


@document("leaves/{id}", tenant="tenant_id", retention=Retention("fell_at", after_s=60))
class Leaf(Document):
    id: str
    tenant_id: str = "acme"
    fell_at: datetime | None = None


@document("stones/{id}")
class Stone(Document):
    id: str


DOCUMENTS: list[type[Document]] = [Leaf, Stone]


async def _leaves(store: Store) -> int:
    return len([one async for one in store.privileged().scan(Query(Leaf))])


async def test_what_is_old_enough_goes_in_every_tenant_and_the_rest_stays(
    kit_store: Store, clock: ManualClock
) -> None:
    now = clock.now()
    old = [Leaf(id=str(n), tenant_id=f"t{n % 3}", fell_at=now) for n in range(7)]
    await kit_store.privileged().commit(*map(create, old), create(Leaf(id="green")), create(Stone(id="s")))
    sweeper = Sweeper(kit_store, DOCUMENTS)
    assert await sweeper.sweep() == 0
    await clock.advance(61)
    await kit_store.privileged().commit(create(Leaf(id="fresh", fell_at=clock.now())))
    assert await sweeper.sweep() == 7
    assert await _leaves(kit_store) == 2


async def test_two_processes_sweep_together_and_each_document_goes_once(live_store: Store) -> None:
    then = live_store.clock.now().replace(year=2020)
    await live_store.privileged().commit(*(create(Leaf(id=str(n), fell_at=then)) for n in range(50)))
    gone = await asyncio.gather(*(Sweeper(live_store, DOCUMENTS).sweep() for _ in range(2)))
    assert sum(gone) == 50
    assert await _leaves(live_store) == 0


async def test_a_stop_ends_a_sweep_between_batches(live_store: Store) -> None:
    then = live_store.clock.now().replace(year=2020)
    count = retention.BATCH * 2
    for begin in range(0, count, 100):
        await live_store.privileged().commit(
            *(create(Leaf(id=f"{begin + n}", fell_at=then)) for n in range(100))
        )
    stop = asyncio.Event()
    running = asyncio.create_task(Sweeper(live_store, DOCUMENTS).run(stop))
    while await _leaves(live_store) == count:  # noqa: ASYNC110 - a sweep tells nobody
        await asyncio.sleep(0)
    stop.set()
    await running
    assert await _leaves(live_store) <= count - retention.BATCH
