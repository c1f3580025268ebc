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

    def __init__(self, links: ConnectionPool, catalog: Catalog) -> None:
        self._links, self._catalog = links, catalog
        self._shelves = {
            schema: PostgresTableMapping(schema, catalog.table(schema)) for schema in catalog.schemas
        }
        self._name = secrets.token_hex(6)
        self._bells = ListenNotifier(links, self._shelves, name=self._name)
        self._queue = Queue()
        self._writers: list[asyncio.Task[None]] = []
        self._capabilities = Capabilities(
            name="postgres",
            row_level_security=True,
            wakes_processes=links.address.direct is not None,
            writes_max=WRITES_MAX,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        shelf = self._shelves[schema]
        if len(keys) == 1:
            row = await self._links.read(lambda link: link.fetchrow(shelf.get_sql, keys[0]))
            return [None if row is None else shelf.snapshot(row)]
        rows = await self._links.read(lambda link: link.fetch(shelf.get_many_sql, keys))
        found = {row[0]: shelf.snapshot(row) for row in rows}
        return [found.get(key) for key in keys]

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        shelf = self._shelves[plan.schema]
        text, values = index_scan.select(plan, shelf.table, dialect=DIALECT, columns=shelf.selected)
        rows = await self._links.read(lambda link: link.fetch(text, *values))
        return [shelf.snapshot(row) for row in rows]

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        shelf = self._shelves[plan.schema]
        names = (KEY, *(column.stored for column in columns))
        text, values = index_scan.select(plan, shelf.table, dialect=DIALECT, columns=names)
        return list(map(tuple, await self._links.read(lambda link: link.fetch(text, *values))))

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        text, values = index_scan.aggregate(plan, self._shelves[plan.schema].table, dialect=DIALECT)
        row = await self._links.read(lambda link: link.fetchrow(text, *values))
        assert row is not None
        return index_scan.answer(plan, row)

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        text, values = index_scan.totals(
            plan, self._shelves[plan.schema].table, dialect=DIALECT, by=by, of=of
        )
        rows = await self._links.read(lambda link: link.fetch(text, *values))
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
        for _ in range(self._links.address.writers):
            writer = PostgresWriter(
                self._links, self._shelves, queue=self._queue, ring=self._bells.ring, name=self._name
            )
            self._writers.append(asyncio.get_running_loop().create_task(writer.run()))

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        shelf = self._shelves[request.schema]
        text, values = claim_statement(shelf, request)
        asked = False

        async def take(link: Link) -> list[Any]:
            nonlocal asked
            # The link broke: what was taken before nobody heard of it would be kept from everybody.
            held = held_statement(shelf, request) if asked else None
            rows = await link.fetch(held[0], *held[1]) if held else []
            asked = True
            return rows or await link.fetch(text, *values)

        rows = await self._links.read(take)
        rows.sort(key=lambda row: (row["was"], row[0].encode()))
        return [shelf.snapshot(row) for row in rows]

    async def next_due(self, schema: Schema[Any], tenant: str | None) -> int | None:
        text, values = next_due_statement(self._shelves[schema], tenant)
        due = await self._links.read(lambda link: link.fetchval(text, *values))
        return None if due is None else to_us(due)

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        text, now = count_due_statement(self._shelves[schema]), from_us(now_us)
        return int(await self._links.read(lambda link: link.fetchval(text, now, limit)))

    def watch(self, schemas: Sequence[Schema[Any]]) -> Subscription:
        return self._bells.hang(schemas)

    async def migrate(self) -> list[str]:
        return await PostgresMigration(self._links, self._shelves).apply()

    async def diff(self) -> list[str]:
        return await PostgresMigration(self._links, self._shelves).diff()

    async def close(self) -> None:
        self._queue.close()
        await asyncio.gather(*self._writers)
        await self._bells.close()
        await self._links.close()


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
