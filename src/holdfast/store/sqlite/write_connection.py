"""The connection that writes: transactions of whole batches, and what several processes on one file need."""

from __future__ import annotations

import contextlib
import secrets
import time
from asyncio import Future
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from typing import Any, Protocol

import apsw
import structlog

from holdfast.errors import HoldfastError, StoreUnavailableError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Committed
from holdfast.store.commit_batch import CommitBatch, join_commits
from holdfast.store.sqlite.batch_view import NAME_WRITER
from holdfast.store.sqlite.bulk_insert import RefusedInsertError
from holdfast.store.sqlite.commit_board import CommitBoard
from holdfast.store.sqlite.commit_mark import CommitMark
from holdfast.store.sqlite.connections import BusyHandler, Options, one, open_connection
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.write_transaction import WriteTransaction, create_meta

SHARED_S = 0.5  # how long the file counts as shared after another process wrote to it
RECLAIM_MIN = 500  # deleted documents
REFUSED_BATCHES = 16  # after one that could not be made by one statement, so many are made by several
BATCH_MIN = 16  # from how many commits that are alike on a batch is worth statements of its own

log = structlog.get_logger("holdfast.sqlite")


class TransactionBody(Protocol):
    """Something to do inside a write transaction."""

    def __call__(self, transaction: WriteTransaction) -> Any: ...


class WriteJob:
    """One caller's commits, or other work; with a future of the result where a caller waits for it."""

    __slots__ = ("commits", "future", "in_thread", "result", "work")

    def __init__(self, *, work: TransactionBody | None = None, commits: Sequence[Commit] = ()) -> None:
        self.work, self.commits = work, commits
        self.future: Future[Any] | None = None
        self.result: Any = None
        self.in_thread = False

    def fulfil(self) -> None:
        """Give the result, or the fault, to who waits for it."""
        if self.future is None or self.future.done():
            return
        if isinstance(self.result, BaseException):
            self.future.set_exception(self.result)
        else:
            self.future.set_result(self.result)


class WriteConnection:
    """Executes jobs; used by one thread at a time."""

    def __init__(
        self, options: Options, mappings: dict[Schema[Any], SqliteTable], board: CommitBoard | None
    ) -> None:
        self._options, self._mappings, self._board = options, mappings, board
        self.on_begin: Callable[[], None] = _ignore  # called where the next statement may take long
        self.busy = BusyHandler(options.busy_s)
        self.driver = self._connect()
        self.transaction = WriteTransaction(self.driver, mappings)
        self.token = secrets.token_hex(8)  # in the file where this process was the last to commit
        self.is_last_writer = False
        self._shared_until = 0.0
        self._refused_batches = 0
        self._mark = self._prepare_meta()
        self._data_version = self.driver.data_version()  # after this process's newest commit

    def _connect(self) -> apsw.Connection:
        driver = open_connection(self._options, writing=True)
        driver.set_busy_handler(self.busy)
        return driver

    def _prepare_meta(self) -> CommitMark:
        """Make sure that the file can be written and has lost nothing."""
        driver = self.driver
        try:
            create_meta(driver)
            if driver.changes():
                # What identifies the store must not be in the log alone.
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            mark = CommitMark(self._options.path, driver)
            mark.check(driver)
        except (apsw.Error, HoldfastError) as fault:
            driver.close(True)
            if isinstance(fault, HoldfastError):
                raise
            raise StoreUnavailableError(
                f"can't write {self._options.path}: {fault}; check the rights to the file and its folder, "
                "and whether another process holds it locked"
            ) from None
        return mark

    @property
    def is_shared(self) -> bool:
        """Whether another process has committed to the file lately."""
        return time.monotonic() < self._shared_until

    @property
    def is_reclaim_due(self) -> bool:
        return self.transaction.deleted >= RECLAIM_MIN

    def needs_thread(self, now_s: float) -> bool:
        """Whether the next transaction may take longer than its own commit."""
        transaction = self.transaction
        if now_s < self._shared_until or transaction.deleted >= RECLAIM_MIN:
            return True
        return self._mark.is_due(transaction.version, now_s)

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        """Do the jobs in one transaction, and set their results; raises where none of it was committed."""
        if self._commit_at_once(jobs):
            return
        try:
            self._transact(jobs, lone=len(jobs) == 1 and len(jobs[0].commits) == 1)
        except RefusedInsertError:
            self.roll_back()
            self._transact(jobs, lone=False)

    def _transact(self, jobs: Sequence[WriteJob], *, lone: bool) -> None:
        transaction, driver = self.transaction, self.driver
        transaction.touched, transaction.lone = set(), lone
        self.on_begin()
        driver.execute("BEGIN IMMEDIATE")
        if driver.data_version() != self._data_version:
            self._note_other_writer()
        if self._mark.is_due(transaction.version, time.monotonic()):
            # Records the newest commit outside the file, by one more sync.
            self._mark.write(transaction.reserve_versions(), version=transaction.version)
        before = transaction.version
        if len(jobs) == 1 and jobs[0].work is None:
            jobs[0].result = transaction.commits(jobs[0].commits)
        else:
            _do_all(transaction, jobs)
        if transaction.version != before and not self.is_last_writer:
            driver.execute(NAME_WRITER.format("?"), (self.token,))
        driver.execute("COMMIT")
        self.is_last_writer |= transaction.version != before
        self._data_version = self._committed_data_version()
        self._post()

    def commit_alone(self, job: WriteJob) -> bool:
        """Commit by one statement, which needs no others to begin and end a transaction; whether it did."""
        if not self.is_last_writer or len(job.commits) > 1:
            return False
        outcome = self.transaction.commit_alone(job.commits[0])
        if outcome is None:
            return False
        job.result = [outcome]
        before, self._data_version = self._data_version, self._committed_data_version()
        if self._data_version != before + isinstance(outcome, Committed):
            self._note_other_writer()
        self._post()
        return True

    def _commit_at_once(self, jobs: Sequence[WriteJob]) -> bool:
        """Commit all jobs by one statement, without the GIL; whether it did."""
        if not self._may_commit_at_once(jobs):
            return False
        statement, was_last = self.transaction.batch_statement(_parts(jobs)), self.is_last_writer
        if statement is not None and not was_last:
            statement.name_writer(self.token)
        self.on_begin()
        if statement is None or not statement.execute():
            self._refused_batches = REFUSED_BATCHES
            return False
        self.transaction.touched = {statement.schema}
        committed = Committed((statement.version,))
        for job in jobs:
            job.result = [committed] * len(job.commits)
        before, self._data_version = self._data_version, self._committed_data_version()
        self.is_last_writer = True
        if self._data_version != before + 1:
            self._note_other_writer()
            self.is_last_writer = not was_last or self._name_writer()
        self._post()
        return True

    def _name_writer(self) -> bool:
        """Have the file name this process as the last that wrote, by a commit of its own; whether it does."""
        try:
            self.driver.execute(NAME_WRITER.format("?"), (self.token,))
            self._data_version = self.driver.data_version()
        except apsw.Error:
            return False  # the next commit will
        return True

    def _may_commit_at_once(self, jobs: Sequence[WriteJob]) -> bool:
        """Whether there is nothing to do but the jobs' commits, and the last such attempt was not in vain."""
        transaction = self.transaction
        if not transaction.has_version or self._mark.is_due(transaction.version, time.monotonic()):
            return False
        if self._refused_batches:
            self._refused_batches -= 1
            return False
        return all(job.work is None for job in jobs) and sum([len(job.commits) for job in jobs]) > 1

    def _committed_data_version(self) -> int:
        """Return the data version after a commit, -1 where it can't be read: the commit stands."""
        try:
            return self.driver.data_version()
        except apsw.Error as fault:
            log.warning("the data version can't be read; others count as writers", error=str(fault))
            return -1

    def _note_other_writer(self) -> None:
        self.is_last_writer, self._shared_until = False, time.monotonic() + SHARED_S

    def _post(self) -> None:
        """Tell other processes what this one has committed to."""
        if self._board is not None and self.transaction.touched:
            self._board.post(self.transaction.touched)

    def roll_back(self) -> None:
        self.transaction.forget_versions()
        try:
            if self.driver.in_transaction:
                self.driver.execute("ROLLBACK")
        except apsw.Error as fault:
            log.error("rollback failed; the connection is replaced", error=str(fault))
            self.replace()

    def replace(self) -> None:
        """Open another connection; where that fails, the next batch fails on this one and tries again."""
        try:
            driver = self._connect()
        except StoreUnavailableError as fault:
            log.error("no other connection could be opened", error=fault.message)
            return
        with contextlib.suppress(apsw.Error):
            self.driver.close(True)
        self.driver = driver
        self.transaction = WriteTransaction(driver, self._mappings)

    def reclaim(self) -> None:
        """Give free pages back to the disk, a few at a time."""
        self.transaction.deleted = 0
        try:
            free = one(self.driver, "PRAGMA freelist_count")[0]
            total = one(self.driver, "PRAGMA page_count")[0]
            if free > 256 and free * 4 > total:
                pages = min(free - total // 8, 2_000)
                self.driver.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
        except apsw.Error as fault:
            # Another process holds the lock, or the disk is full: the pages stay free for later documents.
            log.warning("free pages not given back to the disk", error=str(fault))
            self.roll_back()

    def close(self) -> None:
        self.driver.close()


def _ignore() -> None:
    """Do nothing."""


def _do_all(transaction: WriteTransaction, jobs: Sequence[WriteJob]) -> None:
    for together, group in groupby(jobs, _is_joined):
        if together:
            _commit_all(transaction, list(group))
        else:
            for job in group:
                job.result = job.work(transaction) if job.work else transaction.commits(job.commits)


def _parts(jobs: Sequence[WriteJob]) -> list[Sequence[Commit]]:
    """Return the jobs' commits by what is made together."""
    parts: list[Sequence[Commit]] = []
    for together, group in groupby(jobs, _is_joined):
        given = [job.commits for job in group]
        parts += [join_commits(given)] if together else given
    return parts


def _is_joined(job: WriteJob) -> bool:
    """Whether its commits are made together with those of other jobs; many alike are a batch already."""
    return job.work is None and not (isinstance(job.commits, CommitBatch) and len(job.commits) >= BATCH_MIN)


def _commit_all(transaction: WriteTransaction, jobs: list[WriteJob]) -> None:
    """Make the commits of all these jobs as one batch."""
    outcomes = iter(transaction.commits(join_commits([job.commits for job in jobs])))
    for job in jobs:
        job.result = list(islice(outcomes, len(job.commits)))
