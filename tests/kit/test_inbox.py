"""The inbox on every engine: kept once, worked on with effects that land once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from holdfast.backoff import BackOff
from holdfast.errors import RetryLaterError, TooLargeError, UnverifiedError
from holdfast.kit.inbox import Inbox, InboxItem, InboxLimits, InboxQueue, InboxWorker, Source, Verified
from holdfast.model import Document, document
from holdfast.store import Increment, Store, Transaction, create, put, upsert
from holdfast.testing import ManualClock


@document("tallies/{id}")
class Tally(Document):
    id: str
    count: int = 0
    seen: list[str] = []


DOCUMENTS: list[type[Document]] = [InboxItem, InboxQueue, Tally]


class Named:
    """Takes any message that carries a name; the key it belongs to is the name's first letter."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        if headers.get("x-proof") == "forged":
            raise UnverifiedError("forged")
        return Verified(headers["x-name"], headers["x-name"][0])


LOOSE = Source(name="loose", verifier=Named(), body_bytes_max=1_000)
ORDERED = Source(name="ordered", verifier=Named(), ordered=True)


async def _receive(inbox: Inbox, name: str, *, source: Source = LOOSE, body: bytes = b"{}") -> bool:
    secrets = {"authorization": "Bearer s", "x-vendor-secret-token": "s", "x-other-token": "s", "cookie": "s"}
    return (await inbox.receive(source, {"x-name": name} | secrets, body)).duplicate


async def tally(item: InboxItem, tx: Transaction) -> None:
    found = await tx.get(Tally, "all")
    seen = [*(found.doc.seen if found else []), item.message_id]
    tx.write(put(Tally(id="all", count=len(seen), seen=seen)))


async def _seen(store: Store) -> list[str]:
    found = await store.get(Tally, "all")
    return found.doc.seen if found else []


async def test_a_message_is_kept_as_it_came_and_the_same_again_is_a_duplicate(kit_store: Store) -> None:
    inbox = Inbox(kit_store)
    body = bytes(range(256))
    assert not await _receive(inbox, "m1", body=body)
    assert await _receive(inbox, "m1", body=b"other")
    (item,), _ = await inbox.page("pending")
    assert item.body == body
    assert item.headers == {"x-name": "m1"}, "secrets in headers are not kept"


async def test_a_forged_or_oversized_message_leaves_nothing_behind(kit_store: Store) -> None:
    inbox = Inbox(kit_store)
    with pytest.raises(UnverifiedError):
        await inbox.receive(LOOSE, {"x-name": "m", "x-proof": "forged"}, b"")
    with pytest.raises(TooLargeError):
        await _receive(inbox, "m", body=b"x" * 1_001)
    assert (await inbox.page("pending"))[0] == []


async def test_fifty_deliveries_of_one_message_are_worked_on_once(kit_store: Store) -> None:
    inbox = Inbox(kit_store)
    answers = await asyncio.gather(*(_receive(inbox, "m1") for _ in range(50)))
    assert answers.count(False) == 1
    worker = InboxWorker(kit_store, {"loose": tally})
    while await worker.turn():
        pass
    assert await _seen(kit_store) == ["m1"]


async def test_an_item_and_its_effects_land_together_under_contention(kit_store: Store) -> None:
    inbox = Inbox(kit_store)
    for number in range(12):
        await _receive(inbox, f"m{number:02}")
    workers = [InboxWorker(kit_store, {"loose": tally}) for _ in range(3)]
    while sum(await asyncio.gather(*(worker.turn() for worker in workers))):
        pass
    assert sorted(await _seen(kit_store)) == [f"m{number:02}" for number in range(12)]
    assert len((await inbox.page("done"))[0]) == 12


async def test_a_failing_item_waits_longer_each_time_and_is_parked_with_the_reason(
    kit_store: Store, clock: ManualClock
) -> None:
    async def fail(item: InboxItem, tx: Transaction) -> None:
        tx.write(create(Tally(id="never")))
        raise ValueError("no such repository")

    inbox = Inbox(kit_store)
    await _receive(inbox, "m1")
    worker = InboxWorker(
        kit_store, {"loose": fail}, limits=InboxLimits(tries_max=3, back_off=BackOff(first_s=10))
    )
    assert await worker.turn() == 1
    for wait in (10, 20):
        clock.tick(wait - 1)
        assert await worker.turn() == 0
        clock.tick(1)
        assert await worker.turn() == 1
    clock.tick(100_000)
    assert await worker.turn() == 0
    (item,), _ = await inbox.page("parked")
    assert (item.reason, item.tries) == ("no such repository", 3)
    assert await kit_store.get(Tally, "never") is None


async def test_a_parked_item_can_be_replayed_and_a_dry_run_changes_nothing(kit_store: Store) -> None:
    async def fail(item: InboxItem, tx: Transaction) -> None:
        raise ValueError("no")

    inbox = Inbox(kit_store)
    await _receive(inbox, "m1")
    await InboxWorker(kit_store, {"loose": fail}, limits=InboxLimits(tries_max=1)).turn()
    assert await inbox.replay(["loose_m1", "loose_unknown"], dry_run=True) == ["loose_m1"]
    worker = InboxWorker(kit_store, {"loose": tally})
    assert await worker.turn() == 0
    assert await inbox.replay(["loose_m1"]) == ["loose_m1"]
    assert await worker.turn() == 1
    assert await _seen(kit_store) == ["m1"]


async def test_a_message_without_use_is_ignored_with_the_reason_and_can_be_replayed(kit_store: Store) -> None:
    inbox, reasons = Inbox(kit_store), ["it asks for nothing", None]

    async def handle(item: InboxItem, tx: Transaction) -> str | None:
        return reasons.pop(0)

    worker = InboxWorker(kit_store, {"loose": handle})
    await _receive(inbox, "m1")
    await worker.turn()
    (item,), _ = await inbox.page("ignored")
    assert (item.reason, item.finished_at is not None) == ("it asks for nothing", True)
    assert await inbox.replay([item.id]) == [item.id]
    await worker.turn()
    (item,), _ = await inbox.page("done")
    assert item.reason == ""


async def test_a_provider_that_asks_for_patience_costs_no_try(kit_store: Store, clock: ManualClock) -> None:
    asked = 0

    async def wait(item: InboxItem, tx: Transaction) -> None:
        nonlocal asked
        asked += 1
        if asked < 9:
            raise RetryLaterError("quota", after_s=30)

    await _receive(Inbox(kit_store), "m1")
    worker = InboxWorker(kit_store, {"loose": wait}, limits=InboxLimits(tries_max=2))
    for _ in range(9):
        assert await worker.turn() == 1
        clock.tick(30)
    assert len((await Inbox(kit_store).page("done"))[0]) == 1


async def test_an_item_whose_worker_dies_every_time_is_parked(kit_store: Store, clock: ManualClock) -> None:
    inbox = Inbox(kit_store)
    await _receive(inbox, "m1")
    for _ in range(3):
        assert len(await kit_store.privileged().claim_due(InboxItem, limit=1, lease_s=60)) == 1
        clock.tick(61)
    worker = InboxWorker(kit_store, {"loose": tally}, limits=InboxLimits(tries_max=3))
    assert await worker.turn() == 1
    (item,), _ = await inbox.page("parked")
    assert "died" in item.reason
    assert await _seen(kit_store) == []


async def test_items_of_one_key_are_worked_on_in_the_order_they_came(
    kit_store: Store, clock: ManualClock
) -> None:
    inbox = Inbox(kit_store)
    names = ["a1", "b1", "a2", "a3", "b2"]
    for name in names:
        await _receive(inbox, name, source=ORDERED)
        clock.tick(1)
    failures = {"a1": 2}

    async def work(item: InboxItem, tx: Transaction) -> None:
        if failures.get(item.message_id, 0):
            failures[item.message_id] -= 1
            raise ValueError("not yet")
        await tally(item, tx)

    workers = [InboxWorker(kit_store, {"ordered": work}) for _ in range(2)]
    for _ in range(12):
        await asyncio.gather(*(worker.turn() for worker in workers))
        clock.tick(5)
    seen = await _seen(kit_store)
    assert sorted(seen) == sorted(names)
    assert [name for name in seen if name[0] == "a"] == ["a1", "a2", "a3"]
    assert [name for name in seen if name[0] == "b"] == ["b1", "b2"]


async def test_a_parked_item_lets_the_next_of_its_key_pass(kit_store: Store, clock: ManualClock) -> None:
    async def work(item: InboxItem, tx: Transaction) -> None:
        if item.message_id == "a1":
            raise ValueError("poison")
        await tally(item, tx)

    inbox = Inbox(kit_store)
    for name in ("a1", "a2"):
        await _receive(inbox, name, source=ORDERED)
    worker = InboxWorker(kit_store, {"ordered": work}, limits=InboxLimits(tries_max=1))
    for _ in range(4):
        await worker.turn()
    assert await _seen(kit_store) == ["a2"]
    await _receive(inbox, "a3", source=ORDERED)
    await worker.turn()
    assert await _seen(kit_store) == ["a2", "a3"]


async def test_a_replayed_item_keeps_the_order_of_its_key(kit_store: Store, clock: ManualClock) -> None:
    inbox, order = Inbox(kit_store), list[str]()

    async def work(item: InboxItem, tx: Transaction) -> None:
        order.append(item.message_id)
        if item.message_id == "a2" and order.count("a2") == 1:
            # While a2 is processed, a3 waits behind it and a1, replayed, before a3.
            assert await inbox.replay_one("ordered_a1")

    for name in ("a1", "a2", "a3"):
        await _receive(inbox, name, source=ORDERED)
    worker = InboxWorker(kit_store, {"ordered": work})
    turns = [await worker.turn() for _ in range(5)]
    assert (turns, order) == ([1, 1, 1, 1, 0], ["a1", "a2", "a1", "a3"])
    assert await inbox.replay_one("ordered_a2"), "an idle queue takes it at once"
    assert (await worker.turn(), order[-1]) == (1, "a2")


async def test_finished_items_are_pruned_and_pending_ones_stay(kit_store: Store, clock: ManualClock) -> None:
    inbox = Inbox(kit_store)
    await _receive(inbox, "m1")
    await InboxWorker(kit_store, {"loose": tally}).turn()
    await _receive(inbox, "m2")
    clock.tick(timedelta(days=15).total_seconds())
    assert await kit_store.privileged().expire(InboxItem) == 1
    assert len((await inbox.page("pending"))[0]) == 1


async def test_an_idle_queue_is_pruned_and_begins_anew_with_the_next_message(
    kit_store: Store, clock: ManualClock
) -> None:
    inbox, store = Inbox(kit_store), kit_store.privileged()
    await _receive(inbox, "a1", source=ORDERED)
    clock.tick(timedelta(days=15).total_seconds())
    assert await store.expire(InboxQueue) == 0, "one that is waited in stays"
    worker = InboxWorker(kit_store, {"ordered": tally})
    assert await worker.turn() == 1
    clock.tick(timedelta(days=15).total_seconds())
    assert await store.expire(InboxQueue) == 1
    for name in ("a2", "a3"):
        await _receive(inbox, name, source=ORDERED)
    assert [await worker.turn() for _ in range(3)] == [1, 1, 0]
    assert await _seen(kit_store) == ["a1", "a2", "a3"]


async def test_the_loop_starts_on_a_message_at_once_and_finishes_when_told_to_stop(live_store: Store) -> None:
    begun, stop = asyncio.Event(), asyncio.Event()

    async def work(item: InboxItem, tx: Transaction) -> None:
        begun.set()
        tx.write(upsert(Tally(id="n", count=1), {"count": Increment(1)}))

    loop = asyncio.create_task(InboxWorker(live_store, {"loose": work}).run(stop))
    inbox = Inbox(live_store)
    await _receive(inbox, "m1")
    await asyncio.wait_for(begun.wait(), 60)
    stop.set()
    await asyncio.wait_for(loop, 60)
    found = await live_store.get(Tally, "n")
    assert found is not None
    assert found.doc.count == 1
