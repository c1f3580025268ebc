"""On SQLite one caller's batch of new documents that comes alone is made in the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import apsw
import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError
from holdfast.store import Store, Write, create, patch
from holdfast.store.sqlite import SqliteEngine, in_place
from holdfast.store.sqlite import writer as sqlite_writer
from tests.faults.small_disk import Filling

WRITER = "holdfast-sqlite-writer"
SIZE = 100


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which transactions were begun, of connections that are opened from now on."""
    found: list[str] = []

    def note(cursor: apsw.Cursor, statement: str, values: object) -> bool:
        alone = statement.startswith("INSERT") and not cursor.connection.in_transaction
        if alone or statement.startswith("BEGIN"):
            found.append(threading.current_thread().name)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    monkeypatch.setattr(apsw, "connection_hooks", [hook])
    monkeypatch.setattr(in_place, "SECONDS_MAX", 60.0)  # whatever a busy machine takes
    monkeypatch.setattr(sqlite_writer, "LOOP_BUSY_S", 60.0)
    return found


@pytest.fixture
async def store(sqlite_url: str, threads: list[str]) -> AsyncIterator[Store]:
    made = await open_store(sqlite_url, [Filling])
    await made.migrate()
    # The mark of the newest commit is written by the second commit and then rarely.
    for id in ("first", "second"):
        await made.commit(create(Filling(id=id)))
    threads.clear()
    yield made
    await made.close()


def _batch(prefix: str, *, size: int = SIZE, text: str = "") -> list[list[Write]]:
    return [[create(Filling(id=f"{prefix}{n}", text=text))] for n in range(size)]


async def _count(store: Store, prefix: str) -> int:
    found = await store.get_many(Filling, [f"{prefix}{n}" for n in range(SIZE)])
    return sum(one is not None for one in found)


async def test_a_batch_of_one_caller_is_one_transaction_in_the_thread_of_its_caller(
    store: Store, threads: list[str]
) -> None:
    await store.settle(_batch("a"))
    await store.commit(*[write for writes in _batch("b") for write in writes])
    assert threads == [threading.current_thread().name] * 2
    assert [await _count(store, prefix) for prefix in "ab"] == [SIZE, SIZE]


async def test_batches_of_many_callers_are_made_in_the_writer_thread(
    store: Store, threads: list[str]
) -> None:
    await store.start_settle(_batch("a"))
    await asyncio.gather(store.settle(_batch("b")), store.settle(_batch("c")))
    assert set(threads) == {WRITER}
    assert [await _count(store, prefix) for prefix in "abc"] == [SIZE] * 3


async def test_a_batch_goes_to_the_writer_thread_while_the_loop_has_other_work(
    store: Store, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "LOOP_BUSY_S", 0.0)
    await store.settle(_batch("a"))
    assert threads == [WRITER]


@pytest.mark.parametrize(
    ("size", "text"),
    [(in_place.BATCH_WRITES_MAX + 1, ""), (SIZE, "x" * (in_place.BATCH_BYTES_MAX // SIZE))],
)
async def test_many_or_large_documents_are_made_in_the_writer_thread(
    store: Store, threads: list[str], size: int, text: str
) -> None:
    await store.settle(_batch("a", size=size, text=text))
    assert threads == [WRITER]


async def test_a_commit_of_many_changes_is_made_in_the_writer_thread(
    store: Store, threads: list[str]
) -> None:
    await store.settle(_batch("a"))
    threads.clear()
    await store.commit(*[patch(Filling, f"a{n}", changes={"text": "b"}) for n in range(SIZE)])
    assert threads == [WRITER]


async def test_a_batch_that_takes_long_sends_the_next_ones_to_the_writer_thread(
    store: Store, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SECONDS_MAX", 0.0), ("SECONDS_PER_WRITE_MAX", 0.0), ("PAUSE", 1e9)):
        monkeypatch.setattr(in_place, name, value)
    await store.settle(_batch("a"))
    await store.settle(_batch("b"))
    assert threads == [threading.current_thread().name, WRITER]


async def test_in_place_only_the_documents_whose_ids_are_taken_are_refused(
    store: Store, threads: list[str]
) -> None:
    await store.commit(create(Filling(id="a7")))
    threads.clear()
    outcomes = await store.settle(_batch("a"))
    assert [n for n, one in enumerate(outcomes) if isinstance(one, AlreadyExistsError)] == [7]
    assert threads == [threading.current_thread().name] * 2, "the second tells which document was refused"
    assert await _count(store, "a") == SIZE


async def test_a_batch_waits_for_a_lock_in_the_writer_thread(store: Store, sqlite_url: str) -> None:
    with contextlib.closing(apsw.Connection(sqlite_url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.settle(_batch("a")))
        for _ in range(10):
            await asyncio.sleep(0)  # would never return while a lock is waited for in this thread
        assert not waiting.done()
        other.execute("ROLLBACK")
    await waiting
    assert await _count(store, "a") == SIZE


async def test_the_log_is_copied_beside_batches_in_place(store: Store) -> None:
    assert isinstance(store.engine, SqliteEngine)
    checkpointer = store.engine._writer._checkpointer
    before = checkpointer._pages
    await store.settle(_batch("a"))
    assert checkpointer._pages > before
