"""Whoever reads a document with a pending patch sees what `decide` would have stored, on both SQL engines.

Random patches change two documents: `a` without a read, `b` in a commit with a check, which is decided. Then
both are read in every way there is, and written by whatever may follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.app import open_store
from holdfast.errors import HoldfastError
from holdfast.model import Document, Index, document
from holdfast.store import Increment, Query, Store, Version, Write, check, create, delete, patch, put, upsert
from holdfast.store.sql.blind_patch import blind_patch
from holdfast.store_copy import Copy, copy_store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
VIEWED = "SELECT * FROM view_things WHERE id = '{}'"
# PostgreSQL can't derive columns from a body with U+0000.
DERIVED = r"""
    SELECT _key, note, CAST(place AS TEXT), CAST("table" AS TEXT), CAST(anything AS TEXT) FROM things
    WHERE _key = '{}' AND CAST(_body AS TEXT) = replace(CAST(_body AS TEXT), '\u0000', '')
"""


class Place(msgspec.Struct):
    city: str
    street: str | None = None


@document("things/{id}", indexes=[Index("count"), Index("at"), Index("flag", "count")])
class Thing(Document, rename="camel"):
    id: str
    count: int = 0
    at: datetime | None = None
    flag: bool = False
    weight_kg: float = 0.0
    note: str | None = None
    place: Place | None = None
    table: dict[str, Any] = {}
    anything: Any = None


@document(
    "things/{id}",
    indexes=[Index("count"), Index("at"), Index("flag", "count"), Index("weight_kg")],
    all_columns=True,
)
class WeighedThing(Document, rename="camel"):
    """The next release, with one more index to fill, and the other fields as derived columns."""

    id: str
    count: int = 0
    at: datetime | None = None
    flag: bool = False
    weight_kg: float = 0.0
    note: str | None = None
    place: Place | None = None
    table: dict[str, Any] = {}
    anything: Any = None


@document("desks/{id}")
class Desk(Document):
    id: str


integers = st.integers(-(2**63), 2**63 - 1)
floats = st.sampled_from([-0.0, 1e22, 5e-324, 1.7976931348623157e308, 0.1]) | st.floats(
    allow_nan=False, allow_infinity=False
)
texts = st.sampled_from(["", "null", "a\0b", "'\"\\/ż\u2028👩\x07"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20
)
scalars = st.none() | st.booleans() | integers | floats | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "count": integers,
    "at": st.none() | st.integers(-1_000, 1_000).map(lambda s: NOON + timedelta(seconds=s, microseconds=s)),
    "flag": st.booleans(),
    "weight_kg": floats,
    "note": st.none() | texts | st.text("x", min_size=500, max_size=3_000),
    "place": st.none() | st.builds(Place, city=texts, street=st.none() | texts),
    "table": st.dictionaries(texts, values, max_size=3),
    "anything": values,
}
changes = st.fixed_dictionaries({}, optional=FIELDS).filter(bool)
FOLLOWING: dict[str, Callable[[Any, int], Write]] = {
    "a put": lambda one, _: put(one.doc, one.unchanged),
    "a put of an old version": lambda one, old: put(one.doc, Version(old)),
    "a patch": lambda one, _: patch(Thing, one.doc.id, changes={"flag": True}, expect=one.unchanged),
    "a patch of an old version": lambda one, old: patch(
        Thing, one.doc.id, changes={"flag": True}, expect=Version(old)
    ),
    "a transform": lambda one, _: patch(Thing, one.doc.id, changes={"weight_kg": Increment(1)}),
    "a change inside": lambda one, _: patch(Thing, one.doc.id, changes={"place.city": "there"}),
    "an upsert": lambda one, _: upsert(Thing(id=one.doc.id), changes={"note": "upserted"}),
    "a count": lambda one, _: upsert(Thing(id=one.doc.id, count=1), changes={"count": Increment(1)}),
    "a delete": lambda one, _: delete(Thing, one.doc.id, expect=one.unchanged),
    "a delete of an old version": lambda one, old: delete(Thing, one.doc.id, expect=Version(old)),
}


class Twins:
    """Pairs of documents in one store, `a0` and `b0`, then `a1` and `b1`."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder, self.number, self.blind = url, folder, 0, 0
        self._runner = asyncio.Runner()
        self._store: Store = self._run(open_store(url, [Thing, Desk, Copy]))
        self._run(self._store.migrate())
        self._run(self._store.commit(create(Desk(id="d"))))

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    def compare(self, rounds: list[dict[str, Any]], following: list[str]) -> None:
        self._run(self._compare(rounds, following))

    async def _compare(self, rounds: list[dict[str, Any]], following: list[str]) -> None:
        self.number += 1
        a, b = ids = [f"{kind}{self.number}" for kind in "ab"]
        created = await self._store.commit(*(create(Thing(id=id)) for id in ids))
        for one in rounds:
            write = patch(Thing, a, changes=one)
            self.blind += blind_patch(write) is not None
            outcomes = [
                await self._outcome(write),
                await self._outcome(patch(Thing, b, changes=one), check(Desk, "d")),
            ]
            assert outcomes[0] == outcomes[1]
            assert await self._seen(a) == await self._seen(b)
        for name in following:
            found = [await self._store.get(Thing, id) for id in ids]
            if found[0] is not None and found[1] is not None:
                writes = [
                    FOLLOWING[name](one, version)
                    for one, version in zip(found, created.versions, strict=True)
                ]
                assert await self._outcome(writes[0]) == await self._outcome(writes[1], check(Desk, "d")), (
                    name
                )
            assert await self._seen(a) == await self._seen(b), name

    async def _outcome(self, *writes: Write) -> str:
        try:
            await self._store.commit(*writes)
        except HoldfastError as refusal:
            return refusal.code
        return "committed"

    async def _seen(self, id: str) -> list[Any]:
        """What every reader sees of a document, without its id."""
        store, found = self._store, await self._store.get(Thing, id)
        if found is None:
            assert await _rows(self._url, VIEWED.format(id)) == []
            return []
        query = Query(Thing).where("count", "==", found.doc.count)
        page = [item.doc for item in (await store.query(query)).items if item.doc.id == id]
        scanned = [item.doc async for item in store.scan(query) if item.doc.id == id]
        [many] = await store.get_many(Thing, [id])
        assert many is not None
        selected = [
            row[1:] async for rows in store.select(query, "at", "flag") for row in rows if row[0] == id
        ]
        [row] = await _rows(self._url, VIEWED.format(id))
        documents = {_text(one) for one in (found.doc, many.doc, *page, *scanned)}
        assert len(documents) == len(scanned) == len(selected) == 1
        return [documents, selected, row]

    def copy_and_migrate(self) -> None:
        self._run(self._copy_and_migrate())

    async def _copy_and_migrate(self) -> None:
        """Compare all twins in a copy of the store, and by the index of a later release."""
        target = await open_store(f"sqlite:///{self._folder / 'copy.db'}", [Thing, Desk, Copy])
        await target.migrate()
        await copy_store(self._store, target, [Thing, Desk], name="source", final=True)
        later = await open_store(self._url, [WeighedThing, Desk, Copy])
        await later.migrate()
        shown = 0
        for n in range(1, self.number + 1):
            a, b = ids = [f"{kind}{n}" for kind in "ab"]
            copied = await target.get_many(Thing, ids)
            kept = await self._store.get_many(Thing, ids)
            assert [one and _text(one.doc) for one in copied] == [one and _text(one.doc) for one in kept]
            if kept[0] is not None:
                query = Query(WeighedThing).where("weight_kg", "==", kept[0].doc.weight_kg)
                assert {a, b} <= {item.doc.id async for item in later.scan(query)}
                derived = [row for id in ids for row in await _rows(self._url, DERIVED.format(id))]
                assert len(derived) < 2 or derived[0] == derived[1]
                shown += len(derived) == 2
        assert shown > self.number / 5
        await later.close()
        await target.close()

    def close(self) -> None:
        self._run(self._store.close())
        self._runner.close()


def _text(doc: Any) -> bytes:
    """The exact JSON of a document, but for its id: 1e22 is not 10000000000000000000000, nor -0.0 0.0."""
    return msgspec.json.encode(msgspec.structs.replace(doc, id=""))


async def _rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows without their first column, by another driver's connection than the store's."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        rows = [tuple(row)[1:] for row in connection.execute(sql)]
        connection.close()
        return rows
    server = await asyncpg.connect(url)
    rows = [tuple(row)[1:] for row in await server.fetch(sql)]
    await server.close()
    return rows


@pytest.fixture(params=["sqlite", "postgres"])
def twins(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twins]:
    made = Twins(request.getfixturevalue(f"{request.param}_url"), tmp_path)
    yield made
    made.close()


def test_all_readers_see_a_pending_patch_as_if_it_had_been_decided(twins: Twins) -> None:
    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(
        st.lists(changes, min_size=1, max_size=5), st.lists(st.sampled_from(sorted(FOLLOWING)), max_size=3)
    )
    def compare(rounds: list[dict[str, Any]], following: list[str]) -> None:
        twins.compare(rounds, following)

    compare()
    assert twins.blind > 60
    twins.copy_and_migrate()
