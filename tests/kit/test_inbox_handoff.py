"""New messages handed to a worker of the same process without a claim, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

from holdfast.kit.inbox import Inbox, InboxItem, InboxLimits, InboxQueue, InboxWorker, Source, Verified
from holdfast.kit.worker_loop import cancel_all
from holdfast.model import Document
from holdfast.store import Store, Transaction, create
from holdfast.testing import ManualClock
from tests.kit.eventually import until, until_found

DOCUMENTS: list[type[Document]] = [InboxItem, InboxQueue]


class _ByName:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"])


SOURCE = Source(name="loose", verifier=_ByName())


class _Handling:
    """Handles one message after the other, each when it may go on."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go_on = asyncio.Event()

    async def handle(self, item: InboxItem, tx: Transaction) -> None:
        self.names.append(item.message_id)
        await self.go_on.wait()


@asynccontextmanager
async def _running(worker: InboxWorker) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    working = asyncio.create_task(worker.run(stop))
    await until(lambda: worker.room > 0)
    yield stop
    stop.set()
    await working


async def _receive(inbox: Inbox, name: str) -> bool:
    return (await inbox.receive(SOURCE, {"x-name": name}, b"{}")).duplicate


async def _item(store: Store, name: str) -> InboxItem:
    found = await store.privileged().get(InboxItem, f"loose_{name}")
    assert found is not None
    return found.doc


async def test_a_new_message_is_stored_as_claimed_and_processed_once(kit_store: Store) -> None:
    handling = _Handling()
    worker = InboxWorker(kit_store, {"loose": handling.handle})
    inbox = Inbox(kit_store, local_worker=worker)
    async with _running(worker):
        room = worker.room
        assert not await _receive(inbox, "m1")
        item = await _item(kit_store, "m1")
        assert (item.status, item.owner, item.fence) == ("processing", worker.owner, 1)
        assert await _receive(inbox, "m1"), "the same again is a duplicate"
        handling.go_on.set()
        await until(lambda: worker.handled == 1 and worker.room == room)
    assert (await _item(kit_store, "m1")).status == "done"
    assert handling.names == ["m1"]


async def test_only_a_worker_that_runs_and_has_room_gets_a_message(kit_store: Store) -> None:
    handling = _Handling()
    worker = InboxWorker(kit_store, {"loose": handling.handle}, limits=InboxLimits(handed_concurrency=1))
    inbox = Inbox(kit_store, local_worker=worker)
    assert worker.room == 0
    async with _running(worker):
        await _receive(inbox, "m1")
        assert worker.room == 0
        now = kit_store.clock.now()
        other = InboxItem.received(tenant_id="-", source="loose", message_id="m2", received_at=now)
        assert worker.reserve(other) is None
        assert (other.status, other.owner, other.fence) == ("pending", "", 0)
        handling.go_on.set()
        await until(lambda: worker.room == 1)
    assert worker.room == 0


async def test_while_messages_wait_to_be_claimed_new_ones_wait_behind_them(kit_store: Store) -> None:
    handling, now = _Handling(), kit_store.clock.now()
    await kit_store.privileged().commit(*(
        create(
            InboxItem.received(
                tenant_id="-", source="loose", message_id=f"m{n}", received_at=now, due_at=now
            )
        )
        for n in range(6)
    ))  # fmt: skip
    worker = InboxWorker(kit_store, {"loose": handling.handle}, limits=InboxLimits(concurrency=4))
    stop = asyncio.Event()
    working = asyncio.create_task(worker.run(stop))
    await until(lambda: len(handling.names) == 2)
    assert worker.room == 0, "one lane gets half of the places, and four are left"
    handling.go_on.set()
    await until(lambda: worker.handled == 6 and worker.room > 0)
    stop.set()
    await working


async def test_a_worker_that_stops_finishes_what_was_handed_to_it(kit_store: Store) -> None:
    handling = _Handling()
    worker = InboxWorker(kit_store, {"loose": handling.handle})
    inbox = Inbox(kit_store, local_worker=worker)
    async with _running(worker) as stop:
        await _receive(inbox, "m1")
        stop.set()
        await until(lambda: not worker.running)
        assert worker.under_way == 1
        await _receive(inbox, "m2")
        handling.go_on.set()
    assert (await _item(kit_store, "m1")).status == "done"
    assert (await _item(kit_store, "m2")).status == "pending", "it came when the worker took no more"


async def test_a_message_whose_worker_dies_is_claimed_when_its_lease_ends(
    kit_store: Store, clock: ManualClock
) -> None:
    handling, limits = _Handling(), InboxLimits(lease_s=60)
    worker = InboxWorker(kit_store, {"loose": handling.handle}, limits=limits)
    working = asyncio.create_task(worker.run(asyncio.Event()))
    await until(lambda: worker.room > 0)
    await _receive(Inbox(kit_store, local_worker=worker), "m1")
    await until(lambda: handling.names == ["m1"])
    await cancel_all([working])
    other = InboxWorker(kit_store, {"loose": handling.handle}, limits=limits)
    assert await other.turn() == 0
    handling.go_on.set()
    await clock.advance(61)

    async def processed() -> bool:
        await other.turn()
        return (await _item(kit_store, "m1")).status == "done"

    await until_found(processed)
    assert (await _item(kit_store, "m1")).fence == 2
