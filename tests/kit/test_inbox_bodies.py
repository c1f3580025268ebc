"""Large bodies on every engine: kept whole, handled whole, pruned with their item, orphans too."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Mapping
from datetime import datetime

import pytest

from holdfast.errors import DeclarationError, HoldfastError
from holdfast.kit.inbox import (
    Inbox,
    InboxChunk,
    InboxItem,
    InboxLimits,
    InboxQueue,
    InboxUpload,
    InboxWorker,
    Source,
    Verified,
)
from holdfast.kit.inbox.body import CHUNK_BYTES, CHUNKS_PER_COMMIT, INLINE_BYTES_MAX, store_body
from holdfast.kit.inbox.models import KEEP_FINISHED_S, UPLOAD_S_MAX
from holdfast.kit.inbox.source import BODY_BYTES_MAX
from holdfast.kit.retention import Sweeper
from holdfast.model import Document
from holdfast.store import Query, Store, Transaction
from holdfast.testing import ManualClock

DOCUMENTS: list[type[Document]] = [InboxItem, InboxQueue, InboxChunk, InboxUpload]
LARGE = CHUNKS_PER_COMMIT * CHUNK_BYTES + 1


class Named:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"], "k")


SOURCE = Source(name="large", verifier=Named(), body_bytes_max=BODY_BYTES_MAX)
ORDERED = Source(name="large", verifier=Named(), body_bytes_max=BODY_BYTES_MAX, ordered=True)


def _body(size: int) -> bytes:
    return random.Random(size).randbytes(size)


async def _count(store: Store, cls: type[Document]) -> int:
    return len([key async for keys in store.privileged().select(Query(cls)) for key in keys])


async def _documents(store: Store) -> list[int]:
    return [await _count(store, cls) for cls in (InboxItem, InboxChunk, InboxUpload)]


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, LARGE])
async def test_a_body_of_any_size_is_kept_handled_and_pruned(
    kit_store: Store, clock: ManualClock, size: int
) -> None:
    seen: list[str] = []

    async def digest(item: InboxItem, tx: Transaction) -> None:
        seen.append(hashlib.sha256(item.body).hexdigest())

    inbox, body = Inbox(kit_store), _body(size)
    source = ORDERED if size == LARGE else SOURCE
    assert not (await inbox.receive(source, {"x-name": "m"}, body)).duplicate
    assert (await inbox.receive(source, {"x-name": "m"}, body)).duplicate
    chunks = 0 if size <= INLINE_BYTES_MAX else -(-size // CHUNK_BYTES)
    assert await _documents(kit_store) == [1, chunks, 0]
    assert await InboxWorker(kit_store, {"large": digest}).turn() == 1
    assert seen == [hashlib.sha256(body).hexdigest()]
    ((item,), _) = await inbox.page("done")
    assert (await inbox.body(item), item.body_bytes) == (body, size)
    clock.tick(KEEP_FINISHED_S + 1)
    assert await Sweeper(kit_store, [InboxItem, InboxUpload]).sweep() == 1
    assert await _documents(kit_store) == [0, 0, 0]


async def test_one_of_two_equal_deliveries_at_once_is_kept_and_leaves_no_chunk_of_the_other(
    kit_store: Store,
) -> None:
    inbox, body = Inbox(kit_store), _body(LARGE)
    receipts = await asyncio.gather(*(inbox.receive(SOURCE, {"x-name": "m"}, body) for _ in range(2)))
    assert sorted(one.duplicate for one in receipts) == [False, True]
    assert await _documents(kit_store) == [1, CHUNKS_PER_COMMIT + 1, 0]
    ((item,), _) = await inbox.page("pending")
    assert await inbox.body(item) == body


async def test_chunks_of_an_upload_that_was_never_finished_are_pruned(
    kit_store: Store, clock: ManualClock
) -> None:
    item = InboxItem.received(tenant_id="acme", source="large", message_id="m", received_at=clock.now())
    await store_body(kit_store.privileged(), item, _body(LARGE))
    assert await _documents(kit_store) == [0, CHUNKS_PER_COMMIT + 1, 1]
    sweeper = Sweeper(kit_store, DOCUMENTS)
    clock.tick(UPLOAD_S_MAX)
    assert await sweeper.sweep() == 0
    clock.tick(1)
    assert await sweeper.sweep() == 1
    assert await _documents(kit_store) == [0, 0, 0]


async def test_an_upload_that_was_pruned_meanwhile_does_not_become_a_message(
    kit_store: Store, clock: ManualClock
) -> None:
    item = InboxItem.received(tenant_id="acme", source="large", message_id="m", received_at=clock.now())
    last = await store_body(kit_store.privileged(), item, _body(LARGE))
    clock.tick(UPLOAD_S_MAX + 1)
    await Sweeper(kit_store, DOCUMENTS).sweep()
    with pytest.raises(HoldfastError):
        await kit_store.privileged().commit(*last)


async def test_large_bodies_beyond_those_that_fit_in_memory_wait_without_costing_a_try(
    kit_store: Store, clock: ManualClock
) -> None:
    open_now, seen = 0, list[int]()

    async def work(item: InboxItem, tx: Transaction) -> None:
        nonlocal open_now
        open_now += 1
        seen.append(open_now)
        await asyncio.sleep(0)
        open_now -= 1

    inbox = Inbox(kit_store)
    for name in "abc":
        await inbox.receive(SOURCE, {"x-name": name}, _body(INLINE_BYTES_MAX + 1))
    worker = InboxWorker(
        kit_store, {"large": work}, limits=InboxLimits(concurrency=8, large_concurrency=1, tries_max=1)
    )
    while len(seen) < 3:
        await worker.turn()
        clock.tick(1)
    assert seen == [1, 1, 1]
    assert len((await inbox.page("done"))[0]) == 3


def test_a_source_can_t_take_more_than_the_inbox_can_keep() -> None:
    with pytest.raises(DeclarationError, match="at most"):
        Source(name="s", verifier=Named(), body_bytes_max=BODY_BYTES_MAX + 1)
