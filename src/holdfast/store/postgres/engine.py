"""PostgreSQL behind the port: reads on pooled connections, writes through group commit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.commit_batch import CommitBatch
from holdfast.store.port import MIGRATE_ALL, Capabilities, ClaimRequest, MigrationRequest
from holdfast.store.postgres.address import parse_url
from holdfast.store.postgres.claims import claim_statement, unconfirmed_statement
from holdfast.store.postgres.column_binding import text_array
from holdfast.store.postgres.commit_queue import WRITES_PER_BATCH, CommitQueue
from holdfast.store.postgres.lone_write import lone_write
from holdfast.store.postgres.migrate import PostgresMigration
from holdfast.store.postgres.notifier import ListenNotifier
from holdfast.store.postgres.pool import ConnectionPool, PgConnection
from holdfast.store.postgres.statement import PostgresTable
from holdfast.store.postgres.writer import WRITES_MAX, FailedAttempt, PostgresWriter
from holdfast.store.sql.engine import SqlEngine
from holdfast.store.sql.table_mapping import Row
from holdfast.store.sql.write_batch import IndependentWrite

T = TypeVar("T")


async def connect(url: str, catalog: Catalog) -> PostgresEngine:
    """Use the server of a URL; connections are opened when they are needed.

    Besides PostgreSQL's own parameters the URL takes `pooler=transaction` (with `direct=HOST:PORT` for
    notifications), `readers`, `writers` (those after the first take large requests while it is busy),
    `retry_s` (how long a caller waits for an unreachable server) and `timeout_s` (the limit of a statement).

    Example: `await connect("postgresql://app@db.internal/holdfast?readers=20", catalog)`
    """
    return PostgresEngine(ConnectionPool(parse_url(url)), catalog)


class PostgresEngine(SqlEngine[PostgresTable]):
    def __init__(self, pool: ConnectionPool, catalog: Catalog) -> None:
        mappings = {schema: PostgresTable(schema, catalog.table(schema)) for schema in catalog.schemas}
        self._pool, self._name = pool, secrets.token_hex(6)
        self._notifier = ListenNotifier(pool, mappings, name=self._name)
        capabilities = Capabilities(
            name="postgres",
            row_level_security=True,
            wakes_processes=pool.address.direct is not None,
            writes_max=WRITES_MAX,
        )
        super().__init__(catalog, mappings, capabilities=capabilities, notifier=self._notifier)
        self._migration = PostgresMigration(pool, mappings)
        self._queue = CommitQueue()
        self._listed = frozenset(schema for schema, mapping in mappings.items() if mapping.lists)
        self._writers: list[asyncio.Task[None]] = []

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        mapping = self._mappings[schema]
        if len(keys) == 1:
            row = await self._pool.read(lambda connection: connection.fetchrow(mapping.get_sql, keys[0]))
            return [None if row is None else mapping.snapshot(row)]
        bound = text_array(keys)
        rows = await self._pool.read(lambda connection: connection.fetch(mapping.get_many_sql, bound))
        snapshots = {row[0]: mapping.snapshot(row) for row in rows}
        return [snapshots.get(key) for key in keys]

    async def _execute(
        self, statement: tuple[str, list[Any]], read: Callable[[Iterable[Row]], T], *, rows_max: int
    ) -> T:
        text, values = statement
        return read(await self._pool.read(lambda connection: connection.fetch(text, *values)))

    def commit(self, commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
        if not self._writers:
            self._start_writers()
        write = lone_write(commits, self._listed) if self._queue.is_calm else None
        if write is not None:
            return self._write_alone(write, commits)
        return self._enqueue(commits)

    async def _write_alone(self, write: IndependentWrite, commits: Sequence[Commit]) -> list[Outcome]:
        """Create or patch a document by a borrowed writer, in the task of the caller."""
        # Borrowed here and not before: a task that is cancelled before it begins would never give it back.
        if not self._queue.is_calm:
            return await self._enqueue(commits)
        idle = self._queue.borrow()
        try:
            made = await idle.writer.write_alone(write, commits[0])
        finally:
            self._queue.give_back(idle)
        if isinstance(made, FailedAttempt):
            return await self._queue.put_failed(commits, made)
        return await self._enqueue(commits) if made is None else [made]

    def _enqueue(self, commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
        size = _size(commits)
        return self._queue.put(commits, size) if size <= WRITES_PER_BATCH else self._commit_parts(commits)

    async def _commit_parts(self, commits: Sequence[Commit]) -> list[Outcome]:
        # A commit may depend on one of an earlier part.
        waiting = [self._queue.put(part, _size(part), in_order=True) for part in _parts(commits)]
        parts = await asyncio.gather(*waiting)
        return [outcome for part in parts for outcome in part]

    def _start_writers(self) -> None:
        for number in range(self._pool.address.writers):
            writer = PostgresWriter(
                self._pool, self._mappings, queue=self._queue, notifier=self._notifier, name=self._name
            )
            self._writers.append(asyncio.get_running_loop().create_task(writer.run(large_only=number > 0)))

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        mapping = self._mappings[request.schema]
        text, values = claim_statement(mapping, request)
        repeated = False

        async def claim(connection: PgConnection) -> list[Any]:
            nonlocal repeated
            # The connection broke: what the first attempt leased, nobody would work on until its lease ends.
            unconfirmed = unconfirmed_statement(mapping, request) if repeated else None
            rows = await connection.fetch(unconfirmed[0], *unconfirmed[1]) if unconfirmed else []
            repeated = True
            return rows or await connection.fetch(text, *values)

        rows = await self._pool.read(claim)
        rows.sort(key=lambda row: (row["was"], row[0].encode()))
        return mapping.snapshots(rows)

    @property
    def problem(self) -> str | None:
        return None

    async def now_us(self, local_us: int) -> int:
        text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        now: int = await self._pool.read(lambda connection: connection.fetchval(text))
        return now

    async def migrate(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        return await self._migration.apply(request)

    async def diff(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        return await self._migration.diff(request)

    async def close(self) -> None:
        self._queue.close()
        await asyncio.gather(*self._writers)
        await self._notifier.close()
        await self._pool.close()


def _size(commits: Sequence[Commit]) -> int:
    """Return the number of writes."""
    if isinstance(commits, CommitBatch):
        return len(commits)
    return sum([len(commit.writes) for commit in commits])


def _parts(commits: Sequence[Commit]) -> list[list[Commit]]:
    """Split a long list into batches; a commit is never split."""
    parts: list[list[Commit]] = [[]]
    size = 0
    for commit in commits:
        if size + len(commit.writes) > WRITES_PER_BATCH and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(commit)
        size += len(commit.writes)
    return parts
