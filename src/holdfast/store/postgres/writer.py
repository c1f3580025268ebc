"""Group commit: a writer takes all commits waiting at a moment into one transaction.

Each commit is decided by itself, so one can fail while the others succeed; the server syncs once for all.
A batch that needs no read is one statement. One that reads is applied by one statement, too, which does
nothing where a document has another version by then; after such a conflict, and where a commit depends on
documents that it does not write, what is read is locked, in one order everywhere, until it is applied.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import asyncpg

from holdfast.errors import HoldfastError, OutcomeUnknownError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Committed, Outcome
from holdfast.store.commit_batch import join_commits
from holdfast.store.notifier import CommitNotifier
from holdfast.store.postgres.batch import Batch, UnreadInsertError, taken
from holdfast.store.postgres.batch_reads import keys_to_read, needs_locks
from holdfast.store.postgres.column_binding import text_array
from holdfast.store.postgres.commit_queue import CommitQueue
from holdfast.store.postgres.faults import explain, is_disconnected, is_read_only, is_retryable
from holdfast.store.postgres.lone_write import LoneStatements, lone_write
from holdfast.store.postgres.pool import (
    ConnectionPool,
    PgConnection,
    RetryDeadline,
    close_connection,
    unavailable,
)
from holdfast.store.postgres.statement import BATCHES, SEQUENCE, PostgresTable, lost_rows, render
from holdfast.store.sql.blind_patch import BlindPatch
from holdfast.store.sql.write_batch import (
    COMPLETE,
    IndependentWrite,
    bulk_commits,
    counting_upserts,
    independent_writes,
)
from holdfast.store.write_rules import check_create

T = TypeVar("T")
WRITES_MAX = 2_500  # in one commit, which is a batch by itself then
VERSIONS_PER_BLOCK = 8_192
MARKS_MAX = 256
LOCKED_BATCHES = 50  # after a conflict: others write the same documents


class FailedAttempt(NamedTuple):
    """A batch that a fault ended, so that it may or may not be applied.

    Without a fault, its blind patch found its conditions unmet: it must be decided by what is stored.
    """

    fault: Exception | None
    batch: int
    work: Batch
    since_s: float


class PostgresWriter:
    """Writes one batch at a time, on a connection of its own."""

    def __init__(
        self,
        pool: ConnectionPool,
        mappings: Mapping[Schema[Any], PostgresTable],
        *,
        queue: CommitQueue,
        notifier: CommitNotifier,
        name: str,
    ) -> None:
        self._pool, self._mappings, self._queue = pool, mappings, queue
        self._notifier, self._name = notifier, name
        self._connection: PgConnection | None = None
        self._version = self._version_end = 0
        self._applied: list[int] = []
        self._locked_batches = 0
        self._listed = frozenset(schema for schema, mapping in mappings.items() if mapping.lists)
        self._lone = LoneStatements(name)

    async def run(self, *, large_only: bool = False) -> None:
        """Write what the queue gives, until it is closed; with `large_only`, large requests."""
        take = self._queue.take_large if large_only else self._queue.take
        while requests := await take(self):
            commits = join_commits([request.commits for request in requests])
            try:
                outcomes = await self._commit_batch(commits, requests[0].failed)
            except Exception as fault:
                outcomes = [explain(fault) for _ in commits]
            start = 0
            for request in requests:
                end = start + len(request.commits)
                if not request.future.done():
                    request.future.set_result(outcomes[start:end])
                start = end
            if len(self._applied) >= MARKS_MAX:
                await self._delete_marks()
        if self._connection is not None:
            await close_connection(self._connection)

    async def _commit_batch(self, commits: Sequence[Commit], failed: FailedAttempt | None) -> list[Outcome]:
        if failed is None and (write := lone_write(commits, self._listed)) is not None:
            outcome = await self.write_alone(write, commits[0])
            if outcome is not None and not isinstance(outcome, FailedAttempt):
                return [outcome]
            failed = outcome
        if failed is not None and failed.fault is None:
            return await self._outcomes(failed.work, commits)
        return await self._commit(commits, failed=failed)

    async def write_alone(self, write: IndependentWrite, commit: Commit) -> Outcome | FailedAttempt | None:
        """Create or patch a document by one statement; None where there is more to do first.

        This runs in the task of a caller, which may be cancelled: the statement then is, too, and the next
        one on the connection waits for its end.
        """
        connection = self._connection
        if connection is None or connection.is_closed() or not self._has_room:
            return None
        try:
            if not isinstance(write, BlindPatch):
                check_create(write, commit)
        except HoldfastError as refusal:
            return refusal
        schema = write.group.schema if isinstance(write, BlindPatch) else write.schema
        statement = self._lone.of(write, commit, self._mappings[schema])
        version, since_s = self._next_version(), time.monotonic()
        values = statement.values(write, commit, version)
        self._applied.append(version)
        try:
            row = await self._pool.fetchrow_on(connection, statement.text, values)
        except Exception as fault:
            return FailedAttempt(fault, version, self._batch_of_one(write, commit, version), since_s)
        except asyncio.CancelledError:
            statement.notify(self._notifier, values)  # it may have been made
            raise
        if row is not None:
            statement.notify(self._notifier, values)
            return Committed((version,))
        if not isinstance(write, BlindPatch):
            return taken(write, commit)
        work = self._batch_of_one(write, commit, version)
        work.unpatched.add(0)
        return FailedAttempt(None, version, work, since_s)

    def _batch_of_one(self, write: IndependentWrite, commit: Commit, version: int) -> Batch:
        work = Batch(self._mappings, lambda: version, independent={0: write}, bulk={}, counts={})
        work.decide([commit])
        return work

    @property
    def _has_room(self) -> bool:
        """Whether a batch of any size can be made before versions are reserved and marks deleted."""
        return self._version + WRITES_MAX * 2 <= self._version_end and len(self._applied) < MARKS_MAX

    async def _commit(
        self, commits: Sequence[Commit], *, batched: bool = True, failed: FailedAttempt | None = None
    ) -> list[Outcome]:
        """Retry until the batch is applied or its deadline has passed; nothing is applied twice."""
        deadline = RetryDeadline(self._pool.address.retry_s, since_s=failed and failed.since_s)
        careful = False
        independent = independent_writes(commits, self._listed) if batched else {}
        # A batch of creates and blind patches has no other writes.
        others = batched and not isinstance(independent, COMPLETE)
        bulk = bulk_commits(commits, self._listed) if others else {}
        counts = counting_upserts(commits, bulk) if others else {}
        while True:
            work = Batch(
                self._mappings, self._next_version, independent=independent, bulk=bulk, counts=counts
            )
            batch = 0
            try:
                if failed is not None and failed.fault is not None:
                    batch, work, fault = failed.batch, failed.work, failed.fault
                    failed = None
                    raise fault
                connection = await self._connect()
                batch = self._next_version()
                with self._pool.probed(connection):
                    await self._attempt(connection, commits, work=work, batch=batch, careful=careful)
                return await self._outcomes(work, commits)
            except (asyncpg.UniqueViolationError, asyncpg.DivisionByZeroError, UnreadInsertError):
                careful, bulk, counts, self._locked_batches = True, {}, {}, LOCKED_BATCHES
            except Exception as fault:
                if is_disconnected(fault):
                    self._disconnect()
                    if batch and await self._was_applied(batch, commits, work=work):
                        return await self._outcomes(work, commits)
                elif is_read_only(fault):
                    # After a fail-over, a new connection leads to the server that can write.
                    self._disconnect()
                    return [explain(fault) for _ in commits]
                elif not is_retryable(fault):
                    return await self._commit_singly(commits, fault)
                if deadline.passed:
                    return [unavailable(fault) for _ in commits]
                await deadline.pause()

    async def _outcomes(self, work: Batch, commits: Sequence[Commit]) -> list[Outcome]:
        """Return the outcomes; blind patches whose conditions did not hold are decided singly first."""
        if work.unpatched:
            numbers = sorted(work.unpatched)
            outcomes = await self._commit([commits[n] for n in numbers], batched=False)
            for number, outcome in zip(numbers, outcomes, strict=True):
                work.outcomes[number] = outcome
        return work.outcomes

    async def _commit_singly(self, commits: Sequence[Commit], fault: Exception) -> list[Outcome]:
        """Commit one by one, to find which commit the server refuses."""
        if len(commits) == 1:
            return [explain(fault)]
        return [outcome for commit in commits for outcome in await self._commit([commit])]

    async def _attempt(
        self, connection: PgConnection, commits: Sequence[Commit], *, work: Batch, batch: int, careful: bool
    ) -> None:
        unread, counts = work.unread, work.counts
        wanted = (
            keys_to_read(commits, self._mappings, unread=unread, counts=counts, careful=careful)
            if len(unread) < len(commits)
            else {}
        )
        locked = bool(wanted) and (careful or self._locked_batches > 0 or needs_locks(commits, unread))

        async def act(connection: PgConnection) -> None:
            for schema, keys in wanted.items():
                mapping = self._mappings[schema]
                if len(keys) == 1 and not locked:
                    rows = await connection.fetch(mapping.get_sql, keys[0])
                else:
                    sql = mapping.lock_sql if locked else mapping.get_many_sql
                    rows = await connection.fetch(sql, text_array(keys))
                work.add_rows(schema, rows)
            work.decide(commits, careful=careful)
            await self._apply(connection, commits, work=work, batch=batch)

        await (self._pool.transact(connection, act) if locked else self._pool.pinned(connection, act))
        self._locked_batches -= self._locked_batches > 0
        self._notifier.notify(work.touched, unclaimable=work.unclaimable)

    async def _apply(
        self, connection: PgConnection, commits: Sequence[Commit], *, work: Batch, batch: int
    ) -> None:
        changes = work.changes()
        if not changes:
            return
        note = " ".join([self._name, *sorted(self._mappings[schema].table for schema in work.touched)])
        text, values = render(changes, batch, note if len(note) < 7_000 else f"{self._name} *")
        self._applied.append(batch)
        for change, key in lost_rows(await connection.fetchrow(text, *values), changes):
            work.lose(change, key, commits)

    async def _was_applied(self, batch: int, commits: Sequence[Commit], *, work: Batch) -> bool:
        """Whether a batch whose response never came was applied; if not, make sure that it never will be."""
        if len(work.outcomes) < len(commits) or not (changes := work.changes()):
            return False
        deadline = RetryDeadline(self._pool.address.retry_s)
        while True:
            try:
                await self._connect()
                mark = await self._pinned(lambda connection: _void_batch(connection, batch))
            except Exception as fault:
                self._disconnect()
                if deadline.passed or not is_disconnected(fault):
                    work.outcomes = [_unknown(fault) for _ in commits]
                    return True
                await deadline.pause()
                continue
            if mark is None:
                return False
            for change, key in lost_rows(mark, changes):
                work.lose(change, key, commits)
            self._notifier.notify(work.touched, unclaimable=work.unclaimable)
            return True

    async def _connect(self) -> PgConnection:
        """Return an open connection; reserves versions enough for a batch."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._pool.open(probed=True)
        if self._version + WRITES_MAX * 2 > self._version_end:
            first = await self._pinned(_next_block)
            self._version, self._version_end = first, first + VERSIONS_PER_BLOCK
        return self._connection

    async def _pinned(self, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        assert self._connection is not None
        with self._pool.probed(self._connection):
            return await self._pool.pinned(self._connection, work)

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _delete_marks(self) -> None:
        """Delete the marks of applied batches; those of dead processes after a day."""
        if self._connection is None:
            return
        applied, self._applied = self._applied, []
        try:
            await self._pinned(lambda connection: _delete_batches(connection, applied))
        except Exception:
            self._disconnect()


async def _void_batch(connection: PgConnection, batch: int) -> Sequence[Any] | None:
    """Write a batch's mark in its place; return None when that succeeded, else the mark of the batch."""
    text = f"INSERT INTO {BATCHES} (id, void) VALUES ($1, true) ON CONFLICT DO NOTHING"
    await connection.execute(text, batch)
    text = f"SELECT lost FROM {BATCHES} WHERE id = $1 AND NOT void"
    mark: Sequence[Any] | None = await connection.fetchrow(text, batch)
    return mark


async def _next_block(connection: PgConnection) -> int:
    return int(await connection.fetchval(f"SELECT nextval('{SEQUENCE}')"))


async def _delete_batches(connection: PgConnection, applied: list[int]) -> None:
    await connection.execute(
        f"DELETE FROM {BATCHES} WHERE id = ANY($1::bigint[]) OR at < now() - interval '1 day'", applied
    )


def _unknown(fault: Exception) -> HoldfastError:
    return OutcomeUnknownError(
        f"the connection broke during a commit and can't be restored: {fault}; read before you repeat it"
    )
