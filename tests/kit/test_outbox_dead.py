"""What the outbox gives up: why, its one dead letter, and how it is sent again."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.errors import InvalidError
from holdfast.kit.outbox import (
    OUTBOX_MODELS,
    DeadLetter,
    Deliveries,
    Endpoint,
    EndpointNotice,
    Event,
    Outbox,
    RetryPolicy,
    Selection,
    delivery_id,
)
from holdfast.kit.outbox.deliveries import skipped_while_disabled
from holdfast.kit.outbox.models import UNDELIVERED
from holdfast.store import Query, Store, delete
from tests.kit.eventually import until
from tests.kit.outbox_fixture import (
    FAIL,
    answer,
    delivery,
    dispatching,
    endpoint_at,
    receiving,
    send,
    state_is,
)
from tests.kit.receiver import OK

DOCUMENTS = list(OUTBOX_MODELS.all)
QUICK = RetryPolicy(waits_s=(0.02, 0.02))


async def test_after_the_last_attempt_the_delivery_is_dead_and_has_one_dead_letter(live_store: Store) -> None:
    async with receiving(lambda received: FAIL) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url(), retry=QUICK)
        await send(live_store, endpoint, "evt-1")
        found = await state_is(live_store, "evt-1", "dead")
    assert [attempt.status for attempt in found.attempts] == [503, 503, 503]
    assert len({attempt.fence for attempt in found.attempts}) == 3
    (letter,) = (await Deliveries(live_store).dead_letters()).docs
    assert (letter.id, letter.deaths) == (found.id, 1)
    assert letter.reason == found.reason == "3 attempts failed; the last: HTTP 503"


async def test_a_replay_keeps_the_event_id_and_the_body_and_resolves_the_dead_letter(
    live_store: Store,
) -> None:
    said = [FAIL]
    async with receiving(lambda received: said[0]) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url(), retry=RetryPolicy(waits_s=()))
        await send(live_store, endpoint, "evt-1", "evt-2", body=b"exactly this")
        await state_is(live_store, "evt-1", "dead")
        await state_is(live_store, "evt-2", "dead")
        ledger = Deliveries(live_store)
        dry = await ledger.replay(Selection(statuses=["dead"]))
        assert (dry.matched, dry.changed, dry.dry_run) == (2, 0, True)
        assert (await delivery(live_store, "evt-1")).status == "dead"
        said[0] = OK
        report = await ledger.replay(Selection(statuses=["dead"]), dry_run=False)
        assert (report.matched, report.changed) == (2, 2)
        found = await state_is(live_store, "evt-1", "delivered")
        await state_is(live_store, "evt-2", "delivered")
    assert (found.attempt_count, found.replay_count, len(found.attempts)) == (1, 1, 2)
    seen = Counter((r.headers["webhook-id"], r.body) for r in receiver.requests)
    assert seen == {("evt-1", b"exactly this"): 2, ("evt-2", b"exactly this"): 2}
    assert (await ledger.dead_letters()).docs == []
    assert {letter.resolution for letter in (await ledger.dead_letters(resolved=True)).docs} == {"replayed"}


async def test_what_is_marked_as_dealt_with_is_not_replayed_with_the_others(live_store: Store) -> None:
    said = [FAIL]
    async with receiving(lambda received: said[0]) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url(), retry=RetryPolicy(waits_s=()))
        await send(live_store, endpoint, "evt-1", "evt-2", "evt-3")
        for id in ("evt-1", "evt-2", "evt-3"):
            await state_is(live_store, id, "dead")
        ledger, dead = Deliveries(live_store), Selection(statuses=["dead"])
        await ledger.resolve(delivery_id("evt-3", "ep"), "told them by telephone")
        assert (await ledger.replay(dead)).matched == 2
        said[0] = OK
        assert (await ledger.replay(dead, dry_run=False, limit=2)).changed == 2
        await state_is(live_store, "evt-1", "delivered")
        await state_is(live_store, "evt-2", "delivered")
        assert (await delivery(live_store, "evt-3")).status == "dead"
        assert await ledger.replay_one(delivery_id("evt-3", "ep"))
        await state_is(live_store, "evt-3", "delivered")


async def test_a_replayed_delivery_that_dies_again_reopens_its_one_dead_letter(live_store: Store) -> None:
    async with receiving(lambda received: FAIL) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url(), retry=RetryPolicy(waits_s=()))
        await send(live_store, endpoint, "evt-1")
        await state_is(live_store, "evt-1", "dead")
        assert await Deliveries(live_store).replay_one(delivery_id("evt-1", "ep"))
        await until(lambda: len(receiver.requests) == 2)
        await state_is(live_store, "evt-1", "dead")
    (letter,) = (await Deliveries(live_store).dead_letters()).docs
    assert (letter.deaths, letter.resolved) == (2, False)


async def test_what_a_receiver_says_is_wrong_is_dead_at_once(live_store: Store) -> None:
    wrong = answer(422, body="no such\x00 tenant")
    async with receiving(lambda received: wrong) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url())
        await send(live_store, endpoint, "evt-1")
        found = await state_is(live_store, "evt-1", "dead")
    assert [(a.status, a.excerpt) for a in found.attempts] == [(422, "no such\ufffd tenant")]
    assert len(receiver.requests) == 1


async def test_a_redirect_is_not_followed_and_counts_as_a_failure(live_store: Store) -> None:
    async with receiving() as elsewhere:
        moved = answer(302, f"location: {elsewhere.url()}")
        async with receiving(lambda received: moved) as receiver, dispatching(live_store):
            endpoint = await endpoint_at(live_store, receiver.url(), retry=QUICK)
            await send(live_store, endpoint, "evt-1")
            found = await state_is(live_store, "evt-1", "dead")
    assert [attempt.status for attempt in found.attempts] == [302, 302, 302]
    assert elsewhere.requests == []


async def test_a_receiver_that_is_gone_disables_its_endpoint_and_an_operator_is_told(
    live_store: Store,
) -> None:
    told: list[EndpointNotice] = []

    async def on_notice(notice: EndpointNotice) -> None:
        told.append(notice)

    gone = answer(410)
    async with receiving(lambda received: gone) as receiver, dispatching(live_store, on_notice=on_notice):
        endpoint = await endpoint_at(live_store, receiver.url(), concurrency=1)
        await send(live_store, endpoint, "evt-1")
        await state_is(live_store, "evt-1", "dead")
        await until(lambda: bool(told))
    kept = await live_store.tenant("-").query(
        Query(EndpointNotice).where("endpoint_id", "==", "ep").order_by("-at")
    )
    (notice,) = kept.docs
    assert (notice.kind, notice.reason) == ("disabled", "the receiver answered HTTP 410")
    assert told == [notice]
    found = await live_store.tenant("-").get(Endpoint, "ep")
    assert found is not None
    await Outbox(live_store).send(Event(id="evt-2", type="t", body=b"{}"), [found.doc])
    assert (await delivery(live_store, "evt-2")).status == "skipped"


async def test_what_waits_for_an_endpoint_that_is_no_more_is_dead(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    await send(live_store, endpoint, "evt-1")
    await live_store.tenant("-").commit(delete(Endpoint, "ep"))
    async with dispatching(live_store):
        found = await state_is(live_store, "evt-1", "dead")
    assert found.reason == "the endpoint is gone"
    assert await live_store.tenant("-").get(DeadLetter, found.id) is not None


async def test_a_replay_stopped_by_its_limit_goes_on_from_its_cursor(live_store: Store) -> None:
    endpoint = await endpoint_at(live_store, "http://127.0.0.1:9/")
    await send(live_store, endpoint, *(f"evt-{n}" for n in range(5)))
    ledger, waiting = Deliveries(live_store), Selection(statuses=["pending"])
    await ledger.cancel(waiting, dry_run=False)
    gone = Selection(statuses=["cancelled"])
    first = await ledger.replay(gone, dry_run=False, limit=3)
    assert (first.matched, first.changed) == (3, 3)
    rest = await ledger.replay(gone, dry_run=False, cursor=first.cursor)
    assert (rest.matched, rest.changed, rest.cursor) == (2, 2, None)
    assert len((await ledger.find(waiting)).docs) == 5


async def test_only_what_is_finished_can_be_replayed(live_store: Store) -> None:
    with pytest.raises(InvalidError):
        await Deliveries(live_store).replay(Selection(statuses=["pending"]))
    assert set(UNDELIVERED) <= {"pending", "sending", "failed", "dead"}


async def test_only_what_a_disabled_endpoint_missed_is_replayed_oldest_first(live_store: Store) -> None:
    store = live_store.tenant("-")
    endpoint = await endpoint_at(live_store, "https://a.example", status="disabled", event_types=["thing.*"])
    await send(live_store, endpoint, "e2", "e1")
    endpoint.status = "active"
    await Outbox(live_store).send(Event(id="e3", type="other.made", body=b"{}"), [endpoint])
    report = await Deliveries(store).replay(skipped_while_disabled("ep"), dry_run=False)
    assert (report.changed, report.sample) == (2, ("e2~ep", "e1~ep"))
    assert [(await delivery(live_store, id)).status for id in ("e1", "e2", "e3")] == [
        "pending", "pending", "skipped",
    ]  # fmt: skip


async def test_dead_letters_of_an_ordered_endpoint_are_replayed_in_their_order(live_store: Store) -> None:
    said, events = [FAIL], ("e3", "e1", "e2")
    async with receiving(lambda received: said[0]) as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), fifo=True, retry=RetryPolicy(waits_s=()))
        await send(live_store, endpoint, *events)
        async with dispatching(live_store):
            for event_id in events:
                await state_is(live_store, event_id, "dead")
        said[0], before = OK, len(receiver.requests)
        report = await Deliveries(live_store).replay(Selection(statuses=["dead"]), dry_run=False, limit=2)
        assert report.sample == ("e3~ep", "e1~ep")
        async with dispatching(live_store):
            await state_is(live_store, "e3", "delivered")
            await state_is(live_store, "e1", "delivered")
        arrived = [one.headers["webhook-id"] for one in receiver.requests[before:]]
    assert arrived == ["e3", "e1"]
    assert (await delivery(live_store, "e2")).status == "dead"
