"""The outbox end to end: put out, kept, claimed, signed, POSTed (1 KB), settled, by 100 callers at once.

Ours does all that the kit promises (fences, attempts, limits, one state per event and endpoint); the raw
loop does nothing but move the rows. Peers run with what their documentation calls fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from bench.floor_outbox import OWNER, FloorOutbox, FloorStore
from bench.floor_outbox_postgres import FloorPostgres
from bench.floor_outbox_sqlite import FloorSqlite
from bench.measure import SLOW_TURNS, Goal, Place, Ways, Workload
from bench.peers import Peer, through_huey, through_pgqueuer
from bench.raw_outbox import new_delivery, open_book
from bench.timing_receiver import receiving, seen
from holdfast.app import open_store
from holdfast.kit.outbox import (
    OUTBOX_MODELS,
    Dispatcher,
    Endpoint,
    Event,
    Outbox,
    Sign,
    WebhookSigner,
    new_secret,
)
from holdfast.net import AddressGuard, RawSender
from holdfast.store import Store, create, put

CALLERS = 100
STEADY_PER_S = 200
SIGN = WebhookSigner([new_secret()]).headers
FILL = secrets.token_urlsafe(753)
PutOut = Callable[[bytes], Coroutine[Any, Any, None]]


async def signing(endpoint: Endpoint) -> Sign:
    return SIGN


def new_body() -> bytes:
    return f"{time.monotonic_ns():020}{FILL}".encode()


async def by_callers(count: int, put_out: PutOut) -> None:
    numbers = iter(range(count))

    async def caller() -> None:
        for _ in numbers:
            await put_out(new_body())

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def end_to_end(count: int, put_out: PutOut, arrived: Callable[[], Awaitable[int]]) -> float:
    """Events per second from the first call until all are done."""
    started, done = time.perf_counter(), 0
    callers = asyncio.create_task(by_callers(count, put_out))
    while (done := done + await arrived()) < count:  # noqa: ASYNC110 - another process counts
        await asyncio.sleep(0.005)
    await callers
    return count / (time.perf_counter() - started)


async def steadily(count: int, put_out: PutOut, port: int) -> float:
    """The p95 in ms from creation to arrival at an even rate."""
    await seen(port)
    tasks: list[asyncio.Task[None]] = []
    started = time.monotonic()
    for n in range(count):
        await asyncio.sleep(max(0.0, started + n / STEADY_PER_S - time.monotonic()))
        tasks.append(asyncio.create_task(put_out(new_body())))
    await asyncio.gather(*tasks)
    delays: list[float] = []
    while len(delays) < count:
        delays += (await seen(port)).delays_ms
        await asyncio.sleep(0.01)
    return statistics.quantiles(delays, n=20)[-1]


class Ours:
    """A store with a dispatcher and an outbox in this process."""

    def __init__(self, store: Store, dispatcher: Dispatcher, endpoint: Endpoint) -> None:
        self.store, self.dispatcher, self.endpoint = store, dispatcher, endpoint
        self._outbox = Outbox(store, local_dispatcher=dispatcher)
        self._settled = 0

    async def put_out(self, body: bytes) -> None:
        await self._outbox.send(Event(type="thing.made", body=body), [self.endpoint])

    async def settled(self) -> int:
        """The number settled since the last call."""
        now = self.dispatcher.status().settled
        before, self._settled = self._settled, now
        return now - before


@contextlib.asynccontextmanager
async def ours_on(url: str, port: int) -> AsyncIterator[Ours]:
    store = await open_store(url, OUTBOX_MODELS.all)
    await store.migrate()
    endpoint = Endpoint(
        id="ep", url=f"http://127.0.0.1:{port}/hook", created_at=store.clock.now(), concurrency=CALLERS
    )
    await store.tenant("-").commit(put(endpoint))
    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    dispatcher = Dispatcher(store, sender, signing=signing)
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    yield Ours(store, dispatcher, endpoint)
    stop.set()
    await running
    await sender.close()
    await store.close()


async def floor_store(url: str, *, make: bool, owner: str | None) -> FloorStore:
    """Open the deliveries' table for the floor; with an owner, what it inserts is claimed."""
    if url.startswith("sqlite"):
        return FloorSqlite(url, make=make, owner=owner)
    return await FloorPostgres.open(url, make=make, owner=owner)


@contextlib.asynccontextmanager
async def floor_on(url: str, port: int, *, claims: bool = False) -> AsyncIterator[FloorOutbox]:
    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    store = await floor_store(url, make=not claims, owner=OWNER)
    outbox = FloorOutbox(store, sender, url=f"http://127.0.0.1:{port}/hook", sign=SIGN, claims=claims)
    yield outbox
    await outbox.close()
    await sender.close()


def _peer(place: Place, engine: str, port: int) -> AbstractAsyncContextManager[Peer]:
    if engine == "postgres":
        return through_pgqueuer(place.url(engine), port)
    path = place.url(engine).removeprefix("sqlite:///").partition("?")[0]
    return through_huey(path, port)


@contextlib.asynccontextmanager
async def against_peer(place: Place, engine: str) -> AsyncIterator[Ways]:
    many, few = place.scale(3_000, 1_000), place.scale(700, 300)
    with receiving() as port, receiving() as peers_port:
        async with (
            ours_on(place.url(engine), port) as ours,
            _peer(place, engine, peers_port) as peer,
            floor_on(place.url(engine), port) as floor,
        ):

            async def arrived() -> int:
                return (await seen(peers_port)).count

            async def through_peer() -> float:
                with peer.turn():
                    return await end_to_end(few, peer.put_out, arrived)

            yield Ways(
                lambda: end_to_end(many, ours.put_out, ours.settled),
                through_peer,
                lambda: end_to_end(many, floor.put_out, floor.newly_settled),
            )


@contextlib.asynccontextmanager
async def steady_against_peer(place: Place, engine: str) -> AsyncIterator[Ways]:
    count = place.scale(400, 200)
    with receiving() as port, receiving() as peers_port:
        async with ours_on(place.url(engine), port) as ours, _peer(place, engine, peers_port) as peer:

            async def through_peer() -> float:
                with peer.turn():
                    return await steadily(count, peer.put_out, peers_port)

            yield Ways(lambda: steadily(count, ours.put_out, port), through_peer)


async def _rate(count: int, put_out: PutOut) -> float:
    started = time.perf_counter()
    await by_callers(count, put_out)
    return count / (time.perf_counter() - started)


@contextlib.asynccontextmanager
async def enqueue_against_raw(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Without a dispatcher: only enqueueing is measured."""
    count = place.scale(5_000, 2_000)
    store = await open_store(place.url(engine), OUTBOX_MODELS.all)
    await store.migrate()
    endpoint = Endpoint(id="ep", url="http://127.0.0.1:9/", created_at=store.clock.now())
    outbox = Outbox(store)
    book = await open_book(place.url(engine))

    async def ours(body: bytes) -> None:
        await outbox.send(Event(type="thing.made", body=body), [endpoint])

    async def raw(body: bytes) -> None:
        await book.insert(new_delivery(body))

    yield Ways(lambda: _rate(count, ours), lambda: _rate(count, raw))
    await book.close()
    await store.close()


@contextlib.asynccontextmanager
async def beside_a_dead_receiver(place: Place, engine: str) -> AsyncIterator[Ways]:
    """The p95 to one endpoint while another has a backlog and a receiver that never answers."""
    backlog, count = place.scale(100_000, 5_000), place.scale(400, 200)
    with receiving() as port, receiving() as calm_port:
        async with ours_on(place.url(engine), port) as busy, ours_on(place.url(engine), calm_port) as calm:
            await _pile_up(busy.store, f"http://127.0.0.1:{port}/never", backlog)
            yield Ways(
                lambda: steadily(count, busy.put_out, port), lambda: steadily(count, calm.put_out, calm_port)
            )


async def _pile_up(store: Store, url: str, count: int) -> None:
    dead = Endpoint(id="dead", url=url, created_at=store.clock.now(), concurrency=50)
    home, outbox = store.tenant("-"), Outbox(store)
    await home.commit(create(dead))
    for _ in range(count // 500):
        events = [Event(type="thing.made", body=new_body()) for _ in range(500)]
        await home.settle([outbox.writes(event, [dead]) for event in events])


BOTH = ("sqlite full", "postgres")
FLOOR = "by hand on our tables"
WORKLOADS = [
    Workload(
        name="outbox end to end, 100 callers", engines=("sqlite full",), unit="events/s",
        other_name="huey", goal=Goal(10.0), floor_name=FLOOR, floor_goal=None, open=against_peer,
    ),
    Workload(
        name="outbox end to end, 100 callers", engines=("postgres",), unit="events/s",
        other_name="PGQueuer", goal=Goal(3.0), floor_name=FLOOR, floor_goal=None, open=against_peer,
    ),
    Workload(
        name="outbox p95 to arrival at 200/s", engines=("sqlite full",), unit="ms",
        other_name="huey", goal=Goal(1.0, at_most=True), open=steady_against_peer, turns=SLOW_TURNS,
    ),
    Workload(
        name="outbox p95 to arrival at 200/s", engines=("postgres",), unit="ms",
        other_name="PGQueuer", goal=Goal(1.0, at_most=True), open=steady_against_peer, turns=SLOW_TURNS,
    ),
    Workload(
        name="outbox put out, 100 callers", engines=BOTH, unit="events/s",
        other_name="raw group commit", goal=Goal(0.6), open=enqueue_against_raw,
    ),
    Workload(
        name="outbox p95 at 200/s beside 100,000 pending for a dead receiver", engines=BOTH, unit="ms",
        other_name="the same without them", goal=Goal(2.0, at_most=True), open=beside_a_dead_receiver,
        quick_name="outbox p95 at 200/s beside 5,000 pending for a dead receiver", turns=SLOW_TURNS,
    ),
]  # fmt: skip
