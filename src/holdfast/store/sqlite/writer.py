"""Group commit: the writer thread takes all commits waiting at a moment into one transaction.

Each commit is decided by itself, so one can fail while the others succeed; the disk is synced once for all.
A small commit or one caller's batch that comes alone is made in its caller's task, which saves two switches
between threads, while the disk is fast, nobody else writes to the file, and what came before it was one
caller's, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import apsw
import structlog

from holdfast.errors import HoldfastError, OutcomeUnknownError, StoreUnavailableError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Outcome
from holdfast.store.sqlite.checkpointer import Checkpointer
from holdfast.store.sqlite.commit_board import CommitBoard
from holdfast.store.sqlite.connections import Options, refused
from holdfast.store.sqlite.in_place import WRITES_MAX, InPlaceBudget, callers, writes_in_place
from holdfast.store.sqlite.lone_commit import LoneCommit
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.write_connection import TransactionBody, WriteConnection, WriteJob

COMMITS_PER_BATCH = 1_000
GATHER_S_MAX = 0.001
GATHER_STEP_S = 0.0001
# A job of so many commits is worth a transaction of its own, and the loop waits so long for its beginning.
LARGE_MIN = 32
BEGIN_S_MAX = 0.005
WATCH_S = 1.0
STALLED_S = 3.0
HANG_S = 5.0  # past the time a commit waits for the write lock
# A batch is not made in the loop's thread while the loop has other work.
LOOP_BUSY_S = 0.000_2
FAULT_S = 10.0
WRITER_ENDED = "the thread that writes has ended; restart the process"
WRITER_HANGS = "the thread that writes hangs; look at the disk, and restart the process"

log = structlog.get_logger("holdfast.sqlite")


class SqliteWriter:
    """The thread, its connection and its queue."""

    def __init__(
        self,
        options: Options,
        mappings: dict[Schema[Any], SqliteTable],
        *,
        loop: asyncio.AbstractEventLoop,
        notify: Callable[[set[Schema[Any]], Sequence[WriteJob]], None],
        board: CommitBoard | None = None,
    ) -> None:
        self._options = options
        self.connection = WriteConnection(options, mappings, board)
        self._checkpointer = Checkpointer(options)
        self._loop, self._notify = loop, notify
        self._queue: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._closed = self._ended = False
        self._last_batch = self._last_callers = 0
        # A lone commit that waits for the end of the loop's turn, and how many jobs the thread has.
        self._lone: WriteJob | None = None
        self._lone_batch = 0  # its writes, where it has many
        self._lone_since_s = 0.0
        self._in_thread = 0
        self._in_place = InPlaceBudget()
        # Held by whoever uses the connection: the writer thread during a batch, the loop's to commit or read
        # in place. Not released again once the connection is closed, or may be inside a transaction.
        self.using = threading.Lock()
        # Released by the thread when it begins to write what the loop's thread has handed over and awaits.
        self._began = threading.Lock()
        self._began.acquire()
        self._awaits_begin = False
        self._has_large = False  # among the jobs that wait for the thread
        self.connection.on_begin = self._note_begin
        # The batch at work and since when: read by the watchdog, in the loop's thread.
        self._batch: list[WriteJob] = []
        self._batch_since_s = 0.0
        self._fault, self._fault_s = "", 0.0
        self._thread = threading.Thread(target=self._run, name="holdfast-sqlite-writer", daemon=True)
        self._thread.start()
        self._watchdog = loop.call_later(WATCH_S, self._watch)

    def do(self, work: TransactionBody) -> asyncio.Future[Any]:
        """Run work inside a write transaction; the future is done when that is durable."""
        return self._enqueue(WriteJob(work=work))

    def commit(self, commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
        """Make commits; the awaitable of one that may be alone is not a future, and begins when awaited."""
        job = WriteJob(commits=commits)
        if self._lone is not None or not self._is_calm or not self._may_be_lone(job):
            return self._enqueue(job)
        self._check_open()
        self._lone = job
        return LoneCommit(job, commit_in_place=self._commit_lone, withdraw=self._withdraw_lone)

    def _enqueue(self, job: WriteJob) -> asyncio.Future[Any]:
        self._check_open()
        self._end_lone()
        return self._hand_over(job)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        if self._ended:
            raise StoreUnavailableError(WRITER_ENDED)

    @property
    def _is_calm(self) -> bool:
        """Whether nothing waits, and the last request was one caller's: this one is not the first of many."""
        return self._in_thread == 0 and self._last_callers <= 1

    def _may_be_lone(self, job: WriteJob) -> bool:
        """Whether to wait for the end of the loop's turn, to make the job in place if it is then alone."""
        writes = writes_in_place(job.commits)
        self._lone_batch = 0
        if writes > WRITES_MAX:
            self._lone_batch, self._lone_since_s = writes, time.monotonic()
            return self._in_place.allows(self._lone_since_s)
        return writes > 0

    def _hand_over(self, job: WriteJob) -> asyncio.Future[Any]:
        """Give a job to the thread; return the future of its result."""
        future = job.future
        if future is None:
            future = job.future = self._loop.create_future()
        job.in_thread = True
        self._in_thread += 1
        is_large = len(job.commits) >= LARGE_MIN
        self._has_large |= is_large
        self._queue.put(job)
        if is_large and not self._batch:
            self._await_begin()
        return future

    def _await_begin(self) -> None:
        """Let the idle thread prepare its batch; return when it begins to write, which needs no GIL.

        Otherwise the thread would have to wait for the GIL until the loop is idle, and the disk with it.
        """
        self._awaits_begin = True
        self._began.acquire(timeout=BEGIN_S_MAX)
        self._awaits_begin = False

    def _note_begin(self) -> None:
        # Not locked where the loop's thread had stopped to wait when the thread began.
        if self._awaits_begin and self._began.locked():
            self._awaits_begin = False
            self._began.release()

    def _forget(self, job: WriteJob) -> None:
        """Count a job of the thread as done, once."""
        self._in_thread -= job.in_thread
        job.in_thread = False

    def _end_lone(self) -> None:
        """Hand the commit that was to be made in place to the thread: it is not alone."""
        job, self._lone = self._lone, None
        if job is not None:
            self._hand_over(job)

    def _withdraw_lone(self, job: WriteJob) -> None:
        """Forget a lone commit that was not begun."""
        if self._lone is job:
            self._lone = None

    def _commit_lone(self, job: WriteJob) -> bool:
        """Commit in the loop's thread, unless others came to share a transaction; whether it was made so."""
        if self._lone is not job:
            return False
        self._lone, now_s = None, time.monotonic()
        if not self._may_commit_in_place(now_s) or not self.using.acquire(blocking=False):
            self._hand_over(job)
            return False
        try:
            made = self._commit_in_place(job, now_s)
            # Another set in the next transaction, which the thread may begin.
            touched = self.connection.transaction.touched
        finally:
            self.using.release()
        if not made:
            self._hand_over(job)
        elif touched:
            self._notify(touched, [job])
        return made

    def _may_commit_in_place(self, now_s: float) -> bool:
        """Whether the disk is fast, nobody else writes to the file, and the thread has nothing to tidy.

        A batch must have found the loop with nothing else to do.
        """
        if not self._in_place.allows(now_s) or self._checkpointer.is_due:
            return False
        if self._lone_batch and now_s - self._lone_since_s > LOOP_BUSY_S:
            return False
        return not self.connection.needs_thread(now_s)

    def _commit_in_place(self, job: WriteJob, started_s: float) -> bool:
        """Commit without waiting for a lock; where another process holds it, the thread must wait."""
        connection = self.connection
        connection.busy.waits = False
        try:
            if not connection.commit_alone(job):
                connection.transact([job])
            elif not connection.is_last_writer:
                # A change by which this process is again the last to commit.
                self._hand_over(WriteJob(work=lambda transaction: transaction.next_version()))
        except apsw.BusyError:
            connection.roll_back()
            return False
        except Exception as fault:
            connection.roll_back()
            self._fail(job, fault)
        else:
            self._fault = ""
        finally:
            connection.busy.waits = True
            took_s = time.monotonic() - started_s
            self._in_place.charge(started_s, took_s, batch_writes=self._lone_batch)
        if self._lone_batch:
            self._checkpointer.count(connection.driver)
        else:
            self._checkpointer.count_lone(connection.driver)
        return True

    @property
    def problem(self) -> str | None:
        """Why commits can't be made at this moment; None where they can."""
        if not self._thread.is_alive() and not self._closed:
            return WRITER_ENDED
        if self._batch and (stalled_s := time.monotonic() - self._batch_since_s) > STALLED_S:
            return f"a commit has waited for the disk or for the write lock for {stalled_s:.0f} s"
        failing = self._fault and time.monotonic() - self._fault_s < FAULT_S
        return self._fault if failing else None

    def _watch(self) -> None:
        """Fail everybody who waits for a writer that has ended or hangs, so that no caller waits for good."""
        ended = not self._thread.is_alive()
        hangs = self._batch and time.monotonic() - self._batch_since_s > self._options.busy_s + HANG_S
        if ended or hangs:
            for job in [*self._batch, *self._drain_queue()]:
                self._forget(job)
                job.result = OutcomeUnknownError(WRITER_ENDED if ended else WRITER_HANGS)
                job.fulfil()
        if not self._closed:
            self._watchdog = self._loop.call_later(WATCH_S, self._watch)

    def _drain_queue(self) -> list[WriteJob]:
        drained: list[WriteJob] = []
        with contextlib.suppress(Empty):
            while (job := self._queue.get_nowait()) is not None:
                drained.append(job)
            self._queue.put(None)
        return drained

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._watchdog.cancel()
            self._end_lone()
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        running = True
        try:
            while running:
                jobs, running = self._take()
                self._last_batch = len(jobs)
                self._last_callers = sum([callers(job.commits) for job in jobs])
                if jobs:
                    self._batch_since_s, self._batch = time.monotonic(), jobs
                    self.using.acquire()
                    self._transact_safely(jobs)
                    self.using.release()
                    self._batch = []
        finally:
            self._ended = True
            self._checkpointer.close()
        self.using.acquire()
        self.connection.close()

    def _transact_safely(self, jobs: list[WriteJob]) -> None:
        """Whatever happens, respond, and leave a connection that the next batch can use."""
        try:
            self._transact(jobs)
        except Exception as fault:
            log.error("writing failed; the connection is replaced", exc_info=fault)
            for job in jobs:
                job.result = StoreUnavailableError(f"writing failed: {fault}; nothing was written")
            self._respond(jobs)
            self.connection.replace()

    def _take(self) -> tuple[list[WriteJob], bool]:
        self._wait_for_more()
        job = self._queue.get()
        self._has_large = False
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

        A lone commit never waits, nor does one caller's large batch, and none waits long.
        """
        until = time.monotonic() + GATHER_S_MAX
        while 0 < self._queue.qsize() < self._last_batch and time.monotonic() < until and not self._has_large:
            time.sleep(GATHER_STEP_S)

    def _transact(self, jobs: list[WriteJob]) -> None:
        try:
            self.connection.transact(jobs)
        except Exception as fault:
            self.connection.roll_back()
            if len(jobs) > 1:
                # Singly, only the job at fault fails.
                for job in jobs:
                    self._transact([job])
                return
            self._fail(jobs[0], fault)
        else:
            self._fault = ""
        self._respond(jobs)
        if self.connection.is_reclaim_due and self._queue.empty():
            self.connection.reclaim()
        self._checkpointer.advance(self.connection.driver)
        if self.connection.is_shared and not self._queue.empty():
            # Other processes poll for the write lock, and must get to see it free.
            time.sleep(random.uniform(0.0002, 0.001))

    def _fail(self, job: WriteJob, fault: Exception) -> None:
        job.result = _as_error(fault)
        if isinstance(job.result, StoreUnavailableError):
            self._fault, self._fault_s = job.result.message, time.monotonic()

    def _respond(self, jobs: list[WriteJob]) -> None:
        touched = self.connection.transaction.touched
        try:
            self._loop.call_soon_threadsafe(self._deliver, jobs, touched)
        except RuntimeError:
            return  # the loop is closed, and nobody waits

    def _deliver(self, jobs: list[WriteJob], touched: set[Schema[Any]]) -> None:
        for job in jobs:
            self._forget(job)
            job.fulfil()
        if touched:
            self._notify(touched, jobs)


def _as_error(fault: Exception) -> Exception:
    if isinstance(fault, HoldfastError):
        return fault
    if isinstance(fault, apsw.BusyError):
        return StoreUnavailableError("another process has held the write lock too long; retry later")
    if isinstance(fault, apsw.FullError):
        return StoreUnavailableError("the disk is full, nothing was written; free some space", after_s=30)
    if isinstance(fault, OSError):
        return StoreUnavailableError(f"can't write beside the database: {fault}; nothing was written")
    if isinstance(fault, apsw.Error):
        return refused(fault)
    return fault
