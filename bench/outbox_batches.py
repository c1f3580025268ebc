"""Events enqueued in batches of 100 or one by one, each durable before the next begins; nothing is sent.

Ours is `Outbox.send_many`, or `Outbox.send`. The peer is PGQueuer's batch call; the bare loop inserts into
the smallest table that a sender could claim from, one statement a batch. The floor inserts the same documents
as ours into our table and keeps our promises (`floor_deliveries`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import asyncpg
import msgspec
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench import raw_sqlite
from bench.floor_deliveries import FloorDeliveries, open_floor
from bench.kit_outbox import new_body
from bench.measure import Goal, Place, Workload, beside
from holdfast import ids
from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, Endpoint, Event, Outbox
from holdfast.store import create

BATCH = 100
Enqueue = Callable[[Sequence[bytes]], Awaitable[None]]


async def through_holdfast(url: str) -> AsyncIterator[Enqueue]:
    store = await open_store(url, OUTBOX_MODELS.all)
    await store.migrate()
    endpoint = Endpoint(id="ep", url="http://127.0.0.1:9/", created_at=store.clock.now())
    await store.tenant("-").commit(create(endpoint))
    outbox = Outbox(store)

    async def enqueue(bodies: Sequence[bytes]) -> None:
        events = [Event(type="thing.made", body=body) for body in bodies]
        await (
            outbox.send(events[0], [endpoint]) if len(events) == 1 else outbox.send_many(events, [endpoint])
        )

    yield enqueue
    await store.close()


async def through_pgqueuer(url: str) -> AsyncIterator[Enqueue]:
    async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()

        async def enqueue(bodies: Sequence[bytes]) -> None:
            await queries.enqueue(["deliver"] * len(bodies), list(bodies), [0] * len(bodies))

        yield enqueue


async def bare_sqlite(url: str) -> AsyncIterator[Enqueue]:
    link = raw_sqlite.connect(url, cached=False)
    link.execute(
        "CREATE TABLE events (id TEXT PRIMARY KEY, due INTEGER, body TEXT);"
        " CREATE INDEX by_due ON events (due)"
    )
    insert = "INSERT INTO events SELECT value ->> 0, ?, value ->> 1 FROM json_each(?)"

    async def enqueue(bodies: Sequence[bytes]) -> None:
        rows = msgspec.json.encode([(ids.ulid(), body.decode()) for body in bodies]).decode()
        link.execute(insert, (time.time_ns() // 1_000, rows))

    yield enqueue
    link.close()


async def bare_postgres(url: str) -> AsyncIterator[Enqueue]:
    link = await asyncpg.connect(url)
    await link.execute(
        "CREATE TABLE events (id text PRIMARY KEY, due bigint, body text); CREATE INDEX ON events (due)"
    )
    insert = await link.prepare(
        "INSERT INTO events SELECT i, $3, b FROM unnest($1::text[], $2::text[]) AS n(i, b)"
    )

    async def enqueue(bodies: Sequence[bytes]) -> None:
        names, texts = [ids.ulid() for _ in bodies], [body.decode() for body in bodies]
        await insert.fetch(names, texts, time.time_ns() // 1_000)

    yield enqueue
    await link.close()


def bare(url: str) -> AsyncIterator[Enqueue]:
    return bare_sqlite(url) if url.startswith("sqlite") else bare_postgres(url)


def enqueue_to(deliveries: FloorDeliveries) -> Enqueue:
    async def enqueue(bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await deliveries.put_out(bodies[0], "thing.made")
        else:
            await deliveries.put_out_many(bodies, "thing.made")

    return enqueue


async def floor(url: str) -> AsyncIterator[Enqueue]:
    """The same promises kept by hand, on our table with our indexes and documents."""
    deliveries = await open_floor(url)
    yield enqueue_to(deliveries)
    await deliveries.close()


async def events_per_s(size: int, enqueue: Enqueue, place: Place) -> float:
    # So many that each way on SQLite meets a checkpoint in most turns.
    batches = place.scale(120, 20) if size > 1 else place.scale(600, 200)
    given = [[new_body() for _ in range(size)] for _ in range(batches)]
    started = time.perf_counter()
    for bodies in given:
        await enqueue(bodies)
    return batches * size / (time.perf_counter() - started)


_BATCHES, _SINGLY = partial(events_per_s, BATCH), partial(events_per_s, 1)
NAME, FLOOR = "events enqueued in batches of 100", "the driver on our table"
WORKLOADS = [
    Workload(
        name=NAME, engines=("postgres",), unit="events/s", goal=Goal(1.5), other_name="PGQueuer",
        floor_name=FLOOR, floor_goal=None,
        open=beside(through_holdfast, through_pgqueuer, floor, figure=_BATCHES),
    ),
    Workload(
        name=NAME, engines=("sqlite full", "postgres"), unit="events/s", goal=Goal(0.6),
        other_name="a bare loop", floor_name=FLOOR,
        open=beside(through_holdfast, bare, floor, figure=_BATCHES),
    ),
    *(
        Workload(
            name="one caller: one event put out", engines=(engine,), unit="events/s", goal=Goal(goal),
            other_name="a bare loop", floor_name=FLOOR,
            open=beside(through_holdfast, bare, floor, figure=_SINGLY),
        )
        for engine, goal in (("sqlite full", 0.6), ("postgres", 0.9))
    ),
]  # fmt: skip
