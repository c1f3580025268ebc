"""One caller, one document at a time: create, update, get, and a page of 20 by an index.

The bare loop is written for speed alone: the smallest table that holds the document and serves the page, one
connection, the driver called in place, no rule, no version. Each write is durable before the next begins. An
update reads the document, changes a field and writes it back, in both. The floor of a create is the driver's
insert into our table with its indexes, on SQLite from another thread, as a loop that must go on needs it.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import apsw
import asyncpg
import msgspec

from bench.event import Delivery, Event, events
from bench.measure import Goal, Open, Pair, Place, Workload
from bench.store_commit import raw
from holdfast.app import open_store
from holdfast.store import Query, Store, create, patch

DOCUMENTS, PAGE = 20_000, 20
_DECODE, _ENCODE = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode
_SELECT_PAGE = "SELECT body FROM documents WHERE kind = {} ORDER BY received DESC LIMIT 20"


class Documents(Protocol):
    """One way of storing documents."""

    async def create(self, event: Event) -> None: ...
    async def update(self, id: str, weight: float) -> None: ...
    async def get(self, id: str) -> Event: ...
    async def page(self, kind: str) -> list[Event]: ...
    async def close(self) -> None: ...


class Ours:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, event: Event) -> None:
        await self._store.commit(create(event))

    async def update(self, id: str, weight: float) -> None:
        await self._store.commit(patch(Event, id, changes={"weight": weight}))

    async def get(self, id: str) -> Event:
        found = await self._store.get(Event, id)
        assert found is not None
        return found.doc

    async def page(self, kind: str) -> list[Event]:
        query = Query(Event).where("kind", "==", kind).order_by("-received_ms").limit(PAGE)
        return (await self._store.query(query)).docs

    async def close(self) -> None:
        await self._store.close()


class BareSqlite:
    def __init__(self, link: apsw.Connection) -> None:
        self._link = link

    async def create(self, event: Event) -> None:
        row = (event.id, event.kind, event.received_ms, _ENCODE(event).decode())
        self._link.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)

    async def update(self, id: str, weight: float) -> None:
        self._link.execute("BEGIN IMMEDIATE")
        event = await self.get(id)
        event.weight = weight
        self._link.execute("UPDATE documents SET body = ? WHERE id = ?", (_ENCODE(event).decode(), id))
        self._link.execute("COMMIT")

    async def get(self, id: str) -> Event:
        row = self._link.execute("SELECT body FROM documents WHERE id = ?", (id,)).fetchone()
        assert row is not None
        return _DECODE(row[0])

    async def page(self, kind: str) -> list[Event]:
        return [_DECODE(row[0]) for row in self._link.execute(_SELECT_PAGE.format("?"), (kind,))]

    async def close(self) -> None:
        self._link.close()


class BarePostgres:
    def __init__(self, link: Any) -> None:
        self._link = link

    async def create(self, event: Event) -> None:
        row = (event.id, event.kind, event.received_ms, _ENCODE(event).decode())
        await self._link.execute("INSERT INTO documents VALUES ($1, $2, $3, $4)", *row)

    async def update(self, id: str, weight: float) -> None:
        event = await self.get(id)
        event.weight = weight
        text = "UPDATE documents SET body = $1 WHERE id = $2"
        await self._link.execute(text, _ENCODE(event).decode(), id)

    async def get(self, id: str) -> Event:
        return _DECODE(await self._link.fetchval("SELECT body FROM documents WHERE id = $1", id))

    async def page(self, kind: str) -> list[Event]:
        return [_DECODE(row[0]) for row in await self._link.fetch(_SELECT_PAGE.format("$1"), kind)]

    async def close(self) -> None:
        await self._link.close()


async def open_ours(url: str) -> Ours:
    store = await open_store(url, [Event, Delivery])
    await store.migrate()
    return Ours(store)


async def open_bare(url: str) -> Documents:
    table = "CREATE TABLE documents (id TEXT PRIMARY KEY, kind TEXT, received BIGINT, body TEXT)"
    index = "CREATE INDEX by_kind ON documents (kind, received)"
    if not url.startswith("sqlite"):
        link = await asyncpg.connect(url)
        await link.execute(f"{table}; {index}")
        return BarePostgres(link)
    path, _, synchronous = url.removeprefix("sqlite:///").partition("?synchronous=")
    connection = apsw.Connection(path)
    for pragma in ("journal_mode = WAL", f"synchronous = {synchronous}", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(f"{table}; {index}")
    return BareSqlite(connection)


Act = Callable[[Documents, Event], Awaitable[object]]
ACTS: dict[str, Act] = {
    "create": lambda way, event: way.create(event),
    "update": lambda way, event: way.update(event.id, random.random()),
    "get": lambda way, event: way.get(event.id),
    "indexed page of 20": lambda way, event: way.page(event.kind),
}


async def _fill(way: Documents, stored: list[Event]) -> None:
    if isinstance(way, Ours):
        for start in range(0, len(stored), 500):
            await way._store.settle([[create(event)] for event in stored[start : start + 500]])
    elif isinstance(way, BareSqlite):
        way._link.execute("BEGIN")
        for event in stored:
            await way.create(event)
        way._link.execute("COMMIT")
    else:
        rows = [(e.id, e.kind, e.received_ms, _ENCODE(e).decode()) for e in stored]
        assert isinstance(way, BarePostgres)
        await way._link.copy_records_to_table("documents", records=rows)


def single_caller(name: str) -> Open:
    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Pair]:
        stored = events(place.scale(DOCUMENTS, 2_000))
        number = place.scale(1_000, 200) * (1 if name in ("create", "update") else 2)
        ways = [await open_ours(place.url(engine)), await open_bare(place.url(engine))]
        for way in ways:
            await _fill(way, stored)

        async def per_s(way: Documents) -> float:
            given = events(number) if name == "create" else random.choices(stored, k=number)
            act, started = ACTS[name], time.perf_counter()
            for event in given:
                await act(way, event)
            return number / (time.perf_counter() - started)

        yield Pair(lambda: per_s(ways[0]), lambda: per_s(ways[1]))
        for way in ways:
            await way.close()

    return opened


@asynccontextmanager
async def creates_beside_the_driver(place: Place, engine: str) -> AsyncIterator[Pair]:
    number = place.scale(1_000, 200)
    ours = await open_ours(place.url(engine))

    async def per_s(act: Callable[[Event], Awaitable[object]]) -> float:
        given, started = events(number), time.perf_counter()
        for event in given:
            await act(event)
        return number / (time.perf_counter() - started)

    async with raw(place, engine) as insert:
        yield Pair(lambda: per_s(ours.create), lambda: per_s(insert))
    await ours.close()


WORKLOADS = [
    Workload(
        name=f"one caller: {name}", engines=("sqlite full", "postgres"), unit="1/s",
        goal=Goal(0.75 if name in ("create", "update") else 0.7), other_name="a bare loop",
        open=single_caller(name),
    )
    for name in ACTS
] + [
    Workload(
        name="one caller: create", engines=("sqlite full", "postgres"), unit="1/s", goal=Goal(0.75),
        other_name="the driver on our table", open=creates_beside_the_driver,
    )
]  # fmt: skip
