"""Checkpoints of several processes on one file, and of processes that are killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.errors import ConfigError
from holdfast.store import Query
from holdfast.store.sqlite import checkpointer
from tests.contract.test_sqlite_checkpoints import (
    PAGES,
    RETRY_PAGES,
    count_calls,
    keep_until_finished,
    looking,
    opened,
)
from tests.faults.models import ALL, Seat
from tests.faults.small_disk import Filling

ROOT = Path(__file__).parents[2]

BESIDE = """
import asyncio, sys
from holdfast.app import open_store
from holdfast.store.sqlite import checkpointer
from tests.contract.test_sqlite_checkpoints import ALL, PAGES, RETRY_PAGES, keep_together

checkpointer.PAGES, checkpointer.RETRY_PAGES = PAGES, RETRY_PAGES

async def main():
    store = await open_store(sys.argv[1], ALL)
    print("open", flush=True)
    rounds, told = 0, asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not told.done():
        await keep_together(store, f"other-{rounds}-", count=5)
        rounds += 1
    print(rounds, flush=True)
    await store.close()

asyncio.run(main())
"""


async def test_a_log_that_another_process_writes_to_starts_anew_again_and_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "PAGES", PAGES)
    monkeypatch.setattr(checkpointer, "RETRY_PAGES", RETRY_PAGES)
    async with opened(sqlite_url) as store:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BESIDE, sqlite_url, cwd=ROOT,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert await process.stdout.readline() == b"open\n"
        finished = count_calls(monkeypatch, "_start_over")
        await keep_until_finished(store, "own", finished, times=10)
        said, _ = await process.communicate(b"stop\n")
        assert process.returncode == 0
        others = [s async for s in store.scan(Query(Seat).limit(500)) if s.doc.id.startswith("other-")]
        assert len(others) == int(said) * 8 * 5


KILLED = """
import asyncio, json, os, random, signal, sys, time
from holdfast.app import open_store
from holdfast.store import create
from holdfast.store.sqlite import checkpointer
from tests.faults.models import ALL, Seat

checkpointer.PAGES, checkpointer.RETRY_PAGES = 8, 4

async def keep(round, pipe):
    store = await open_store(sys.argv[1], ALL)
    async def task(number):
        for n in range(100_000):
            id = f"{round}-{number}-{n}"
            await store.commit(create(Seat(id=id, taken_by="x" * 3_000)))
            os.write(pipe, id.encode() + b"\\n")
    await asyncio.gather(*(task(number) for number in range(4)))

kept = []
for round in range(25):
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        asyncio.run(keep(round, writes))
    os.close(writes)
    said = os.read(reads, 100)
    time.sleep(random.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reads, "rb") as rest:
        said += rest.read()
    kept += said.decode().splitlines()
print(json.dumps(kept))
"""


async def test_a_process_killed_during_checkpoints_has_lost_nothing(sqlite_url: str) -> None:
    async with opened(sqlite_url):
        pass
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KILLED, sqlite_url], cwd=ROOT, capture_output=True, check=True
    )
    kept = set(json.loads(done.stdout))
    assert len(kept) > 100
    # Nobody has closed the database: what is in it was copied by checkpoints.
    assert Path(sqlite_url.removeprefix("sqlite:///")).stat().st_size > 500_000
    store = await open_store(sqlite_url, ALL)
    found = {snapshot.doc.id async for snapshot in store.scan(Query(Seat).limit(500))}
    await store.close()
    assert kept <= found
    with looking(sqlite_url) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


CHECKPOINT_AND_DIE = """
import asyncio, os, signal, sys
import apsw
from holdfast.app import open_store
from holdfast.store import create
from holdfast.store.sqlite import checkpointer
from tests.faults.small_disk import Filling

checkpointer.PAGES = checkpointer.RETRY_PAGES = 1

async def main():
    store = await open_store(sys.argv[1], [Filling])
    await store.migrate()
    other = apsw.Connection(sys.argv[1].removeprefix("sqlite:///"))
    number, log = 0, (1, 0)
    while number < 10 or log[0] != log[1]:
        await store.commit(create(Filling(id=str(number))))
        number += 1
        await asyncio.sleep(0.05)
        other.execute("SELECT * FROM fillings").fetchall()
        _, *log = other.execute("PRAGMA wal_checkpoint(NOOP)").fetchone()
    store.engine._writer._checkpointer.advance = lambda connection: None
    for _ in range(int(sys.argv[2])):
        await store.commit(create(Filling(id=str(number))))
        number += 1
        await asyncio.sleep(0.05)
    print(number, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("later", [0, 20])
async def test_a_deleted_log_is_noticed_by_the_commits_since_the_last_checkpoint(
    tmp_path: Path, later: int
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHECKPOINT_AND_DIE, url, str(later), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    log, kept = tmp_path / "a.db-wal", tmp_path / "kept"
    log.rename(kept)
    (tmp_path / "a.db-shm").unlink(missing_ok=True)
    if later:
        with pytest.raises(ConfigError, match=r"has lost up to \d+ of its newest changes.*a\.db-mark"):
            await open_store(url, [Filling])
        (tmp_path / "a.db-shm").unlink(missing_ok=True)
        kept.rename(log)
    store = await open_store(url, [Filling])
    assert [await store.get(Filling, str(n)) is not None for n in range(int(said))] == [True] * int(said)
    await store.close()
