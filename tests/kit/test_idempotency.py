"""Idempotency: the work is done once, and everybody gets the same answer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import (
    AlreadyExistsError,
    InProgressError,
    InvalidError,
    KeyReusedError,
    LeaseLostError,
    TooLargeError,
)
from holdfast.kit import NO_TENANT
from holdfast.kit.idempotency import (
    Done,
    Idempotency,
    IdempotencyDocument,
    IdempotencyFields,
    StoredResponse,
    Ticket,
)
from holdfast.model import Claim, Document, Retention, document
from holdfast.store.commit import create, patch, upsert
from holdfast.store.store import Store
from holdfast.store.transforms import Increment
from holdfast.testing import ManualClock


@document("orders_made/{id}", tenant="tenant_id")
class Order(Document):
    id: str
    tenant_id: str = NO_TENANT
    made: int = 1


@document(
    "gwi_idempotency/{id}",
    tenant="tenant_id",
    claim=Claim(due="held_until", owner="held_by"),
    retention=Retention("expires_at"),
)
class OwnRecord(IdempotencyFields, rename="camel"):
    """Records under a service's own collection name."""


DOCUMENTS = [IdempotencyDocument, OwnRecord, Order]
ANSWER = StoredResponse(
    status=201, body={"id": "o-1", "lines": [1, 2.5, None, "ü"]}, headers={"location": "/o-1"}
)


async def _order(ticket: Ticket) -> Done:
    """Work whose repetition shows: the count grows."""
    return Done(ANSWER, [upsert(Order(id="o-1"), changes={"made": Increment(1)})])


async def _never(ticket: Ticket) -> Done:
    raise AssertionError("this work must not be done")


async def _made(store: Store) -> int:
    found = await store.tenant(NO_TENANT).get(Order, "o-1")
    return 0 if found is None else found.doc.made


async def test_fifty_at_once_do_the_work_once_and_all_get_the_same_answer(live_store: Store) -> None:
    idempotency = Idempotency(live_store)
    together = asyncio.Barrier(50)

    async def call() -> tuple[StoredResponse, bool]:
        await together.wait()
        given = await idempotency.run("k", b"body", _order, wait_s=30)
        return given.answer, given.replayed

    got = await asyncio.gather(*(call() for _ in range(50)))
    assert [answer for answer, _ in got] == [ANSWER] * 50
    assert sum(not replayed for _, replayed in got) == 1
    assert await _made(live_store) == 1


async def test_the_same_key_with_another_body_is_refused(kit_store: Store) -> None:
    idempotency = Idempotency(kit_store)
    await idempotency.run("k", {"a": 1}, _order)
    with pytest.raises(KeyReusedError):
        await idempotency.run("k", {"a": 2}, _never)
    assert await _made(kit_store) == 1


async def test_while_somebody_works_a_caller_is_told_when_to_ask_again(kit_store: Store) -> None:
    idempotency = Idempotency(kit_store, processing_s=300)
    assert isinstance(await idempotency.begin("k", b"body"), Ticket)
    with pytest.raises(InProgressError) as told:
        await idempotency.run("k", b"body", _never)
    assert told.value.after_s == 300


async def test_work_whose_time_is_over_is_taken_over_and_the_late_answer_is_refused(
    kit_store: Store, clock: ManualClock
) -> None:
    idempotency, store = Idempotency(kit_store, processing_s=300), kit_store.tenant(NO_TENANT)
    late = await idempotency.begin("k", b"body")
    assert isinstance(late, Ticket)
    await clock.advance(300)
    given = await idempotency.run("k", b"body", _order)
    assert given.answer == ANSWER
    with pytest.raises(LeaseLostError):
        await store.commit(
            *idempotency.writes_complete(late, StoredResponse(body="late")), create(Order(id="o-late"))
        )
    with pytest.raises(LeaseLostError):
        await store.commit(idempotency.guard(late))
    assert await store.get(Order, "o-late") is None
    assert (await idempotency.run("k", b"body", _never)).answer == ANSWER


async def test_a_worker_that_was_overtaken_gets_the_answer_of_the_other(
    kit_store: Store, clock: ManualClock
) -> None:
    idempotency = Idempotency(kit_store, processing_s=300)

    async def slow(ticket: Ticket) -> Done:
        await clock.advance(301)
        await idempotency.run("k", b"body", _order)
        return Done(StoredResponse(body="slow"), [create(Order(id="o-slow"))])

    given = await idempotency.run("k", b"body", slow)
    assert (given.answer, given.replayed) == (ANSWER, True)
    assert await kit_store.tenant(NO_TENANT).get(Order, "o-slow") is None


@pytest.mark.parametrize(("failed", "kept_s"), [(False, 86_400), (True, 3_600)])
async def test_an_answer_is_given_until_it_expires(
    kit_store: Store, clock: ManualClock, failed: bool, kept_s: int
) -> None:
    idempotency = Idempotency(kit_store)

    async def first(ticket: Ticket) -> Done:
        return Done(StoredResponse(body="first", failed=failed))

    await idempotency.run("k", b"body", first)
    await clock.advance(kept_s - 1)
    assert (await idempotency.run("k", b"body", _never)).answer.body == "first"
    assert await kit_store.privileged().expire(IdempotencyDocument) == 0
    await clock.advance(1)
    assert (await idempotency.run("k", b"another", _order)).answer == ANSWER


async def test_expired_records_are_removed(kit_store: Store, clock: ManualClock) -> None:
    idempotency = Idempotency(kit_store)
    await idempotency.run("k", b"body", _order)
    await idempotency.begin("abandoned", b"body")
    await clock.advance(86_401)
    assert await kit_store.privileged().expire(IdempotencyDocument) == 2


async def test_work_that_raises_keeps_nothing_and_leaves_the_key_free(kit_store: Store) -> None:
    idempotency = Idempotency(kit_store)

    async def breaks(ticket: Ticket) -> Done:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await idempotency.run("k", b"body", breaks)
    assert (await idempotency.run("k", b"body", _order)).replayed is False


async def test_work_whose_commit_is_refused_leaves_the_key_free(kit_store: Store) -> None:
    idempotency = Idempotency(kit_store)
    await kit_store.tenant(NO_TENANT).commit(create(Order(id="taken")))

    async def clashes(ticket: Ticket) -> Done:
        return Done(ANSWER, [create(Order(id="taken"))])

    with pytest.raises(AlreadyExistsError):
        await idempotency.run("k", b"body", clashes)
    assert (await idempotency.run("k", b"body", _order)).replayed is False


async def test_cancelled_work_leaves_the_key_free(live_store: Store) -> None:
    idempotency = Idempotency(live_store)
    begun = asyncio.Event()

    async def hangs(ticket: Ticket) -> Done:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(idempotency.run("k", b"body", hangs))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await idempotency.run("k", b"body", _order)).replayed is False


async def test_tenants_use_the_same_key_for_their_own(kit_store: Store) -> None:
    acme, beta = Idempotency(kit_store.tenant("acme")), Idempotency(kit_store.tenant("beta"))

    async def answer(text: str) -> Done:
        return Done(StoredResponse(body=text))

    await acme.run("k", b"a", lambda _: answer("acme"))
    assert (await beta.run("k", b"b", lambda _: answer("beta"))).answer.body == "beta"
    assert (await acme.run("k", b"a", _never)).answer.body == "acme"


async def test_a_caller_can_join_the_answer_to_its_own_commit(kit_store: Store) -> None:
    idempotency, store = Idempotency(kit_store, kind=OwnRecord), kit_store.tenant(NO_TENANT)
    await store.commit(create(Order(id="o-1")))
    ticket = await idempotency.begin("k", b"body")
    assert isinstance(ticket, Ticket)
    await store.commit(
        patch(Order, "o-1", changes={"made": Increment(1)}), *idempotency.writes_complete(ticket, ANSWER)
    )
    assert await idempotency.begin("k", b"body") == ANSWER


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_is_neither_empty_nor_endless(kit_store: Store, key: str) -> None:
    with pytest.raises(InvalidError):
        await Idempotency(kit_store).begin(key, b"")


async def test_an_answer_too_large_to_keep_is_refused_before_anything_is_written(kit_store: Store) -> None:
    idempotency = Idempotency(kit_store)

    async def huge(ticket: Ticket) -> Done:
        return Done(StoredResponse(body="x" * 300_000), [create(Order(id="o-1"))])

    with pytest.raises(TooLargeError):
        await idempotency.run("k", b"body", huge)
    assert await _made(kit_store) == 0
