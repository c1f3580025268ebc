"""One caller, one document at a time: create, update, get, and a page of 20 by an index.

The bare loop is written for speed alone: the smallest table that holds the document and serves the page, one
connection, the driver called in place, no rule, no version. Each write is durable before the next begins. An
update reads the document, changes a field and writes it back, in all. The floor is `floor_documents`: the
same by the driver alone on our table. Creates are also measured for a class with the bare loop's one index,
where the others have two more.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import apsw
import asyncpg
import msgspec

from bench import raw_sqlite
from bench.event import Delivery, Event, EventByKind, EventFields, events, events_of
from bench.floor_documents import open_floor
from bench.measure import Goal, Open, Place, Ways, Workload
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

    async def fill(self, stored: Sequence[EventFields]) -> None:
        for start in range(0, len(stored), 500):
            await self._store.settle([[create(event)] for event in stored[start : start + 500]])

    async def create(self, event: EventFields) -> None:
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

    async def fill(self, stored: list[Event]) -> None:
        self._link.execute("BEGIN")
        for event in stored:
            await self.create(event)
        self._link.execute("COMMIT")

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

    async def fill(self, stored: list[Event]) -> None:
        rows = [(e.id, e.kind, e.received_ms, _ENCODE(e).decode()) for e in stored]
        await self._link.copy_records_to_table("documents", records=rows)

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
    store = await open_store(url, [Event, EventByKind, Delivery])
    await store.migrate()
    return Ours(store)


async def open_bare(url: str) -> BareSqlite | BarePostgres:
    table = "CREATE TABLE documents (id TEXT PRIMARY KEY, kind TEXT, received BIGINT, body TEXT)"
    index = "CREATE INDEX by_kind ON documents (kind, received)"
    if url.startswith("sqlite"):
        connection = raw_sqlite.connect(url, cached=False)
        connection.execute(f"{table}; {index}")
        return BareSqlite(connection)
    link = await asyncpg.connect(url)
    await link.execute(f"{table}; {index}")
    return BarePostgres(link)


# Where a goal against the bare loop is missed.
FLOORS = {
    ("create", "sqlite full"), ("create", "postgres"), ("update", "sqlite full"), ("update", "postgres"),
    ("indexed page of 20", "sqlite full"),
}  # fmt: skip
Act = Callable[[Documents, Event], Awaitable[object]]
ACTS: dict[str, Act] = {
    "create": lambda way, event: way.create(event),
    "update": lambda way, event: way.update(event.id, random.random()),
    "get": lambda way, event: way.get(event.id),
    "indexed page of 20": lambda way, event: way.page(event.kind),
}


async def open_ways(place: Place, engine: str, stored: list[Event], *, floor: bool) -> list[Documents]:
    """Ours, the bare loop and the floor, each on a filled store of its own."""
    ours, bare = await open_ours(place.url(engine)), await open_bare(place.url(engine))
    await ours.fill(stored)
    await bare.fill(stored)
    if not floor:
        return [ours, bare]
    url = place.url(engine)
    filler = await open_ours(url)
    await filler.fill(stored)
    await filler.close()
    return [ours, bare, await open_floor(url)]


def single_caller(name: str) -> Open:
    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Ways]:
        stored = events(place.scale(DOCUMENTS, 2_000))
        number = place.scale(600, 200) * (1 if name in ("create", "update") else 2)
        documents = await open_ways(place, engine, stored, floor=(name, engine) in FLOORS)

        async def per_s(way: Documents) -> float:
            given = events(number) if name == "create" else random.choices(stored, k=number)
            act, started = ACTS[name], time.perf_counter()
            for event in given:
                await act(way, event)
            return number / (time.perf_counter() - started)

        yield Ways(*(partial(per_s, way) for way in documents))
        for way in documents:
            await way.close()

    return opened


@asynccontextmanager
async def creates_with_one_index(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Creates of a class with the bare loop's one index."""
    stored = place.scale(DOCUMENTS, 2_000)
    ours, bare = await open_ours(place.url(engine)), await open_bare(place.url(engine))
    await ours.fill(events_of(EventByKind, stored))
    await bare.fill(events(stored))
    url = place.url(engine)
    filler = await open_ours(url)
    await filler.fill(events_of(EventByKind, stored))
    await filler.close()
    floor = await open_floor(url, EventByKind)
    number = place.scale(600, 200)

    async def per_s(way: Any, cls: type[EventFields]) -> float:
        given, started = events_of(cls, number), time.perf_counter()
        for event in given:
            await way.create(event)
        return number / (time.perf_counter() - started)

    yield Ways(
        partial(per_s, ours, EventByKind), partial(per_s, bare, Event), partial(per_s, floor, EventByKind)
    )
    for way in (ours, bare, floor):
        await way.close()


WORKLOADS = [
    Workload(
        name=f"one caller: {name}", engines=("sqlite full", "postgres"), unit="1/s",
        goal=Goal(0.75 if name in ("create", "update") else 0.7), other_name="a bare loop",
        floor_name="the driver on our table", floor_goal=Goal(0.75), open=single_caller(name),
    )
    for name in ACTS
] + [
    Workload(
        name="one caller: create, the same one index", engines=("sqlite full", "postgres"), unit="1/s",
        goal=Goal(0.75), other_name="a bare loop", floor_name="the driver on our table",
        floor_goal=Goal(0.75), open=creates_with_one_index,
    )
]  # fmt: skip
