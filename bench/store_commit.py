"""Durable commits of one document each, by 100 callers at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bench import raw_postgres, raw_sqlite
from bench.event import Delivery, Event, events
from bench.measure import Goal, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.store import create

CALLERS = 100
RAW_LINKS = 2  # the fastest number here: one waits for the disk while the other fills


async def by_callers(keep: Callable[[Event], Awaitable[object]], batch: list[Event]) -> float:
    """Commit one document at a time by concurrent callers; return commits per second."""
    todo = iter(batch)

    async def call() -> None:
        for event in todo:
            await keep(event)

    start = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return len(batch) / (time.perf_counter() - start)


@asynccontextmanager
async def raw(place: Place, engine: str) -> AsyncIterator[Callable[[Event], Awaitable[None]]]:
    url = place.url(engine)
    if engine.startswith("sqlite"):
        group = raw_sqlite.GroupCommit(raw_sqlite.connect(url, [Event, Delivery]))
        yield group.insert
        group.close()
        return
    links = [await raw_postgres.connect(url, [Event, Delivery])]
    links += [await raw_postgres.connect(url) for _ in range(RAW_LINKS - 1)]
    several = raw_postgres.GroupCommit(links, raw_postgres.Statement(raw_postgres.INSERT))
    yield several.insert
    await several.close()
    for link in links:
        await link.close()


@asynccontextmanager
async def commits(place: Place, engine: str) -> AsyncIterator[Ways]:
    count = place.scale(3_000, 2_000)
    store = await open_store(place.url(engine), [Event, Delivery])
    await store.migrate()
    async with raw(place, engine) as insert:
        yield Ways(
            ours=lambda: by_callers(lambda event: store.commit(create(event)), events(count)),
            other=lambda: by_callers(insert, events(count)),
        )
    await store.close()


WORKLOADS = [
    Workload(
        name="commit one document, 100 callers", engines=("sqlite full", "sqlite normal", "postgres"),
        unit="commits/s", goal=Goal(0.5), other_name="raw group commit", open=commits,
    )
]  # fmt: skip
