"""SQLite behind the port: reads in place, writes through one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from holdfast.clock import from_us
from holdfast.errors import StoreUnavailableError
from holdfast.model.columns import Column, Kind
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.plan import QueryPlan
from holdfast.store.port import Capabilities, ClaimRequest, Subscription
from holdfast.store.query import fitting
from holdfast.store.sql import index_scan
from holdfast.store.sql.tables import KEY
from holdfast.store.sqlite.backup import back_up
from holdfast.store.sqlite.claims import claim, count_due, next_due
from holdfast.store.sqlite.connections import Options, one, open_connection, parse_url
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.sqlite.migrate import SqliteMigration
from holdfast.store.sqlite.notifier import SqliteNotifier
from holdfast.store.sqlite.shared_time import shared_now_us
from holdfast.store.sqlite.table_mapping import SqliteTableMapping
from holdfast.store.sqlite.writer import SqliteWriter

T = TypeVar("T")

# A page this small is read faster than another thread could be asked to do it.
IN_PLACE_MAX = 200
READERS = 2

_UNBIND: dict[Kind, Callable[[Any], Any]] = {"time": from_us, "boolean": bool}

CAPABILITIES = Capabilities(name="sqlite", embedded=True, online_backup=True, writes_max=2_500)


async def connect(url: str, catalog: Catalog) -> SqliteEngine:
    """Open the file a URL names: `sqlite:///holdfast.db[?synchronous=full|normal][&busy_s=30]`."""
    return SqliteEngine(parse_url(url), catalog, asyncio.get_running_loop())


class SqliteEngine:
    """See `Engine` for what each method promises."""

    def __init__(self, options: Options, catalog: Catalog, loop: asyncio.AbstractEventLoop) -> None:
        self._options, self._catalog = options, catalog
        self._mappings = {
            schema: SqliteTableMapping(schema, catalog.table(schema)) for schema in catalog.schemas
        }
        self._notifier = SqliteNotifier(self._data_version, self._written_by_others)
        self._writer = SqliteWriter(options, self._mappings, loop=loop, notify=self._notifier.notify)
        self._connection = open_connection(options, writing=False)
        self._readers = ThreadPoolExecutor(READERS, "holdfast-sqlite-reader")
        self._own = threading.local()
        self._opened: list[apsw.Connection] = [self._connection]
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        mapping = self._mappings[schema]
        if len(keys) == 1:
            row = _run(self._reader(), mapping.select_sql, keys).fetchone()
            return [None if row is None else mapping.snapshot(row)]
        if len(keys) <= IN_PLACE_MAX:
            return self._fetch(self._reader(), mapping, keys)
        return await self._elsewhere(lambda connection: self._fetch(connection, mapping, keys))

    def _fetch(
        self, connection: apsw.Connection, mapping: SqliteTableMapping, keys: Sequence[str]
    ) -> list[Snapshot[Any] | None]:
        found: list[Snapshot[Any] | None] = []
        for key in keys:
            row = _run(connection, mapping.select_sql, (key,)).fetchone()
            found.append(None if row is None else mapping.snapshot(row))
        return found

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        mapping = self._mappings[plan.schema]
        sql, values = index_scan.select(plan, mapping.table, dialect=DIALECT, columns=mapping.selected)
        if plan.limit <= IN_PLACE_MAX:
            return [mapping.snapshot(row) for row in _run(self._reader(), sql, values)]
        return await self._elsewhere(
            lambda connection: [mapping.snapshot(row) for row in _run(connection, sql, values)]
        )

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        mapping = self._mappings[plan.schema]
        names = (KEY, *(column.stored for column in columns))
        sql, values = index_scan.select(plan, mapping.table, dialect=DIALECT, columns=names)
        return await self._elsewhere(
            lambda connection: _plain(_run(connection, sql, values).fetchall(), columns)
        )

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        sql, values = index_scan.aggregate(plan, self._mappings[plan.schema].table, dialect=DIALECT)
        (row,) = await self._elsewhere(lambda connection: _added_up(connection, sql, values))
        return index_scan.answer(plan, row)

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        sql, values = index_scan.totals(
            plan, self._mappings[plan.schema].table, dialect=DIALECT, by=by, of=of
        )
        rows = await self._elsewhere(lambda connection: _added_up(connection, sql, values))
        return _plain([row if row[-1] is not None else (*row[:-1], 0) for row in rows], by, start=0)

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return await self._writer.commit(commits)

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        taken: list[Snapshot[Any]] = await self._writer.do(lambda transaction: claim(transaction, request))
        return taken

    async def next_due(self, schema: Schema[Any], tenant: str | None) -> int | None:
        sql, values = next_due(self._mappings[schema], tenant)
        row = _run(self._reader(), sql, values).fetchone()
        return None if row is None else int(row[0])

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        sql = count_due(self._mappings[schema])
        row = _run(self._reader(), sql, (now_us, limit)).fetchone()
        return 0 if row is None else int(row[0])

    def watch(self, schemas: Sequence[Schema[Any]]) -> Subscription:
        return self._notifier.subscribe(schemas)

    async def now_us(self, local_us: int) -> int:
        now: int = await self._writer.do(lambda tx: shared_now_us(tx.connection, local_us))
        return now

    async def migrate(self) -> list[str]:
        return await SqliteMigration(self._writer, self._mappings).apply()

    async def diff(self) -> list[str]:
        return await SqliteMigration(self._writer, self._mappings).diff()

    async def back_up(self, target: Path) -> int:
        """Copy the whole database to a new file while others write; gives its size in bytes."""
        return await self._elsewhere(lambda connection: back_up(connection, target))

    async def close(self) -> None:
        if self._closed:
            return
        self._notifier.close()
        await self._writer.close()
        self._closed = True
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._opened:
            connection.close()

    def _reader(self) -> apsw.Connection:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        return self._connection

    def _data_version(self) -> int:
        """Changes when another process has committed."""
        return int(one(self._connection, "PRAGMA data_version")[0])

    def _written_by_others(self) -> bool:
        """Whether the newest version in the file is none of this process's own."""
        newest = one(self._connection, "SELECT value FROM _holdfast_meta WHERE name = 'version'")[0]
        return bool(newest != self._writer.landed)

    async def _elsewhere(self, work: Callable[[apsw.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: work(self._thread_link()))

    def _thread_link(self) -> apsw.Connection:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = open_connection(self._options, writing=False)
            self._opened.append(connection)
        return connection


def _run(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> apsw.Cursor:
    try:
        return connection.execute(sql, values)
    except apsw.SQLError as fault:
        raise StoreUnavailableError(f"SQLite refused: {fault}; run `holdfast schema migrate`") from None
    except apsw.BusyError:
        raise StoreUnavailableError("another process holds the database locked") from None


def _plain(
    rows: list[tuple[Any, ...]], columns: Sequence[Column], *, start: int = 1
) -> list[tuple[Any, ...]]:
    """Rows as SQLite gives them, but for what it keeps in a form of its own."""
    made = {n: _UNBIND[column.kind] for n, column in enumerate(columns, start) if column.kind in _UNBIND}
    if not made:
        return rows
    return [
        tuple([made[n](v) if n in made and v is not None else v for n, v in enumerate(row)]) for row in rows
    ]


def _added_up(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    try:
        return _run(connection, sql, values).fetchall()
    except (apsw.SQLError, StoreUnavailableError) as fault:
        if "overflow" not in str(fault):
            raise
        # A sum of halves stays inside 64 bits.
        halves = _run(connection, sql.replace("sum(v)", "sum(v >> 32), sum(v & 4294967295)"), values)
        return [
            (*row[:-2], None if row[-1] is None else fitting((row[-2] << 32) + row[-1])) for row in halves
        ]
