"""SQLite's writer thread outlives a full disk, a lock held by others, broken connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.app import open_store
from holdfast.errors import OutcomeUnknownError, StoreUnavailableError
from holdfast.runtime.health import HealthMonitor
from holdfast.store import Store, create, delete
from holdfast.store.sqlite import SqliteEngine
from holdfast.store.sqlite import writer as sqlite_writer
from holdfast.store.sqlite.write_transaction import WriteTransaction
from tests.faults.small_disk import Filling

ROOT = Path(__file__).parents[2]
MANY = 1_200


async def _filled(url: str) -> Store:
    store = await open_store(url, [Filling])
    await store.migrate()
    await store.settle([create(Filling(id=f"{n:05}", text="x" * 2_000))] for n in range(MANY))
    return store


async def _alive(store: Store) -> None:
    async with asyncio.timeout(60):
        await store.commit(create(Filling(id="after", text="still here")))
    assert await store.get(Filling, "after") is not None


@contextlib.contextmanager
def _lock_after_each_commit(path: str, hold_s: float) -> Iterator[None]:
    """Another process that takes the write lock whenever it is free, and holds it."""
    stop = threading.Event()

    def hold() -> None:
        connection = apsw.Connection(path)
        while not stop.is_set():
            with contextlib.suppress(apsw.BusyError):
                connection.execute("BEGIN IMMEDIATE")
                stop.wait(hold_s)
                connection.execute("ROLLBACK")
            time.sleep(0.0005)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def test_a_lock_held_by_others_while_pages_are_given_back_stops_nothing(tmp_path: Path) -> None:
    store = await _filled(f"sqlite:///{tmp_path}/a.db?busy_s=0.3")
    try:
        with _lock_after_each_commit(str(tmp_path / "a.db"), hold_s=0.5):
            for first in range(0, MANY, 600):
                ids = [f"{n:05}" for n in range(first, first + 600)]
                while True:
                    with contextlib.suppress(StoreUnavailableError):
                        await store.settle([delete(Filling, id)] for id in ids)
                        break
        await _alive(store)
    finally:
        await store.close()


async def test_a_full_disk_fails_commits_and_stops_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    mount = f"mkdir -p {small} && mount -t tmpfs -o size=64m tmpfs {small}"
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    if shutil.which("unshare") is None or await asyncio.to_thread(
        lambda: subprocess.run([*inside, mount]).returncode != 0
    ):
        pytest.skip("A FULL DISK IS NOT TESTED: this machine lets nobody mount a small disk")
    command = f'{mount} && exec "{sys.executable}" -m tests.faults.small_disk {small}'
    process = await asyncio.create_subprocess_exec(*inside, command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    told = json.loads(out)
    assert told["refused"] == "store_unavailable"
    assert "disk is full" in told["health"]
    assert told["deleted_while_full"] in ("done", "store_unavailable")
    assert told["after"] == "still here"


async def test_a_connection_that_can_not_roll_back_is_replaced(tmp_path: Path) -> None:
    store = await _filled(f"sqlite:///{tmp_path}/a.db")
    assert isinstance(store.engine, SqliteEngine)

    def break_connection(transaction: WriteTransaction) -> None:
        transaction.connection.close(True)

    try:
        with pytest.raises(StoreUnavailableError, match="nothing was written"):
            await store.engine._writer.do(break_connection)
        await _alive(store)
    finally:
        await store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_callers_and_health_hear_of_a_writer_that_has_ended(tmp_path: Path) -> None:
    store = await _filled(f"sqlite:///{tmp_path}/a.db")
    assert isinstance(store.engine, SqliteEngine)

    def end(transaction: WriteTransaction) -> None:
        raise SystemExit

    try:
        async with asyncio.timeout(60):
            with pytest.raises(OutcomeUnknownError, match="has ended; restart the process"):
                await store.engine._writer.do(end)
        with pytest.raises(StoreUnavailableError, match="has ended; restart the process"):
            await store.commit(create(Filling(id="after")))
        monitor = HealthMonitor(store, {}, outboxes={}, run_queues={}, channel_kinds=[], loops=lambda: None)
        health = await monitor.health()
        assert (health.status, "has ended" in health.reasons[0]) == ("critical", True)
    finally:
        await store.close()


async def test_health_tells_of_a_commit_that_waits_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "STALLED_S", 0.1)
    store = await _filled(f"sqlite:///{tmp_path}/a.db?busy_s=20")
    other = apsw.Connection(str(tmp_path / "a.db"))
    try:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.commit(create(Filling(id="after"))))
        async with asyncio.timeout(60):
            while store.engine.problem is None:  # noqa: ASYNC110 - another thread
                await asyncio.sleep(0.01)
        assert "waited for the disk or for the write lock" in store.engine.problem
        other.execute("ROLLBACK")
        await waiting
        assert store.engine.problem is None
    finally:
        other.close()
        await store.close()
