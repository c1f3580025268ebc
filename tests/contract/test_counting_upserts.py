"""A counting upsert without a read ends as the same upsert through `decide`, on both SQL engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.errors import DeclarationError, HoldfastError
from holdfast.model import Document, Index, document, schema_of
from holdfast.store import Increment, Query, Store, Write, create, patch, upsert
from holdfast.store.commit import Commit
from holdfast.store.sql.counting_upsert import counting_column
from holdfast.store.sqlite.bulk_insert import WRITES_MIN

QUOTES = "ż'\"\\"


@document(
    "tallies/{id}", tenant="tenant_id", indexes=[Index("name", "number", across="tenants"), Index("rest")]
)
class Tally(Document, rename="camel"):
    id: str
    tenant_id: str = "t"
    name: str = QUOTES
    number: int = 0
    rest: int = 0
    text: str = ""


@document("notes/{id}")
class Note(Document):
    id: str


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    opened = await open_store(request.getfixturevalue(f"{request.param}_url"), [Tally, Note])
    await opened.migrate()
    yield opened
    await opened.close()


def counting(id: str, by: int, *, field: str = "number", tenant: str = "t") -> Write:
    return upsert(Tally(id=id, tenant_id=tenant, **{field: by}), {field: Increment(by)})  # type: ignore[arg-type]


def deciding(write: Write) -> Write:
    """The same upsert with a change that changes nothing: not a counting one."""
    changes = {"number": Increment(0), "rest": Increment(0), **(write.changes or {})}
    return Write("upsert", write.schema, write.key, None, write.prepared, changes)


class Twins:
    """The document `a`, counted without a read, and `b`, through `decide`."""

    def __init__(self, store: Store) -> None:
        self._store, self._notes = store, 0

    async def count(self, by: int, *, field: str = "number", tenant: str = "t") -> str:
        """Count in both, in a commit that inserts in bulk; return what became of it."""
        fast = counting("a", by, field=field, tenant=tenant)
        assert counting_column(fast, Commit((fast,))) is not None
        slow = deciding(counting("b", by, field=field, tenant=tenant))
        assert counting_column(slow, Commit((slow,))) is None
        outcomes = [await self._commit(write) for write in (fast, slow)]
        assert outcomes[0] == outcomes[1]
        assert await self.read("a") == await self.read("b")
        return outcomes[0]

    async def _commit(self, write: Write) -> str:
        notes = [create(Note(id=f"{self._notes}-{n}")) for n in range(WRITES_MIN)]
        self._notes += 1
        try:
            await self._store.privileged().commit(*notes, write)
        except HoldfastError as refusal:
            assert await self._store.get(Note, f"{self._notes - 1}-0") is None
            return refusal.code
        return "committed"

    async def both(self, **fields: Any) -> None:
        for id in "ab":
            await self._store.privileged().commit(patch(Tally, id, changes=fields))

    async def read(self, id: str) -> Any:
        found = await self._store.privileged().get(Tally, id)
        return found and (found.doc.number, found.doc.rest, found.doc.name, len(found.doc.text))


async def test_it_inserts_then_adds_whatever_was_written_in_between(store: Store) -> None:
    twins = Twins(store)
    for by, field in ((5, "number"), (2, "number"), (-9, "number"), (3, "rest"), (4, "number"), (1, "rest")):
        assert await twins.count(by, field=field) == "committed"
    assert await twins.read("a") == (2, 4, QUOTES, 0)
    await twins.both(name="other", number=100)
    assert await twins.count(1) == "committed"
    await twins.both(text="x" * 300_000)
    assert await twins.count(1) == "committed"
    assert await twins.read("a") == (102, 4, "other", 300_000)


async def test_numbers_near_64_bits_are_added_or_refused_as_decided(store: Store) -> None:
    twins = Twins(store)
    assert [await twins.count(2**62 - 1) for _ in range(3)] == ["committed", "committed", "wrong_type"]
    assert [await twins.count(by) for by in (2, -5)] == ["wrong_type", "committed"]
    assert [await twins.count(-(2**62 - 1)) for _ in range(4)] == ["committed"] * 3 + ["wrong_type"]


async def test_another_tenants_document_is_not_counted_in(store: Store) -> None:
    twins = Twins(store)
    await twins.count(1)
    assert await twins.count(1, tenant="u") == "committed", "a privileged handle may"
    for id in "ab":
        with pytest.raises(HoldfastError):
            await store.tenant("u").commit(counting(id, 1, tenant="u"))
        with pytest.raises(HoldfastError):
            await store.tenant("u").commit(counting(id, 1))
    assert await twins.read("a") == (2, 0, QUOTES, 0)


async def test_what_is_counted_is_found_by_its_index_and_summed(store: Store) -> None:
    twins = Twins(store)
    await twins.count(3)
    await twins.count(4)
    everyone, query = store.privileged(), Query(Tally).where("name", "==", QUOTES)
    assert [item.doc.number for item in (await everyone.query(query.order_by("-number"))).items] == [7, 7]
    assert await everyone.sum(query, "number") == 14


def test_a_counter_needs_no_index_and_is_a_whole_number() -> None:
    @document("visits/{id}", counters=["seen"])
    class Visit(Document):
        id: str
        seen: int = 0

    write = upsert(Visit(id="v", seen=2), {"seen": Increment(2)})
    assert counting_column(write, Commit((write,))) is schema_of(Visit).column("seen")
    with pytest.raises(DeclarationError, match="a counter is a field of type int"):

        @document("visitors/{id}", counters=["name"])
        class Visitor(Document):
            id: str
            name: str = ""
