"""Group commit: a writer takes all commits waiting at a moment into one transaction.

Each commit is decided by itself, so one can fail while its neighbours land; the server syncs once for
all of them and everybody is answered. A batch that needs to look at nothing is one statement; one
that looks first locks what it looks at, in one order everywhere, until it has landed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg

from holdfast.errors import HoldfastError, OutcomeUnknownError, StoreUnavailableError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Outcome
from holdfast.store.postgres.batch import Batch, UnseenError, plain_ones, to_read
from holdfast.store.postgres.faults import explain, is_away, is_turn_lost
from holdfast.store.postgres.pool import ConnectionPool, Link, RetryDeadline, shut, unavailable
from holdfast.store.postgres.statement import BATCHES, SEQUENCE, render
from holdfast.store.postgres.table_mapping import PostgresTableMapping

WRITES_A_BATCH = 500
WRITES_MAX = 2_500  # in one commit, which is a batch by itself then
VERSIONS_A_BLOCK = 8_192
MARKS_KEPT = 256

Notify = Callable[[set[Schema[Any]]], None]


class _Waiting:
    """Commits of one caller, and where the answer goes."""

    __slots__ = ("commits", "future", "size")

    def __init__(
        self, commits: Sequence[Commit], size: int, *, future: asyncio.Future[list[Outcome]]
    ) -> None:
        self.commits, self.size, self.future = commits, size, future


class Queue:
    """What waits to be written, for all writers of one engine."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._filled = asyncio.Event()
        self.closed = False

    def put(self, commits: Sequence[Commit], size: int) -> asyncio.Future[list[Outcome]]:
        """The outcomes, once a writer has them; `size` is how many writes there are."""
        if self.closed:
            raise StoreUnavailableError("the store is closed")
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(commits, size, future=future))
        if not self._filled.is_set():
            self._filled.set()
        return future

    async def take(self) -> list[_Waiting]:
        """All that waits, up to a batch; empty once closed and done."""
        while True:
            # Callers that were answered a moment ago get to ask again before the batch is closed.
            await asyncio.sleep(0)
            if taken := self._pop():
                return taken
            if self.closed:
                return []
            self._filled.clear()
            await self._filled.wait()

    def _pop(self) -> list[_Waiting]:
        taken: list[_Waiting] = []
        size = 0
        while self._waiting and (not taken or size + self._waiting[0].size <= WRITES_A_BATCH):
            taken.append(self._waiting.popleft())
            size += taken[-1].size
        return taken

    def close(self) -> None:
        self.closed = True
        self._filled.set()


class PostgresWriter:
    """One link, one batch at a time."""

    def __init__(
        self,
        pool: ConnectionPool,
        mappings: Mapping[Schema[Any], PostgresTableMapping],
        *,
        queue: Queue,
        notify: Notify,
        name: str,
    ) -> None:
        self._pool, self._mappings, self._queue = pool, mappings, queue
        self._notify, self._name = notify, name
        self._connection: Link | None = None
        self._version = self._version_end = 0
        self._done: list[int] = []

    async def run(self) -> None:
        while waiting := await self._queue.take():
            commits = [commit for one in waiting for commit in one.commits]
            try:
                outcomes = await self._land(commits)
            except Exception as fault:
                outcomes = [explain(fault) for _ in commits]
            start = 0
            for one in waiting:
                end = start + len(one.commits)
                if not one.future.done():
                    one.future.set_result(outcomes[start:end])
                start = end
            await self._forget_marks()
        if self._connection is not None:
            await shut(self._connection)

    async def _land(self, commits: Sequence[Commit], *, plainly: bool = True) -> list[Outcome]:
        """Try until the batch landed or its time is over; nothing lands twice."""
        patience, careful = RetryDeadline(self._pool.address.patience_s), False
        plain = plain_ones(commits, self._mappings) if plainly else {}
        while True:
            work = Batch(self._mappings, self._next_version, plain=plain)
            batch = 0
            try:
                connection = await self._ready()
                batch = self._next_version()
                await self._attempt(connection, commits, work=work, batch=batch, careful=careful)
                return await self._finished(work, commits)
            except (asyncpg.UniqueViolationError, UnseenError):
                careful = True
            except Exception as fault:
                if is_away(fault):
                    self._drop()
                    if batch and await self._landed(batch, commits, work=work):
                        return await self._finished(work, commits)
                elif not is_turn_lost(fault):
                    return await self._one_by_one(commits, fault)
                if patience.over:
                    return [unavailable(fault) for _ in commits]
                await patience.pause()

    async def _finished(self, work: Batch, commits: Sequence[Commit]) -> list[Outcome]:
        """The outcomes; amendments that found something else than they expected go the long way now."""
        if work.again:
            again = sorted(work.again)
            outcomes = await self._land([commits[n] for n in again], plainly=False)
            for number, outcome in zip(again, outcomes, strict=True):
                work.outcomes[number] = outcome
        return work.outcomes

    async def _one_by_one(self, commits: Sequence[Commit], fault: Exception) -> list[Outcome]:
        """Something in the batch is refused by the server: find out whose it is."""
        if len(commits) == 1:
            return [explain(fault)]
        return [outcome for commit in commits for outcome in await self._land([commit])]

    async def _attempt(
        self, connection: Link, commits: Sequence[Commit], *, work: Batch, batch: int, careful: bool
    ) -> None:
        wanted = to_read(commits, self._mappings, plain=work.plain, careful=careful)

        async def act(connection: Link) -> None:
            for schema, keys in wanted.items():
                work.found(schema, await connection.fetch(self._mappings[schema].lock_sql, keys))
            work.decide(commits, careful=careful)
            await self._apply(connection, commits, work=work, batch=batch)

        await (self._pool.transact(connection, act) if wanted else self._pool.whole(connection, act))
        self._notify(work.touched)

    async def _apply(self, connection: Link, commits: Sequence[Commit], *, work: Batch, batch: int) -> None:
        changes = work.changes()
        if not changes:
            return
        note = " ".join([self._name, *sorted(self._mappings[schema].table for schema in work.touched)])
        text, values = render(changes, batch, note if len(note) < 7_000 else f"{self._name} *")
        self._done.append(batch)
        for entry in await connection.fetchval(text, *values) or ():
            position, _, key = entry.partition(":")
            work.lose(changes[int(position)], key, commits)

    async def _landed(self, batch: int, commits: Sequence[Commit], *, work: Batch) -> bool:
        """Whether a batch whose answer never came is there; if not, see to it that it never will be."""
        if len(work.outcomes) < len(commits) or not (changes := work.changes()):
            return False
        patience = RetryDeadline(self._pool.address.patience_s)
        while True:
            try:
                connection = await self._ready()
                lost = await self._pool.whole(connection, lambda connection: _settle_mark(connection, batch))
            except Exception as fault:
                self._drop()
                if patience.over or not is_away(fault):
                    work.outcomes = [_unknown(fault) for _ in commits]
                    return True
                await patience.pause()
                continue
            if lost is None:
                return False
            for entry in lost:
                position, _, key = entry.partition(":")
                work.lose(changes[int(position)], key, commits)
            self._notify(work.touched)
            return True

    async def _ready(self) -> Link:
        """A working link, and versions enough for a batch."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._pool.open()
        if self._version + WRITES_MAX * 2 > self._version_end:
            first = await self._pool.whole(self._connection, _next_block)
            self._version, self._version_end = first, first + VERSIONS_A_BLOCK
        return self._connection

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _forget_marks(self) -> None:
        """Marks of answered batches have done their work; those of dead processes go after a day."""
        if len(self._done) < MARKS_KEPT or self._connection is None:
            return
        done, self._done = self._done, []
        try:
            await self._pool.whole(self._connection, lambda connection: _forget(connection, done))
        except Exception:
            self._drop()


async def _settle_mark(connection: Link, batch: int) -> list[str] | None:
    """Write a batch's mark in its place; gives None when that succeeded, else what the batch lost."""
    text = f"INSERT INTO {BATCHES} (id, void) VALUES ($1, true) ON CONFLICT DO NOTHING"
    await connection.execute(text, batch)
    row = await connection.fetchrow(f"SELECT void, lost FROM {BATCHES} WHERE id = $1", batch)
    if row is None or row["void"]:
        return None
    return row["lost"] or []


async def _next_block(connection: Link) -> int:
    return int(await connection.fetchval(f"SELECT nextval('{SEQUENCE}')"))


async def _forget(connection: Link, done: list[int]) -> None:
    await connection.execute(
        f"DELETE FROM {BATCHES} WHERE id = ANY($1::bigint[]) OR at < now() - interval '1 day'", done
    )


def _unknown(fault: Exception) -> HoldfastError:
    return OutcomeUnknownError(f"the link broke while committing and can't be made again: {fault}")
