"""Checkpoints beside the writer: the log stays bounded, and a commit's thread copies little of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.store import Store, create
from holdfast.store.sqlite import SqliteEngine, checkpointer
from holdfast.store.sqlite.checkpointer import Checkpointer
from holdfast.store.sqlite.connections import one
from tests.faults.models import ALL, Seat
from tests.faults.store_opener import opener

PAGES, RETRY_PAGES = 60, 20
FRAME_BYTES = 4_096 + 24
THREAD = "holdfast-sqlite-checkpointer"

opened = opener(ALL, migrate=True)


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have checkpoints made long before the log has 16 MB."""
    monkeypatch.setattr(checkpointer, "PAGES", PAGES)
    monkeypatch.setattr(checkpointer, "RETRY_PAGES", RETRY_PAGES)


def wal(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///") + "-wal")


def longest(url: str) -> int:
    """The most frames that the log has had: its file is not shortened before 64 MB."""
    return wal(url).stat().st_size // FRAME_BYTES


@contextlib.contextmanager
def looking(url: str) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    yield connection
    connection.close()


def log_of(connection: apsw.Connection) -> tuple[int, int]:
    """The frames in the log, and how many of them are copied."""
    _, frames, copied = one(connection, "PRAGMA wal_checkpoint(NOOP)")
    return frames, copied


async def keep(store: Store, name: str, count: int) -> None:
    for n in range(count):
        await store.commit(create(Seat(id=f"{name}-{n:05}", taken_by="x" * 3_000)))


async def keep_together(store: Store, name: str, *, tasks: int = 8, count: int = 100) -> None:
    await asyncio.gather(*(keep(store, f"{name}{task}", count) for task in range(tasks)))


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Checkpointer]:
    calls: list[Checkpointer] = []
    call = getattr(Checkpointer, name)

    def counted(self: Checkpointer, *values: object) -> object:
        calls.append(self)
        return call(self, *values)

    monkeypatch.setattr(Checkpointer, name, counted)
    return calls


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == THREAD]


@pytest.mark.usefixtures("short_log")
async def test_under_steady_commits_the_writer_copies_the_rest_of_what_the_thread_has_copied(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_over = count_calls(monkeypatch, "_copy_in_writer")
    appended_before, rests = [0], list[tuple[int, int]]()
    copy, finish = Checkpointer._copy, Checkpointer._finish

    def copy_and_note(self: Checkpointer) -> bool:
        appended_before[0] = self._pages
        return copy(self)

    def finish_and_count(self: Checkpointer) -> None:
        assert self._connection is not None
        frames, copied = log_of(self._connection)
        rests.append((frames - copied, self._pages - appended_before[0]))
        finish(self)

    monkeypatch.setattr(Checkpointer, "_copy", copy_and_note)
    monkeypatch.setattr(Checkpointer, "_finish", finish_and_count)
    async with opened(sqlite_url) as store:
        finished = count_calls(monkeypatch, "_start_over")
        await keep_until_finished(store, "s", finished, times=5)
    assert taken_over == []
    assert len(rests) >= 5
    assert all(rest <= appended for rest, appended in rests), rests


@pytest.mark.usefixtures("short_log")
async def test_a_log_that_starts_anew_by_itself_is_left_alone(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[tuple[int, int]] = []
    finish = Checkpointer._finish

    def finish_and_look(self: Checkpointer) -> None:
        assert self._connection is not None
        before, longest = log_of(self._connection), self._frames
        finish(self)
        if before[0] < longest:
            copied.append((log_of(self._connection)[1], before[1]))

    monkeypatch.setattr(Checkpointer, "_finish", finish_and_look)
    async with opened(sqlite_url) as store, asyncio.timeout(60):
        assert isinstance(store.engine, SqliteEngine)
        for n in itertools.count():
            await keep(store, f"{n}", 1)
            # One caller that waits for the thread: no pass meets a commit.
            while store.engine._writer._checkpointer._copying:  # noqa: ASYNC110 - another thread
                await asyncio.sleep(0.001)
            if len(copied) >= 3:
                break
    assert all(after == before for after, before in copied), copied


@pytest.mark.usefixtures("short_log")
async def test_a_log_that_a_reader_holds_back_starts_anew_when_the_reader_is_gone(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await keep(store, "before", 5)
        with looking(sqlite_url) as reader, looking(sqlite_url) as other:
            reader.execute("BEGIN")
            seen = reader.execute("SELECT count(*) FROM seats").fetchall()
            await keep_together(store, "beside")
            assert reader.execute("SELECT count(*) FROM seats").fetchall() == seen
            held = log_of(other)[0]
            assert held > 5 * PAGES
            reader.execute("ROLLBACK")
            async with asyncio.timeout(60):
                for n in itertools.count():
                    await keep(store, f"after-{n}", 5)
                    if log_of(other)[0] < held:
                        break
        assert longest(sqlite_url) <= held + checkpointer.TAKEOVER_PAGES


def fail(self: Checkpointer) -> bool:
    raise apsw.FullError("no room")


def end(self: Checkpointer) -> bool:
    raise SystemExit


@pytest.mark.parametrize("copy", [fail, end], ids=["fails", "ends"])
@pytest.mark.usefixtures("short_log")
async def test_the_writer_bounds_the_log_of_a_thread_that(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, copy: object
) -> None:
    monkeypatch.setattr(checkpointer, "TAKEOVER_PAGES", 2 * PAGES)
    monkeypatch.setattr(Checkpointer, "_copy", copy)
    taken_over = count_calls(monkeypatch, "_copy_in_writer")
    async with opened(sqlite_url) as store:
        await keep_together(store, "s")
        assert longest(sqlite_url) < 10 * PAGES
    assert len(taken_over) >= 3


@pytest.mark.usefixtures("short_log")
async def test_the_writer_bounds_the_log_of_a_thread_that_hangs(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "TAKEOVER_PAGES", 2 * PAGES)
    go_on = threading.Event()
    monkeypatch.setattr(Checkpointer, "_copy", lambda self: go_on.wait())
    async with opened(sqlite_url) as store:
        await keep_together(store, "s")
        assert longest(sqlite_url) < 10 * PAGES
        go_on.set()
    assert threads() == []


async def test_a_store_that_writes_little_starts_no_thread_and_one_that_is_closed_leaves_none(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_url) as store:
        await keep(store, "few", 5)
        assert threads() == []
    monkeypatch.setattr(checkpointer, "PAGES", PAGES)
    async with opened(sqlite_url) as store:
        await keep_together(store, "s", count=20)
        assert threads() == [THREAD]
    assert threads() == []


async def keep_until_finished(store: Store, name: str, finished: list[Checkpointer], *, times: int) -> None:
    """Commit until the log was started anew so many times."""
    until = len(finished) + times
    async with asyncio.timeout(60):
        for n in itertools.count():
            await keep_together(store, f"{name}-{n}-", count=20)
            if len(finished) >= until:
                break


@pytest.mark.usefixtures("short_log")
async def test_a_connection_that_is_replaced_goes_on_to_be_checkpointed(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_url) as store:
        assert isinstance(store.engine, SqliteEngine)
        finished = count_calls(monkeypatch, "_start_over")
        await keep_until_finished(store, "s", finished, times=2)
        store.engine._writer.connection.replace()
        await keep_until_finished(store, "t", finished, times=2)
