"""On SQLite a batch of creates and blind patches of one collection is one statement, and one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import apsw
import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, LeaseLostError
from holdfast.model import Claim, Document, Index, Lifecycle, document
from holdfast.store import Fence, Query, Store, Write, create, patch
from holdfast.store.sqlite import SqliteEngine, batch_view, write_connection
from holdfast.store.sqlite import writer as sqlite_writer
from holdfast.store.sqlite.commit_mark import CommitMark

SIZE = 100


@document(
    "parcels/{id}",
    tenant="tenant_id",
    indexes=[Index("status")],
    claim=Claim(due="due", fence="fence", owner="owner"),
    lifecycle=Lifecycle("status", initial=["out"], moves={"out": ["done", "lost"], "done": [], "lost": []}),
)
class Parcel(Document):
    id: str
    tenant_id: str = "acme"
    status: Literal["out", "done", "lost"] = "out"
    due: datetime | None = None
    fence: int = 1
    owner: str | None = None
    note: str = ""
    weight: int = 0
    height: int = 0


@document("folders/{folder}/papers/{id}", indexes=[Index("pages")])
class Paper(Document):
    folder: str
    id: str
    pages: int = 1


@pytest.fixture
async def store(
    sqlite_url: str, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    made = await _open(sqlite_url)
    # By the first batches versions are reserved, the newest commit is marked, and the view is made.
    await _settle(made, *_creates("warm"))
    await _settle(made, *_settlements("warm"))
    monkeypatch.setattr(CommitMark, "is_due", lambda *given: False)
    statements.clear()
    yield made
    await made.close()


async def _open(url: str) -> Store:
    made = await open_store(url, [Parcel])
    await made.migrate()
    await made.tenant("acme").commit(create(Parcel(id="first")))
    await made.tenant("acme").commit(create(Parcel(id="second")))
    return made


def _creates(prefix: str, size: int = SIZE) -> list[Write]:
    return [create(Parcel(id=f"{prefix}{n}")) for n in range(size)]


def _settlements(prefix: str, size: int = SIZE, *, status: str = "done") -> list[Write]:
    return [
        patch(Parcel, f"{prefix}{n}", changes={"status": status, "note": "x" * n}, expect=Fence(1))
        for n in range(size)
    ]


async def _settle(store: Store, *writes: Write) -> list[Any]:
    return list(await store.tenant("acme").start_settle([[write] for write in writes]))


async def _stored(store: Store, prefix: str, size: int = SIZE) -> list[tuple[str, str]]:
    found = await store.tenant("acme").get_many(Parcel, [f"{prefix}{n}" for n in range(size)])
    return [(one.doc.status, one.doc.note) for one in found if one is not None]


def _verbs(statements: Sequence[str]) -> list[str]:
    return [one.split()[0] for one in statements if not one.startswith(("SELECT", "PRAGMA"))]


async def test_creates_and_patches_of_a_batch_are_one_statement(store: Store, statements: list[str]) -> None:
    await _settle(store, *_creates("a"))
    assert _verbs(statements) == ["INSERT"]
    statements.clear()
    outcomes = await _settle(store, *_creates("b"), *_settlements("a"))
    assert _verbs(statements) == ["INSERT"]
    assert len({outcome.versions for outcome in outcomes}) == 1
    assert await _stored(store, "a") == [("done", "x" * n) for n in range(SIZE)]
    assert await _stored(store, "b") == [("out", "")] * SIZE


async def test_batches_of_any_size_are_made_whole(store: Store) -> None:
    for size in (2, 3, 4, 7, 15, 16, 17, 31, 127, 128, 129, 300, 700):
        await _settle(store, *_creates(f"s{size}-", size))
        await _settle(store, *_creates(f"t{size}-", size), *_settlements(f"s{size}-", size))
        assert await _stored(store, f"s{size}-", size) == [("done", "x" * n) for n in range(size)]
        assert await _stored(store, f"t{size}-", size) == [("out", "")] * size


async def test_what_new_documents_share_is_bound_once_until_it_has_differed(
    store: Store, statements: list[str]
) -> None:
    made: dict[str, Parcel] = {}
    marks = []
    dues: list[datetime | None] = [None, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    # The owners of the second batch differ, the times of the third; the fourth is like the first.
    for batch, (owners, kinds_of_due) in enumerate([(1, 1), (3, 1), (1, 3), (1, 1)]):
        parcels = [
            Parcel(id=f"p{batch}-{n:03}", owner=f"worker-{n % owners}", due=dues[n % kinds_of_due])
            for n in range(SIZE)
        ]
        made |= {one.id: one for one in parcels}
        statements.clear()
        await _settle(store, *map(create, parcels))
        (insert,) = [one for one in statements if one.startswith("INSERT")]
        marks.append(insert.partition("(VALUES ")[2].partition(")")[0].count("?"))
    assert marks == [2, 3, 4, 4], "the key and the body, and what differs"
    found = await store.tenant("acme").get_many(Parcel, list(made))
    assert [one.doc for one in found if one is not None] == list(made.values())
    out = await store.tenant("acme").query(Query(Parcel).where("status", "==", "out").limit(1_000))
    assert {one.id: one for one in out.docs if one.id in made} == made


async def test_documents_below_others_are_made_in_batches_too(store: Store, sqlite_url: str) -> None:
    url = sqlite_url.replace(".db", "-papers.db")
    papers = await open_store(url, [Paper])
    await papers.migrate()
    await papers.commit(create(Paper(folder="a", id="first")))
    await papers.commit(create(Paper(folder="a", id="second")))
    for batch, folders in enumerate((1, 2)):
        writes = [create(Paper(folder=f"f{n % folders}", id=f"{batch}-{n:03}")) for n in range(SIZE)]
        await papers.start_settle([[write] for write in writes])
    listed = [await papers.query(Query(Paper).under(folder).limit(500)) for folder in ("f0", "f1")]
    assert [len(one.docs) for one in listed] == [SIZE + SIZE // 2, SIZE // 2]
    await papers.close()


async def test_a_taken_id_or_a_lost_lease_refuses_one_commit_and_no_other(
    store: Store, statements: list[str]
) -> None:
    await _settle(store, *_creates("a"))
    await _settle(store, create(Parcel(id="b7")), patch(Parcel, "a5", changes={"weight": 1}))
    await store.tenant("acme").commit(patch(Parcel, "a3", changes={"status": "lost"}))
    writes = [*_creates("b"), *_settlements("a")]
    writes[SIZE + 5] = patch(Parcel, "a5", changes={"status": "done", "note": ""}, expect=Fence(9))
    outcomes = await _settle(store, *writes)
    refused = {n: type(one) for n, one in enumerate(outcomes) if isinstance(one, Exception)}
    assert refused[7] is AlreadyExistsError
    assert refused[SIZE + 5] is LeaseLostError
    assert sorted(refused) == [7, SIZE + 3, SIZE + 5]
    assert [status for status, _ in await _stored(store, "a")].count("done") == SIZE - 2
    assert len(await _stored(store, "b")) == SIZE


async def test_after_a_refusal_a_few_batches_are_made_by_several_statements(
    store: Store, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_connection, "REFUSED_BATCHES", 2)
    await _settle(store, *_creates("a", 40))
    await _settle(store, *_creates("a", 40))
    transactions = []
    for prefix in "bcd":
        statements.clear()
        await _settle(store, *_creates(prefix, 40))
        transactions.append(_verbs(statements)[0])
    assert transactions == ["BEGIN", "BEGIN", "INSERT"]


async def test_patches_of_many_groups_are_made_too(store: Store) -> None:
    size = 2 * (batch_view.PATCH_GROUPS_MAX + 2)
    await _settle(store, *_creates("a", size))
    names = ("note", "weight", "height", "status")
    for mask in range(1, batch_view.PATCH_GROUPS_MAX + 3):
        values = {"note": f"n{mask}", "weight": mask, "height": mask, "status": "out"}
        changes = {name: values[name] for bit, name in enumerate(names) if mask >> bit & 1}
        await _settle(store, *[patch(Parcel, f"a{n}", changes=changes) for n in range(size)])
        for one in await store.tenant("acme").get_many(Parcel, [f"a{n}" for n in range(size)]):
            assert one is not None
            assert {name: getattr(one.doc, name) for name in changes} == changes


async def test_another_tenants_documents_are_not_patched(store: Store) -> None:
    await _settle(store, *_creates("a", 40))
    given = [[write] for write in _settlements("a", 40)]
    outcomes = await store.tenant("other").start_settle(given)
    assert all(isinstance(one, Exception) for one in outcomes)
    assert await _stored(store, "a", 40) == [("out", "")] * 40
    outcomes = await store.privileged().start_settle(given)
    assert not any(isinstance(one, Exception) for one in outcomes)


async def test_the_file_names_the_last_writer_whoever_it_is(store: Store, sqlite_url: str) -> None:
    async def last_writer() -> str:
        connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
        rows = connection.execute("SELECT value FROM _holdfast_meta WHERE name = 'writer'").fetchall()
        connection.close()
        return str(rows[0][0])

    other = await _open_again(sqlite_url)
    tokens = []
    for one in (store, other):
        assert isinstance(one.engine, SqliteEngine)
        tokens.append(one.engine._writer.connection.token)
    for n, writer in enumerate([0, 1, 0, 0, 1, 1, 0, 1]):
        await _settle((store, other)[writer], *_creates(f"w{n}-", 40))
        assert await last_writer() == tokens[writer], n
    await other.close()


async def _open_again(url: str) -> Store:
    made = await open_store(url, [Parcel])
    await made.tenant("acme").commit(create(Parcel(id="third")))
    await made.tenant("acme").commit(create(Parcel(id="fourth")))
    return made


async def test_the_loop_goes_on_while_a_large_batch_is_written(store: Store) -> None:
    assert isinstance(store.engine, SqliteEngine)
    connection = store.engine._writer.connection
    loop, begun, may_write = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    transact = connection.transact

    def blocked(jobs: Sequence[Any]) -> None:
        connection.on_begin()
        loop.call_soon_threadsafe(begun.set)
        assert may_write.wait(30)
        transact(jobs)

    connection.transact = blocked  # type: ignore[method-assign]
    settling = asyncio.ensure_future(_settle(store, *_creates("a", sqlite_writer.LARGE_MIN)))
    await begun.wait()
    assert not settling.done()
    may_write.set()
    assert not any(isinstance(one, Exception) for one in await settling)


async def test_the_loop_does_not_wait_for_a_thread_that_does_not_begin(store: Store) -> None:
    assert isinstance(store.engine, SqliteEngine)
    connection = store.engine._writer.connection
    loop, taken, may_begin = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    transact = connection.transact

    def late(jobs: Sequence[Any]) -> None:
        loop.call_soon_threadsafe(taken.set)
        assert may_begin.wait(30)
        transact(jobs)

    connection.transact = late  # type: ignore[method-assign]
    first = asyncio.ensure_future(_settle(store, *_creates("a", sqlite_writer.LARGE_MIN)))
    await taken.wait()
    may_begin.set()
    assert len(await first) == sqlite_writer.LARGE_MIN
    for prefix in "bcd":
        await _settle(store, *_creates(prefix, sqlite_writer.LARGE_MIN))
        assert len(await _stored(store, prefix, sqlite_writer.LARGE_MIN)) == sqlite_writer.LARGE_MIN


class _NoDataVersion:
    """A connection that can write, but not tell its data version."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def data_version(self) -> int:
        raise apsw.IOError("the disk")


async def test_a_fault_after_the_commit_does_not_refuse_what_is_committed(store: Store) -> None:
    assert isinstance(store.engine, SqliteEngine)
    connection = store.engine._writer.connection
    connection.driver = _NoDataVersion(connection.driver)  # type: ignore[assignment]
    outcomes = await _settle(store, *_creates("a", 40))
    assert not any(isinstance(one, Exception) for one in outcomes)
    assert await _stored(store, "a", 40) == [("out", "")] * 40
