"""On SQLite a lone commit is made in the event loop's thread; versions are reserved in blocks; few pages."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, NotFoundError, StoreUnavailableError
from holdfast.model import Document, Index, document
from holdfast.store import Committed, Store, create, delete, patch
from holdfast.store.sqlite import SqliteEngine, in_place
from holdfast.store.sqlite.checkpointer import LONE_PER_COUNT, Checkpointer
from holdfast.store.sqlite.write_transaction import VERSIONS_PER_BLOCK, WriteTransaction
from tests.faults.small_disk import Filling

WRITER = "holdfast-sqlite-writer"
Executed = list[tuple[str, str]]  # the thread's name and the statement's first word


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Executed:
    """The statements of connections that are opened from now on, each with its thread."""
    found: Executed = []

    def note(cursor: object, statement: str, values: object) -> bool:
        found.append((threading.current_thread().name, statement.split()[0]))
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    monkeypatch.setattr(apsw, "connection_hooks", [hook])
    return found


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, [Filling])
    await store.migrate()
    # The mark of the newest commit is written by the second commit and then rarely.
    await store.settle([[create(Filling(id="first"))]])
    await store.settle([[create(Filling(id="second"))]])
    try:
        yield store
    finally:
        await store.close()


def _engine(store: Store) -> SqliteEngine:
    assert isinstance(store.engine, SqliteEngine)
    return store.engine


def _never_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the disk of a busy machine takes."""
    monkeypatch.setattr(in_place, "SECONDS_MAX", 60.0)


async def test_a_lone_create_or_patch_is_one_statement_in_the_thread_of_its_caller(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        executed.clear()
        await store.commit(create(Filling(id="a")))
        here = threading.current_thread().name
        await store.commit(patch(Filling, "a", changes={"text": "b"}))
        await store.commit(patch(Filling, "a", changes={"text": "c"}))
        assert executed == [(here, "INSERT"), (here, "UPDATE"), (here, "UPDATE")]
        executed.clear()
        await store.commit(create(Filling(id="b")), delete(Filling, "a"))
        assert (executed[0], executed[-1]) == ((here, "BEGIN"), (here, "COMMIT"))


async def test_after_commits_that_came_together_the_next_is_made_in_the_writer_thread(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        await store.start_settle([[create(Filling(id=str(n)))] for n in range(5)])
        executed.clear()
        # It is likely the first of many, which the loop has to read while the disk syncs.
        await store.commit(create(Filling(id="a")))
        assert {thread for thread, _ in executed} == {WRITER}
        executed.clear()
        await store.commit(create(Filling(id="b")))
        assert executed == [(threading.current_thread().name, "INSERT")]


async def test_commits_of_the_same_turn_share_a_transaction_in_the_writer_thread(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        executed.clear()
        await asyncio.gather(*(store.commit(create(Filling(id=str(n)))) for n in range(5)))
        assert {thread for thread, _ in executed} == {WRITER}
        # The thread may have begun with the first of them.
        assert [word for _, word in executed].count("COMMIT") <= 2


async def test_other_tasks_run_between_lone_commits(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        for number in range(20):
            await store.commit(create(Filling(id=str(number))))
        counting.cancel()
        assert turns >= 20


async def test_after_a_slow_commit_the_next_go_to_the_writer_thread(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _opened(sqlite_url) as store:
        monkeypatch.setattr(in_place, "SECONDS_MAX", 0.0)
        monkeypatch.setattr(in_place, "PAUSE", 1e9)
        _engine(store)._writer._in_place = in_place.InPlaceBudget()
        executed.clear()
        await store.commit(create(Filling(id="a")))
        await store.commit(create(Filling(id="b")))
        here = threading.current_thread().name
        assert executed == [(here, "INSERT"), *((WRITER, word) for word in ("BEGIN", "INSERT", "COMMIT"))]


async def test_saved_time_pays_for_commits_that_are_slow_now_and_then(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _opened(sqlite_url) as store:
        writer = _engine(store)._writer
        monkeypatch.setattr(in_place, "SECONDS_MAX", 0.0)  # each of them counts as slow
        monkeypatch.setattr(in_place, "PAUSE", 1e-9)
        writer._in_place = in_place.InPlaceBudget()
        executed.clear()
        for id in ("a", "b", "c"):
            await store.commit(create(Filling(id=id)))
        assert executed == [(threading.current_thread().name, "INSERT")] * 3
        # No more is saved than the credit, however long nothing was slow.
        assert not writer._in_place.allows(time.monotonic() - in_place.CREDIT_S - 60)
        monkeypatch.setattr(in_place, "PAUSE", 1e9)
        await store.commit(create(Filling(id="d")))
        executed.clear()
        await store.commit(create(Filling(id="e")))
        assert executed == [(WRITER, word) for word in ("BEGIN", "INSERT", "COMMIT")]


def test_only_the_time_past_the_limit_is_charged() -> None:
    budget, now_s = in_place.InPlaceBudget(), 1_000.0
    budget.charge(now_s, in_place.SECONDS_MAX, batch_writes=0)
    assert budget.allows(0.0)
    budget.charge(now_s, in_place.SECONDS_MAX + in_place.CREDIT_S / in_place.PAUSE, batch_writes=0)
    assert budget.allows(now_s + 0.001)
    budget.charge(now_s, in_place.SECONDS_MAX + 0.01, batch_writes=0)
    assert not budget.allows(now_s + 0.01 * in_place.PAUSE - 0.001)
    assert budget.allows(now_s + 0.01 * in_place.PAUSE + 0.001)
    budget.charge(now_s, 0.01, batch_writes=1_000)
    assert budget.allows(now_s + 0.01 * in_place.PAUSE + 0.001)


async def test_pages_of_lone_commits_are_counted_once_for_several(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        checkpointer = _engine(store)._writer._checkpointer
        checkpointer.count(_engine(store)._writer.connection.driver)
        before = checkpointer._pages
        for number in range(2 * LONE_PER_COUNT):
            await store.commit(create(Filling(id=str(number))))
        assert checkpointer._pages - before >= LONE_PER_COUNT


async def test_lone_commits_stay_in_place_while_the_log_is_copied(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    copying, copied = threading.Event(), threading.Event()

    def copy(checkpointer: Checkpointer) -> bool:
        copying.set()
        return copied.wait()

    monkeypatch.setattr(Checkpointer, "_copy", copy)
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(_opened(sqlite_url))
        stack.callback(copied.set)  # the thread is joined when the store is closed
        checkpointer = _engine(store)._writer._checkpointer
        checkpointer._next_pages = 0
        await store.commit(create(Filling(id="a")))  # in the writer's thread, which requests the copy
        await asyncio.to_thread(copying.wait)
        executed.clear()
        await store.commit(create(Filling(id="b")))
        await store.commit(create(Filling(id="c")))
        assert executed == [(threading.current_thread().name, "INSERT")] * 2
        checkpointer._takeover_pages = checkpointer._pages  # the copy takes too long
        executed.clear()
        await store.commit(create(Filling(id="d")))
        assert executed[0] == (WRITER, "BEGIN")


async def test_a_lock_held_by_another_process_does_not_stop_the_loop(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        other = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.commit(create(Filling(id="a"))))
        for _ in range(10):
            await asyncio.sleep(0)  # would never return while a lock is waited for in this thread
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        await waiting
        assert await store.get(Filling, "a") is not None


async def test_a_refused_lone_commit_gives_the_reason_and_leaves_no_transaction(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        with pytest.raises(AlreadyExistsError):
            await store.commit(create(Filling(id="first")))
        with pytest.raises(NotFoundError):
            await store.commit(patch(Filling, "nowhere", changes={"text": "b"}))
        await store.commit(create(Filling(id="a")))
        assert not _engine(store)._writer.connection.driver.in_transaction


async def test_a_lone_commit_that_fails_is_rolled_back_and_named(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        full = apsw.FullError("database or disk is full")

        def fail(self: WriteTransaction, *write: object) -> None:
            self.next_version()
            raise full

        with monkeypatch.context() as patched:
            patched.setattr(WriteTransaction, "_commit_create", fail)
            with pytest.raises(StoreUnavailableError, match="disk is full"):
                await store.commit(create(Filling(id="a")))
        assert "disk is full" in (store.engine.problem or "")
        await store.commit(create(Filling(id="a")))
        assert store.engine.problem is None


async def test_a_commit_under_way_at_the_end_is_made(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        committing = asyncio.ensure_future(store.commit(create(Filling(id="last"))))
        await asyncio.sleep(0)
        await store.close()
        await committing
    again = await open_store(sqlite_url, [Filling])
    assert await again.get(Filling, "last") is not None
    await again.close()


async def test_a_caller_that_is_cancelled_before_its_commit_begins_has_written_nothing(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        executed.clear()
        waiting = asyncio.ensure_future(store.commit(create(Filling(id="a"))))
        asyncio.get_running_loop().call_soon(waiting.cancel)  # after its first step
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert executed == []
        await store.commit(create(Filling(id="a")))
        assert executed == [(threading.current_thread().name, "INSERT")]


async def test_a_commit_that_is_only_started_is_made(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        started = store.start_commit(create(Filling(id="a")))
        done = asyncio.Event()
        started.add_done_callback(lambda _: done.set())
        await done.wait()
        assert await store.get(Filling, "a") is not None


async def test_a_lone_commit_that_is_started_takes_no_task_and_is_made_in_place(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as store:
        executed.clear()
        started = store.start_commit(create(Filling(id="a")))
        assert not isinstance(started, asyncio.Task)
        assert [type(outcome) for outcome in await started] == [Committed]
        assert executed == [(threading.current_thread().name, "INSERT")]
        started = store.start_commit(create(Filling(id="a")))
        assert [type(outcome) for outcome in await started] == [AlreadyExistsError]
        started = store.start_commit(create(Filling(id="b")))
        started.cancel()
        await store.commit(create(Filling(id="c")))
        assert None not in await store.get_many(Filling, ["b", "c"])


async def test_a_commit_that_nobody_awaits_is_made_with_the_next(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        engine = _engine(store)
        engine.commit(store._commits([[create(Filling(id="a"))]]))
        await store.commit(create(Filling(id="b")))
        assert None not in await store.get_many(Filling, ["a", "b"])


async def _version(store: Store, id: str) -> int:
    outcome = await store.commit(create(Filling(id=id)))
    return outcome.versions[0]


async def test_no_version_is_given_out_twice_by_processes_that_take_turns(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as one, _opened_again(sqlite_url) as two:
        versions = [await _version(store, f"{n}-{store is one}") for n in range(20) for store in (one, two)]
        gone = await one.commit(delete(Filling, "0-True"))
        versions.append(await _version(two, "0-True"))
        assert gone.versions == (0,)
        assert len(set(versions)) == 41
        seen = await one.get(Filling, "0-True")
        assert seen is not None
        assert seen.version == versions[-1]


@contextlib.asynccontextmanager
async def _opened_again(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, [Filling])
    try:
        yield store
    finally:
        await store.close()


async def test_more_versions_than_a_block_are_given_out_by_one_batch(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        for number in range(0, VERSIONS_PER_BLOCK + 600, 500):
            writes = [
                [patch(Filling, "first", changes={"text": str(n)})] for n in range(number, number + 500)
            ]
            outcomes = await store.settle(writes)
            versions = [o.versions[0] for o in outcomes if isinstance(o, Committed)]
            assert versions == sorted(set(versions))
            assert len(versions) == 500


async def test_versions_of_a_transaction_that_was_rolled_back_are_reserved_anew(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as one, _opened_again(sqlite_url) as two:

        def give_out_and_fail(transaction: WriteTransaction) -> None:
            transaction.reserve_versions()
            transaction.next_version()
            raise ValueError("after the reservation")

        with pytest.raises(ValueError, match="after the reservation"):
            await _engine(one)._writer.do(give_out_and_fail)
        versions = [await _version(store, f"{n}-{store is one}") for n in range(5) for store in (two, one)]
        assert len(set(versions)) == 10


async def test_the_newest_version_in_the_file_is_rarely_written(sqlite_url: str, executed: Executed) -> None:
    async with _opened(sqlite_url) as store:
        before = _stored_version(sqlite_url)
        executed.clear()
        for number in range(50):
            await store.settle([[create(Filling(id=str(number)))]])
        assert _stored_version(sqlite_url) - before < 50 + VERSIONS_PER_BLOCK
        # At most once for each mark of the newest commit.
        assert [word for _, word in executed].count("UPDATE") <= 5


def _stored_version(url: str) -> int:
    with contextlib.closing(apsw.Connection(str(Path(url.removeprefix("sqlite:///"))))) as connection:
        row = connection.execute("SELECT value FROM _holdfast_meta WHERE name = 'version'").fetchone()
        assert row is not None
        return int(row[0])


async def test_commits_of_another_process_are_told_from_this_ones(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as one, _opened_again(sqlite_url) as two:
        assert not _engine(one)._written_by_others()
        await two.commit(create(Filling(id="two")))
        assert _engine(one)._written_by_others()
        assert not _engine(two)._written_by_others()
        await one.commit(create(Filling(id="one")))
        await _engine(one)._writer.do(lambda transaction: None)  # what the commit left to the thread
        assert not _engine(one)._written_by_others()
        assert _engine(two)._written_by_others()


@document("ascending/{id}", indexes=[Index("topic", "at")])
class OldestFirst(Document):
    id: str
    topic: str
    at: int


@document("descending/{id}", indexes=[Index("topic", "-at")])
class NewestFirst(OldestFirst):
    pass


async def test_an_index_with_the_newest_first_writes_no_more_pages_than_one_with_the_oldest_first(
    tmp_path: Path,
) -> None:
    pages: list[int] = []
    for cls in (OldestFirst, NewestFirst):
        store = await open_store(f"sqlite:///{tmp_path}/{cls.__name__}.db", [cls])
        await store.migrate()
        writer = _engine(store)._writer
        writer.connection.driver.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)
        before = writer._checkpointer._pages
        for number in range(400):
            await store.settle([[create(cls(id=f"{number:030}", topic="t" * 20, at=number))]])
        writer._checkpointer.count(writer.connection.driver)
        pages.append(writer._checkpointer._pages - before)
        await store.close()
    assert pages[1] <= pages[0] * 1.02, pages


async def test_a_lone_create_notices_that_another_process_has_committed(
    sqlite_url: str, executed: Executed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_slow(monkeypatch)
    async with _opened(sqlite_url) as one, _opened_again(sqlite_url) as two:
        await two.commit(create(Filling(id="two")))
        executed.clear()
        await one.commit(create(Filling(id="one")))
        await _engine(one)._writer.do(lambda transaction: None)
        here = threading.current_thread().name
        # Once, and then the row that names this process as the last to commit.
        by_thread = [(WRITER, word) for word in ("BEGIN", "INSERT", "COMMIT")]
        assert executed[:4] == [(here, "INSERT"), *by_thread]
        assert [word for _, word in executed].count("INSERT") == 2
        executed.clear()
        await one.commit(create(Filling(id="next")))
        assert executed == [(WRITER, "BEGIN"), (WRITER, "INSERT"), (WRITER, "COMMIT")]
        with pytest.raises(AlreadyExistsError):
            await one.commit(create(Filling(id="two")))
