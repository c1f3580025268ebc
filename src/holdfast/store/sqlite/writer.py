"""Group commit: the writer thread takes all commits waiting at a moment into one transaction.

Each commit is decided by itself, so one can fail while the others succeed; the disk is synced once for all.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from queue import SimpleQueue
from typing import Any, Protocol

import apsw

from holdfast.errors import HoldfastError, StoreUnavailableError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Outcome
from holdfast.store.sqlite.connections import Options, one, open_connection
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.write_transaction import WriteTransaction

COMMITS_PER_BATCH = 1_000
SHARED_S = 0.5  # how long the file counts as shared after another process wrote to it
GATHER_S_MAX = 0.001
GATHER_STEP_S = 0.0001


class TransactionBody(Protocol):
    """Something to do inside a write transaction."""

    def __call__(self, transaction: WriteTransaction) -> Any: ...


class WriteJob:
    """One caller's commits, or other work, and the future of the result."""

    __slots__ = ("commits", "future", "result", "work")

    def __init__(
        self,
        future: asyncio.Future[Any],
        *,
        work: TransactionBody | None = None,
        commits: Sequence[Commit] = (),
    ) -> None:
        self.future, self.work, self.commits = future, work, commits
        self.result: Any = None


class SqliteWriter:
    """The thread, its connection and its queue."""

    def __init__(
        self,
        options: Options,
        mappings: dict[Schema[Any], SqliteTable],
        *,
        loop: asyncio.AbstractEventLoop,
        notify: Callable[[set[Schema[Any]]], None],
    ) -> None:
        self._connection = open_connection(options, writing=True)
        self._transaction = WriteTransaction(self._connection, mappings)
        self._loop, self._notify = loop, notify
        self._queue: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._closed = False
        self.committed = 0  # the newest version this process has committed
        self._shared_until = 0.0
        self._last_batch = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-sqlite-writer", daemon=True)
        self._prepare_meta()
        self._thread.start()

    def _prepare_meta(self) -> None:
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS _holdfast_meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID"
        )
        self._connection.execute("INSERT OR IGNORE INTO _holdfast_meta VALUES ('version', 0)")

    def do(self, work: TransactionBody) -> asyncio.Future[Any]:
        """Run work inside a write transaction; the future is done when that is durable."""
        return self._enqueue(WriteJob(self._loop.create_future(), work=work))

    def commit(self, commits: Sequence[Commit]) -> asyncio.Future[list[Outcome]]:
        return self._enqueue(WriteJob(self._loop.create_future(), commits=commits))

    def _enqueue(self, job: WriteJob) -> asyncio.Future[Any]:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        self._queue.put(job)
        return job.future

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        running = True
        while running:
            jobs, running = self._take()
            self._last_batch = len(jobs)
            if jobs:
                self._transact(jobs)
        self._connection.close()

    def _take(self) -> tuple[list[WriteJob], bool]:
        self._wait_for_more()
        job = self._queue.get()
        jobs: list[WriteJob] = []
        size = 0
        while job is not None:
            jobs.append(job)
            size += len(job.commits) or 1
            if size >= COMMITS_PER_BATCH or self._queue.empty():
                return jobs, True
            job = self._queue.get()
        return jobs, False

    def _wait_for_more(self) -> None:
        """Give the callers of the last batch time to commit again: one sync for all, not two for halves.

        A lone commit never waits, and none waits long.
        """
        until = time.monotonic() + GATHER_S_MAX
        while 0 < self._queue.qsize() < self._last_batch and time.monotonic() < until:
            time.sleep(GATHER_STEP_S)

    def _transact(self, jobs: list[WriteJob]) -> None:
        try:
            self._attempt(jobs)
        except Exception as fault:
            self._rollback()
            if len(jobs) > 1:
                # Singly, only the job at fault fails.
                for job in jobs:
                    self._transact([job])
                return
            jobs[0].result = _as_error(fault)
        self._respond(jobs)
        self._reclaim()
        if time.monotonic() < self._shared_until:
            # Other processes poll for the write lock, and must get to see it free.
            time.sleep(random.uniform(0.0002, 0.001))

    def _attempt(self, jobs: list[WriteJob]) -> None:
        transaction, connection = self._transaction, self._connection
        transaction.touched = set()
        connection.execute("BEGIN IMMEDIATE")
        transaction.version = one(connection, "SELECT value FROM _holdfast_meta WHERE name = 'version'")[0]
        before = transaction.version
        if before != self.committed:
            self._shared_until = time.monotonic() + SHARED_S
        for work, group in groupby(jobs, lambda job: job.work):
            if work is None:
                _commit_all(transaction, list(group))
            else:
                for job in group:
                    job.result = work(transaction)
        if transaction.version != before:
            connection.execute(
                "UPDATE _holdfast_meta SET value = ? WHERE name = 'version'", (transaction.version,)
            )
        connection.execute("COMMIT")
        self.committed = transaction.version

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _respond(self, jobs: list[WriteJob]) -> None:
        touched = self._transaction.touched
        try:
            self._loop.call_soon_threadsafe(self._deliver, jobs, touched)
        except RuntimeError:
            return  # the loop is closed, and nobody waits

    def _deliver(self, jobs: list[WriteJob], touched: set[Schema[Any]]) -> None:
        for job in jobs:
            if job.future.done():
                continue
            if isinstance(job.result, BaseException):
                job.future.set_exception(job.result)
            else:
                job.future.set_result(job.result)
        if touched:
            self._notify(touched)

    def _reclaim(self) -> None:
        """Give free pages back to the disk, a few at a time and only when nobody waits."""
        if self._transaction.deleted < 500 or not self._queue.empty():
            return
        self._transaction.deleted = 0
        free = one(self._connection, "PRAGMA freelist_count")[0]
        total = one(self._connection, "PRAGMA page_count")[0]
        if free > 256 and free * 4 > total:
            self._connection.execute(f"PRAGMA incremental_vacuum({min(free - total // 8, 2_000)})").fetchall()


def _commit_all(transaction: WriteTransaction, jobs: list[WriteJob]) -> None:
    """Make the commits of all these jobs as one batch."""
    outcomes = iter(transaction.commits([commit for job in jobs for commit in job.commits]))
    for job in jobs:
        job.result = list(islice(outcomes, len(job.commits)))


def _as_error(fault: Exception) -> Exception:
    if isinstance(fault, HoldfastError):
        return fault
    if isinstance(fault, apsw.BusyError):
        return StoreUnavailableError("another process has held the write lock too long; retry later")
    if isinstance(fault, apsw.FullError):
        return StoreUnavailableError("the disk is full, nothing was written; free some space", after_s=30)
    if isinstance(fault, apsw.Error):
        return StoreUnavailableError(f"SQLite refused: {fault}; nothing was written")
    return fault
