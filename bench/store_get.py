"""Reading one document by its id, decoded into its class."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench import raw_postgres, raw_sqlite
from bench.event import Delivery, Event, events
from bench.measure import Goal, Open, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.store import Store, create

CALLERS = 10
DOCUMENTS = 20_000
_DECODE = msgspec.json.Decoder(Event).decode


async def filled(url: str) -> tuple[Store, list[str]]:
    store = await open_store(url, [Event, Delivery])
    await store.migrate()
    kept = events(DOCUMENTS)
    for start in range(0, DOCUMENTS, 500):
        await store.settle([[create(event)] for event in kept[start : start + 500]])
    ids = [event.id for event in kept]
    random.Random(1).shuffle(ids)
    return store, ids


@asynccontextmanager
async def embedded(place: Place, engine: str) -> AsyncIterator[Ways]:
    """One caller; both read the same file."""
    url = place.url(engine)
    store, ids = await filled(url)
    ids = ids[: place.scale(10_000, 3_000)]
    link = raw_sqlite.connect(url)

    async def ours() -> float:
        start = time.perf_counter()
        for id in ids:
            assert await store.get(Event, id) is not None
        return len(ids) / (time.perf_counter() - start)

    async def other() -> float:
        start = time.perf_counter()
        for id in ids:
            row = link.execute(raw_sqlite.GET, (id,)).fetchone()
            assert row is not None
            assert _DECODE(row[0]) is not None
        return len(ids) / (time.perf_counter() - start)

    yield Ways(ours, other)
    link.close()
    await store.close()


async def _by_callers(gets: Sequence[Callable[[str], Awaitable[Any]]], ids: list[str]) -> float:
    """Concurrent callers that read one document at a time; return documents per second."""
    todo = iter(ids)

    async def call(get: Callable[[str], Awaitable[Any]]) -> None:
        for id in todo:
            assert await get(id) is not None

    start = time.perf_counter()
    await asyncio.gather(*(call(get) for get in gets))
    return len(ids) / (time.perf_counter() - start)


@asynccontextmanager
async def served(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Ten callers, as in a server; the other implementation has a connection for each."""
    url = place.url(engine)
    store, ids = await filled(url)
    ids = ids[: place.scale(4_000, 1_500)]
    links: list[Any] = [await raw_postgres.connect(url) for _ in range(CALLERS)]

    def raw(link: Any) -> Callable[[str], Awaitable[Event]]:
        async def get(id: str) -> Event:
            return _DECODE(await link.fetchval(raw_postgres.GET, id))

        return get

    yield Ways(
        ours=lambda: _by_callers([lambda id: store.get(Event, id)] * CALLERS, ids),
        other=lambda: _by_callers([raw(link) for link in links], ids),
    )
    for link in links:
        await link.close()
    await store.close()


def _workload(engine: str, open: Open) -> Workload:
    return Workload(
        name="get by id", engines=(engine,), unit="gets/s", goal=Goal(0.6),
        other_name="raw driver + msgspec", open=open,
    )  # fmt: skip


WORKLOADS = [_workload("sqlite full", embedded), _workload("postgres", served)]
