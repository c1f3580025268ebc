"""SQLite's writer thread outlives a full disk, a lock held by others, broken connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.app import back_up, open_store
from holdfast.config import load_config
from holdfast.errors import ConfigError, OutcomeUnknownError, StoreUnavailableError
from holdfast.runtime import Runtime
from holdfast.runtime.health import HealthMonitor
from holdfast.store import Store, create, delete
from holdfast.store.sqlite import SqliteEngine
from holdfast.store.sqlite import writer as sqlite_writer
from holdfast.store.sqlite.write_transaction import WriteTransaction
from tests.faults.small_disk import Filling
from tests.kit.eventually import until_found

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


async def _is_now(runtime: Runtime, status: str) -> bool:
    return (await runtime.health()).status == status


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


COMMIT_AND_DIE = """
import asyncio, os, signal, sys
from holdfast.app import back_up, open_store
from holdfast.config import load_config
from holdfast.store import create
from tests.faults.small_disk import Filling

async def main():
    store = await open_store(sys.argv[1], [Filling])
    await store.migrate()
    for number in range(20):
        await store.commit(create(Filling(id=str(number))))
        await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_log_that_is_deleted_after_a_kill_is_noticed_at_the_next_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", COMMIT_AND_DIE, url, cwd=ROOT)
    assert await process.wait() == -signal.SIGKILL
    log, kept = tmp_path / "a.db-wal", tmp_path / "kept"
    log.rename(kept)
    with pytest.raises(ConfigError, match=r"has lost up to \d+ of its newest changes.*a\.db-mark"):
        await open_store(url, [Filling])
    # Put back, nothing is lost.
    (tmp_path / "a.db-shm").unlink(missing_ok=True)
    kept.rename(log)
    store = await open_store(url, [Filling])
    assert await store.get(Filling, "19") is not None
    await store.close()


async def test_a_store_that_another_process_commits_to_while_it_is_opened_has_lost_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    mark = Path(f"{path}-mark")
    store = await open_store(f"sqlite:///{path}", [Filling])
    await store.migrate()
    await store.close()
    mark.unlink(missing_ok=True)
    os.mkfifo(mark)

    def commit_and_mark() -> None:
        # Opens when the mark is about to be read.
        with mark.open("w") as pipe, contextlib.closing(apsw.Connection(str(path))) as other:
            other.execute("UPDATE _holdfast_meta SET value = value + 1 WHERE name = 'version'")
            rows = other.execute("SELECT name, value FROM _holdfast_meta").fetchall()
            meta = {row[0]: row[1] for row in rows}
            pipe.write(f"{meta['store_id']} {path.stat().st_ino} {meta['version']}\n")

    committing = asyncio.create_task(asyncio.to_thread(commit_and_mark))
    await asyncio.sleep(0)
    store = await open_store(f"sqlite:///{path}", [Filling])
    await committing
    await store.close()


async def test_a_backup_put_in_the_place_of_a_newer_store_is_opened(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path}/a.db", tmp_path / "copy.db"
    store = await _filled(url)
    await back_up(store, copy)
    await store.settle([create(Filling(id=f"late-{n}"))] for n in range(5))
    await _alive(store)
    await store.close()
    copy.rename(tmp_path / "a.db")
    restored = await open_store(url, [Filling])
    assert await restored.get(Filling, "late-1") is None
    await _alive(restored)
    await restored.close()


async def test_health_tells_of_a_store_that_nobody_can_write_though_nobody_tries(tmp_path: Path) -> None:
    config = load_config({"home": tmp_path, "store": f"sqlite:///{tmp_path}/a.db?busy_s=1"}, environ={})
    runtime = await Runtime.open(config, services=[])
    try:
        assert (await runtime.health()).status == "ok"
        holder = apsw.Connection(str(tmp_path / "a.db"))
        holder.execute("BEGIN IMMEDIATE")
        await until_found(lambda: _is_now(runtime, "critical"), within_s=60)
        holder.execute("ROLLBACK")
        holder.close()
        await until_found(lambda: _is_now(runtime, "ok"), within_s=60)
    finally:
        await runtime.close()


async def test_a_process_that_a_signal_ends_leaves_a_trace() -> None:
    die = "import os, signal, sys; sys.argv = ['holdfast', '--version']; from holdfast import cli; "
    die += "cli.app = lambda: os.kill(os.getpid(), signal.SIGBUS); cli.main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", die, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == -signal.SIGBUS
    assert b"Fatal Python error: Bus error" in said
