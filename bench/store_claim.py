"""Claiming due documents and settling them, a hundred at a time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench import raw_postgres, raw_sqlite
from bench.event import Delivery, Event, deliveries
from bench.measure import Goal, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.clock import to_us
from holdfast.store import Committed, Store, create, patch

BATCH = 100
Turn = Callable[[], Awaitable[int]]


async def fill(store: Store, count: int) -> None:
    made = deliveries(count)
    for start in range(0, count, 500):
        await store.settle([[create(one)] for one in made[start : start + 500]])


async def tidy(url: str) -> None:
    """As autovacuum does eventually, for both before each turn."""
    if url.startswith("postgres"):
        link = await raw_postgres.connect(url)
        await link.execute("VACUUM ANALYZE deliveries")
        await link.close()


async def drained(turn: Turn) -> float:
    """Claim and settle until nothing is due; return documents per second."""
    done, start = 0, time.perf_counter()
    while taken := await turn():
        done += taken
    return done / (time.perf_counter() - start)


async def through_store(store: Store) -> int:
    taken = await store.claim_due(Delivery, limit=BATCH, lease_s=60, owner="worker")
    changes = {"status": "delivered", "due": None}
    settled = await store.settle([[patch(Delivery, s.key, changes=changes, expect=s.fenced)] for s in taken])
    assert all(isinstance(outcome, Committed) for outcome in settled)
    return len(taken)


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Callable[[Store], Awaitable[int]]]:
    if url.startswith("sqlite"):
        file = raw_sqlite.connect(url)

        async def turn(store: Store) -> int:
            taken = raw_sqlite.claim(file, to_us(store.clock.now()), BATCH)
            raw_sqlite.settle(file, taken)
            return len(taken)

        yield turn
        file.close()
        return
    link: Any = await raw_postgres.connect(url)

    async def served(store: Store) -> int:
        taken = await raw_postgres.claim(link, store.clock.now(), BATCH)
        await raw_postgres.settle(link, taken)
        return len(taken)

    yield served
    await link.close()


@asynccontextmanager
async def claims(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Both implementations in stores of their own, filled alike before each turn."""
    count = place.scale(4_000, 1_000)
    urls = [place.url(engine) for _ in range(2)]
    mine, theirs = [await open_store(url, [Event, Delivery]) for url in urls]
    await mine.migrate()
    await theirs.migrate()
    async with raw(urls[1]) as turn:

        async def ours() -> float:
            await fill(mine, count)
            await tidy(urls[0])
            return await drained(lambda: through_store(mine))

        async def other() -> float:
            await fill(theirs, count)
            await tidy(urls[1])
            return await drained(lambda: turn(theirs))

        yield Ways(ours, other)
    await mine.close()
    await theirs.close()


WORKLOADS = [
    Workload(
        name="claim + settle, batches of 100", engines=("sqlite full", "sqlite normal", "postgres"),
        unit="documents/s", goal=Goal(0.5), other_name="raw claim and settle", open=claims,
    )
]  # fmt: skip
