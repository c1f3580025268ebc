"""Each limit of an endpoint, shown by what its receiver saw."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from holdfast.kit.outbox import (
    OUTBOX_MODELS,
    BreakerPolicy,
    Deliveries,
    Rate,
    RetryPolicy,
    Selection,
    delivery_id,
)
from holdfast.kit.rate_limit import RateLimitDocument
from holdfast.model import Document
from holdfast.store import Store
from tests.kit.eventually import until
from tests.kit.outbox_fixture import (
    FAIL,
    Slowly,
    answer,
    delivery,
    dispatching,
    endpoint_at,
    receiving,
    send,
    state_is,
)
from tests.kit.receiver import OK, Received

DOCUMENTS: list[type[Document]] = [*OUTBOX_MODELS.all, RateLimitDocument]
SLACK_S = 30.0


async def test_no_more_than_the_concurrency_is_under_way_at_once(live_store: Store) -> None:
    slowly = Slowly(0.2)
    async with receiving(slowly) as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), concurrency=3)
        await send(live_store, endpoint, *(f"evt-{n}" for n in range(15)))
        async with dispatching(live_store):
            await receiver.received(15)
    assert slowly.most == 3


async def test_an_endpoint_more_patient_than_a_lease_is_served_all_the_same(live_store: Store) -> None:
    async with receiving(lambda _: OK) as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), timeout_s=60)
        await send(live_store, endpoint, "evt-1")
        async with dispatching(live_store):
            await asyncio.wait_for(receiver.received(1), 10)


async def test_a_rate_limit_spaces_what_its_burst_lets_through(live_store: Store) -> None:
    names = [f"evt-{n}" for n in range(14)]
    async with receiving(lambda _: OK) as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), rate=Rate(per_s=20, burst=4))
        await send(live_store, endpoint, *names)
        async with dispatching(live_store):
            await receiver.received(14)
    # The moments of sending, as they were recorded: a busy machine may note arrivals late.
    kept = [one for name in names for one in await Deliveries(live_store).of_event(name)]
    sent = sorted(one.attempts[0].at.timestamp() for one in kept)
    # Four at once, then ten more at twenty a second.
    assert len(sent) == 14
    assert sent[-1] - sent[0] > 10 / 20 - 0.05
    assert max(_in_any(sent, window_s=0.25)) <= 4 + 0.25 * 20 + 1


def _in_any(times: list[float], *, window_s: float) -> list[int]:
    return [sum(start <= at < start + window_s for at in times) for start in times]


async def test_a_breaker_opens_probes_half_open_and_closes(live_store: Store) -> None:
    healthy = False
    now = most_when_open = 0

    async def say(received: Received) -> bytes:
        nonlocal now, most_when_open
        now += 1
        if len(receiver.requests) > 3 and not healthy:
            most_when_open = max(most_when_open, now)
        await asyncio.sleep(0.01)
        now -= 1
        return OK if healthy else FAIL

    breaker = BreakerPolicy(failures=3, open_s=0.5, probes=1)
    async with receiving(say) as receiver:
        endpoint = await endpoint_at(
            live_store,
            receiver.url(),
            breaker=breaker,
            concurrency=1,
            retry=RetryPolicy(waits_s=(0.01,) * 20),
        )
        await send(live_store, endpoint, *(f"evt-{n}" for n in range(12)))
        async with dispatching(live_store):
            began = time.monotonic()
            await receiver.received(3)
            await receiver.received(4)
            assert time.monotonic() - began > breaker.open_s * 0.9
            await receiver.received(5)
            assert time.monotonic() - began > 2 * breaker.open_s * 0.9
            assert most_when_open == 1
            healthy, failed = True, len(receiver.requests)
            for n in range(12):
                await state_is(live_store, f"evt-{n}", "delivered")
    # Each once more, and one that may have been under way when it got healthy.
    assert len(receiver.requests) <= failed + 1 + 12


async def test_retries_come_at_their_times(live_store: Store) -> None:
    arrived: list[float] = []

    def note(received: Received) -> bytes:
        arrived.append(time.monotonic())
        return FAIL

    # Neither sorted nor alike: in any other order one comes too early.
    waits = (0.6, 0.9, 0.3)
    async with receiving(note) as receiver, dispatching(live_store, poll_s=60.0):
        endpoint = await endpoint_at(live_store, receiver.url(), retry=RetryPolicy(waits_s=waits))
        began = time.monotonic()
        await send(live_store, endpoint, "evt-1")
        await receiver.received(4)
    late = [b - a - wait for (a, b), wait in zip(pairwise(arrived), waits, strict=True)]
    assert arrived[0] - began < SLACK_S
    assert all(0 <= one < SLACK_S for one in late), late


async def test_retry_after_is_honoured_for_the_whole_lane(live_store: Store) -> None:
    arrived: list[float] = []

    def note(received: Received) -> bytes:
        arrived.append(time.monotonic())
        return answer(429, "retry-after: 1") if len(arrived) == 1 else OK

    async with receiving(note) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(
            live_store, receiver.url(), concurrency=1, retry=RetryPolicy(waits_s=(0.01, 0.01))
        )
        await send(live_store, endpoint, "evt-1", "evt-2", "evt-3")
        for n in (1, 2, 3):
            await state_is(live_store, f"evt-{n}", "delivered")
    assert arrived[1] - arrived[0] >= 1.0


async def test_order_holds_across_retries_where_the_endpoint_wants_it(live_store: Store) -> None:
    seen: list[str] = []
    kept: list[str] = []

    def mostly_fail(received: Received) -> bytes:
        event_id = received.headers["webhook-id"]
        seen.append(event_id)
        if seen.count(event_id) < 3 and event_id in ("evt-1", "evt-4"):
            return FAIL
        kept.append(event_id)
        return OK

    async with receiving(mostly_fail) as receiver, dispatching(live_store), dispatching(live_store):
        endpoint = await endpoint_at(
            live_store, receiver.url(), fifo=True, retry=RetryPolicy(waits_s=(0.05, 0.05))
        )
        names = [f"evt-{n}" for n in range(8)]
        await asyncio.gather(*(send(live_store, endpoint, name) for name in names[:1]))
        await send(live_store, endpoint, *names[1:])
        for name in names:
            await state_is(live_store, name, "delivered")
    assert kept == names


async def test_a_dead_head_lets_the_next_one_go_and_its_replay_joins_the_line(live_store: Store) -> None:
    seen: list[str] = []
    bad = {"evt-0"}

    def say(received: Received) -> bytes:
        seen.append(received.headers["webhook-id"])
        return FAIL if seen[-1] in bad else OK

    async with receiving(say) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(
            live_store, receiver.url(), fifo=True, retry=RetryPolicy(waits_s=(0.02,))
        )
        await send(live_store, endpoint, "evt-0", "evt-1")
        await state_is(live_store, "evt-0", "dead")
        await state_is(live_store, "evt-1", "delivered")
        bad.clear()
        assert await Deliveries(live_store).replay_one(delivery_id("evt-0", "ep"))
        await state_is(live_store, "evt-0", "delivered")
        await send(live_store, endpoint, "evt-2")
        await state_is(live_store, "evt-2", "delivered")
    assert seen == ["evt-0", "evt-0", "evt-1", "evt-0", "evt-2"]


async def test_many_writers_to_an_ordered_endpoint_lose_nothing_while_it_falls_idle(
    live_store: Store,
) -> None:
    async with receiving() as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url(), fifo=True)
        for turn in range(4):
            names = [f"evt-{turn}-{n}" for n in range(6)]
            await asyncio.gather(*(send(live_store, endpoint, name) for name in names))
            for name in names:
                await state_is(live_store, name, "delivered")
    assert len(receiver.requests) == 24


async def test_cancelling_the_head_of_an_ordered_lane_lets_the_next_one_go(live_store: Store) -> None:
    async with receiving() as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), fifo=True)
        await send(live_store, endpoint, "evt-0", "evt-1")
        report = await Deliveries(live_store).cancel(
            Selection(statuses=["pending"], until=(await delivery(live_store, "evt-1")).created_at),
            dry_run=False,
        )
        assert report.changed == 1
        async with dispatching(live_store):
            await state_is(live_store, "evt-1", "delivered")
    assert [r.headers["webhook-id"] for r in receiver.requests] == ["evt-1"]


async def test_an_attempt_ends_at_its_time_limit(live_store: Store) -> None:
    async def never(received: Received) -> bytes:
        await asyncio.Event().wait()
        return OK

    async with receiving(never) as receiver, dispatching(live_store):
        endpoint = await endpoint_at(live_store, receiver.url(), timeout_s=0.3, retry=RetryPolicy(waits_s=()))
        await send(live_store, endpoint, "evt-1")
        found = await state_is(live_store, "evt-1", "dead")
    (attempt,) = found.attempts
    assert attempt.failure == "timeout"
    assert 250 <= attempt.latency_ms < 20_000


async def test_only_the_first_kb_of_an_answer_is_kept(live_store: Store) -> None:
    async with receiving(lambda received: answer(200, body="x" * 500_000)) as receiver:
        endpoint = await endpoint_at(live_store, receiver.url(), response_bytes_max=4_000)
        await send(live_store, endpoint, "evt-1")
        async with dispatching(live_store):
            found = await state_is(live_store, "evt-1", "delivered")
    assert len(found.attempts[0].excerpt) == 1_024


async def test_a_dead_receiver_does_not_hold_up_another(live_store: Store) -> None:
    async def never(received: Received) -> bytes:
        await asyncio.Event().wait()
        return OK

    async with receiving(never) as dead, receiving() as alive:
        stuck = await endpoint_at(live_store, dead.url(), "stuck", concurrency=2, timeout_s=60.0)
        await send(live_store, stuck, *(f"stuck-{n}" for n in range(30)))
        async with dispatching(live_store, drain_s=0.1) as dispatcher:
            await until(lambda: dispatcher.status().in_flight == 1)
            endpoint = await endpoint_at(live_store, alive.url())
            began = time.monotonic()
            await send(live_store, endpoint, "evt-1")
            await alive.received(1)
            assert time.monotonic() - began < 20.0
            assert dispatcher.status().in_flight >= 1
