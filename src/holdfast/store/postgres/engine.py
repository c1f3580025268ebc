"""PostgreSQL behind the port: reads on a few links, writes through group commit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from holdfast.clock import from_us, to_us
from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.plan import QueryPlan
from holdfast.store.port import Capabilities, ClaimRequest, Subscription
from holdfast.store.postgres.address import parse_url
from holdfast.store.postgres.claims import (
    claim_statement,
    count_due_statement,
    held_statement,
    next_due_statement,
)
from holdfast.store.postgres.dialect import DIALECT
from holdfast.store.postgres.migrate import PostgresMigration
from holdfast.store.postgres.notifier import ListenNotifier
from holdfast.store.postgres.pool import ConnectionPool, Link
from holdfast.store.postgres.table_mapping import PostgresTableMapping
from holdfast.store.postgres.writer import WRITES_A_BATCH, WRITES_MAX, PostgresWriter, Queue
from holdfast.store.sql import index_scan
from holdfast.store.sql.tables import KEY


async def connect(url: str, catalog: Catalog) -> PostgresEngine:
    """Use the server a URL names; links are made when they are needed.

    Besides PostgreSQL's own words the URL takes `pooler=transaction` (with `direct=HOST:PORT` for
    notifications), `readers`, `writers`, `patience_s` (how long a caller waits for a server that is
    away) and `timeout_s` (how long for one statement).

    Example: `await connect("postgresql://app@db.internal/holdfast?readers=20", catalog)`
    """
    return PostgresEngine(ConnectionPool(parse_url(url)), catalog)


class PostgresEngine:
    """See `Engine` for what each method promises."""

    def __init__(self, pool: ConnectionPool, catalog: Catalog) -> None:
        self._pool, self._catalog = pool, catalog
        self._mappings = {
            schema: PostgresTableMapping(schema, catalog.table(schema)) for schema in catalog.schemas
        }
        self._name = secrets.token_hex(6)
        self._notifier = ListenNotifier(pool, self._mappings, name=self._name)
        self._queue = Queue()
        self._writers: list[asyncio.Task[None]] = []
        self._capabilities = Capabilities(
            name="postgres",
            row_level_security=True,
            wakes_processes=pool.address.direct is not None,
            writes_max=WRITES_MAX,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        mapping = self._mappings[schema]
        if len(keys) == 1:
            row = await self._pool.read(lambda connection: connection.fetchrow(mapping.get_sql, keys[0]))
            return [None if row is None else mapping.snapshot(row)]
        rows = await self._pool.read(lambda connection: connection.fetch(mapping.get_many_sql, keys))
        found = {row[0]: mapping.snapshot(row) for row in rows}
        return [found.get(key) for key in keys]

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        mapping = self._mappings[plan.schema]
        text, values = index_scan.select(plan, mapping.table, dialect=DIALECT, columns=mapping.selected)
        rows = await self._pool.read(lambda connection: connection.fetch(text, *values))
        return [mapping.snapshot(row) for row in rows]

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        mapping = self._mappings[plan.schema]
        names = (KEY, *(column.stored for column in columns))
        text, values = index_scan.select(plan, mapping.table, dialect=DIALECT, columns=names)
        return list(map(tuple, await self._pool.read(lambda connection: connection.fetch(text, *values))))

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        text, values = index_scan.aggregate(plan, self._mappings[plan.schema].table, dialect=DIALECT)
        row = await self._pool.read(lambda connection: connection.fetchrow(text, *values))
        assert row is not None
        return index_scan.answer(plan, row)

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        text, values = index_scan.totals(
            plan, self._mappings[plan.schema].table, dialect=DIALECT, by=by, of=of
        )
        rows = await self._pool.read(lambda connection: connection.fetch(text, *values))
        return [(*row[:-1], index_scan.added(row[-1]) or 0) for row in map(tuple, rows)]

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        if not self._writers:
            self._hire()
        size = _size(commits)
        if size <= WRITES_A_BATCH:
            return await self._queue.put(commits, size)
        parts = await asyncio.gather(*[self._queue.put(part, _size(part)) for part in _parts(commits)])
        return [outcome for part in parts for outcome in part]

    def _hire(self) -> None:
        for _ in range(self._pool.address.writers):
            writer = PostgresWriter(
                self._pool, self._mappings, queue=self._queue, notify=self._notifier.notify, name=self._name
            )
            self._writers.append(asyncio.get_running_loop().create_task(writer.run()))

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        mapping = self._mappings[request.schema]
        text, values = claim_statement(mapping, request)
        asked = False

        async def take(connection: Link) -> list[Any]:
            nonlocal asked
            # The link broke: what was taken before nobody heard of it would be kept from everybody.
            held = held_statement(mapping, request) if asked else None
            rows = await connection.fetch(held[0], *held[1]) if held else []
            asked = True
            return rows or await connection.fetch(text, *values)

        rows = await self._pool.read(take)
        rows.sort(key=lambda row: (row["was"], row[0].encode()))
        return [mapping.snapshot(row) for row in rows]

    async def next_due(self, schema: Schema[Any], tenant: str | None) -> int | None:
        text, values = next_due_statement(self._mappings[schema], tenant)
        due = await self._pool.read(lambda connection: connection.fetchval(text, *values))
        return None if due is None else to_us(due)

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        text, now = count_due_statement(self._mappings[schema]), from_us(now_us)
        return int(await self._pool.read(lambda connection: connection.fetchval(text, now, limit)))

    def watch(self, schemas: Sequence[Schema[Any]]) -> Subscription:
        return self._notifier.subscribe(schemas)

    async def now_us(self, local_us: int) -> int:
        text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        now: int = await self._pool.read(lambda connection: connection.fetchval(text))
        return now

    async def migrate(self) -> list[str]:
        return await PostgresMigration(self._pool, self._mappings).apply()

    async def diff(self) -> list[str]:
        return await PostgresMigration(self._pool, self._mappings).diff()

    async def close(self) -> None:
        self._queue.close()
        await asyncio.gather(*self._writers)
        await self._notifier.close()
        await self._pool.close()


def _size(commits: Sequence[Commit]) -> int:
    return sum([len(commit.writes) for commit in commits])


def _parts(commits: Sequence[Commit]) -> list[list[Commit]]:
    """Cut a long list into batches; a commit is never cut."""
    parts: list[list[Commit]] = [[]]
    size = 0
    for commit in commits:
        if size + len(commit.writes) > WRITES_A_BATCH and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(commit)
        size += len(commit.writes)
    return parts
