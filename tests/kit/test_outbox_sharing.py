"""Many endpoints on one host: those that hang leave connections to those that answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, Dispatcher, Endpoint, Event, Outbox
from holdfast.store import Store, put
from holdfast.testing import ManualClock
from tests.kit.eventually import until
from tests.kit.outbox_fixture import Slowly, dispatching, receiving, send
from tests.kit.receiver import OK, Received, Serving

DEAD = 60
# More than there are connections to one host.
MANY = 130
EACH = 10
SLOW_S = 2.0
PROMPT_S = 20.0  # where what hangs does so for a minute


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    made = await open_store(sqlite_url, OUTBOX_MODELS.all)
    await made.migrate()
    yield made
    await made.close()


class Host:
    """Answers every path at once but those it was told to hang on, and those that are slow."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()
        self.waiting = self.slow = self.slow_most = 0

    async def say(self, received: Received) -> bytes:
        if "/dead" in received.line and self.hangs.is_set():
            self.waiting += 1
            await asyncio.Event().wait()
        if "/slow" in received.line:
            self.slow += 1
            self.slow_most = max(self.slow_most, self.slow)
            await asyncio.sleep(SLOW_S)
            self.slow -= 1
        return OK

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Serving]:
        async with receiving(self.say) as receiver:
            yield receiver


async def _endpoints(store: Store, receiver: Serving, names: Sequence[str]) -> list[Endpoint]:
    made = [
        Endpoint(
            id=name,
            url=f"http://127.0.0.1:{receiver.port}/{name}",
            created_at=store.clock.now(),
            timeout_s=60.0,
        )
        for name in names
    ]
    await store.tenant("-").commit(*(put(one) for one in made))
    return made


async def _pile_up(store: Store, endpoints: Sequence[Endpoint], label: str) -> None:
    outbox = Outbox(store)
    events = [Event(id=f"{label}-{n}", type="thing.made", body=b"{}") for n in range(EACH)]
    await store.tenant("-").settle([outbox.writes(event, endpoints) for event in events])


async def _arrives(store: Store, receiver: Serving, endpoint: Endpoint, event_id: str) -> float:
    """How long a delivery to this endpoint takes, in seconds."""
    began = time.monotonic()
    await send(store, endpoint, event_id)
    await until(lambda: any(one.headers["webhook-id"] == event_id for one in receiver.requests))
    return time.monotonic() - began


async def _quickest(store: Store, receiver: Serving, endpoint: Endpoint, *, label: str) -> float:
    """The quickest of five: a busy moment of the machine must not fail a test."""
    return min([await _arrives(store, receiver, endpoint, f"{label}-{n}") for n in range(5)])


async def test_endpoints_that_hang_from_the_start_do_not_delay_another_on_their_host(store: Store) -> None:
    host = Host()
    host.hangs.set()
    async with host.serving() as receiver:
        *dead, alive = await _endpoints(store, receiver, [*(f"dead-{n}" for n in range(DEAD)), "alive"])
        await _pile_up(store, dead, "dead")
        async with dispatching(store, drain_s=0.1) as dispatcher:
            await until(lambda: host.waiting >= DEAD)
            assert await _arrives(store, receiver, alive, "evt-1") < PROMPT_S
            assert _in_flight(dispatcher) >= DEAD


async def test_endpoints_that_answered_and_then_hang_do_not_delay_another_on_their_host(store: Store) -> None:
    host = Host()
    async with host.serving() as receiver:
        *dead, alive = await _endpoints(store, receiver, [*(f"dead-{n}" for n in range(DEAD)), "alive"])
        async with dispatching(store, drain_s=0.1) as dispatcher:
            await Outbox(store).send(Event(id="before", type="thing.made", body=b"{}"), [*dead, alive])
            await receiver.received(DEAD + 1)
            host.hangs.set()
            await _pile_up(store, dead, "dead")
            await until(lambda: host.waiting >= DEAD)
            assert await _arrives(store, receiver, alive, "evt-1") < PROMPT_S
            assert _in_flight(dispatcher) >= DEAD


async def test_however_many_hang_one_that_is_known_to_answer_is_not_delayed(store: Store) -> None:
    host = Host()
    host.hangs.set()
    async with host.serving() as receiver:
        *dead, alive = await _endpoints(store, receiver, [*(f"dead-{n}" for n in range(MANY)), "alive"])
        async with dispatching(store, drain_s=0.1):
            await _arrives(store, receiver, alive, "evt-1")
            await _pile_up(store, dead, "dead")
            await until(lambda: host.waiting >= 80)
            assert await _arrives(store, receiver, alive, "evt-2") < PROMPT_S


async def test_endpoints_that_answer_slowly_leave_connections_to_one_that_is_prompt(store: Store) -> None:
    host = Host()
    async with host.serving() as receiver:
        # Two at once for each are more than the host has connections.
        *slow, prompt = await _endpoints(store, receiver, [*(f"slow-{n}" for n in range(DEAD)), "prompt"])
        async with dispatching(store, drain_s=0.1) as dispatcher:
            await _arrives(store, receiver, prompt, "evt-0")
            await _pile_up(store, slow, "slow")
            await until(lambda: host.slow >= 90)
            assert await _quickest(store, receiver, prompt, label="before") < SLOW_S / 2
            # The slow ones use all of their share, and none fails for having waited for its turn.
            await until(lambda: dispatcher.status().counts.delivered >= DEAD + 2 * 90)
            assert (host.slow_most, dispatcher.status().counts.failed) == (90, 0)
            assert await _quickest(store, receiver, prompt, label="after") < SLOW_S / 2


async def test_endpoints_that_hang_leave_connections_to_slow_ones(store: Store) -> None:
    host = Host()
    host.hangs.set()
    async with host.serving() as receiver:
        names = [*(f"dead-{n}" for n in range(MANY)), "slow-1"]
        *dead, slow = await _endpoints(store, receiver, names)
        async with dispatching(store, drain_s=0.1):
            await _arrives(store, receiver, slow, "evt-1")
            await until(lambda: host.slow == 0)
            await _pile_up(store, dead, "dead")
            await until(lambda: host.waiting >= 80)
            assert await _arrives(store, receiver, slow, "evt-2") < PROMPT_S


async def test_a_receiver_that_answers_slowly_gets_as_many_at_once_as_it_may(store: Store) -> None:
    slowly = Slowly(0.3)
    async with receiving(slowly) as receiver:
        (endpoint,) = await _endpoints(store, receiver, ["slow"])
        for n in range(4):
            await _pile_up(store, [endpoint], f"slow-{n}")
        async with dispatching(store):
            await receiver.received(4 * EACH)
    assert slowly.most == endpoint.concurrency


def _in_flight(dispatcher: Dispatcher) -> int:
    return dispatcher.status().in_flight


async def test_a_send_in_flight_delays_the_next_claim_by_less_than_a_millisecond(
    sqlite_url: str, clock: ManualClock
) -> None:
    store, answered = await open_store(sqlite_url, OUTBOX_MODELS.all, clock=clock), asyncio.Event()
    await store.migrate()

    async def say(received: Received) -> bytes:
        if "/slow" in received.line:
            await answered.wait()
        return OK

    async with receiving(say) as receiver, dispatching(store) as dispatcher:
        slow, prompt = await _endpoints(store, receiver, ["slow", "prompt"])
        await send(store, slow, "first")
        await receiver.received(1)
        await send(store, prompt, "second")
        await clock.advance(0.001)
        async with asyncio.timeout(30):
            await receiver.received(2)
        assert dispatcher.status().counts.failed == 0  # the first was still waited for
        answered.set()
    await store.close()
