"""SQLite behind the port: small reads in place, large ones in reader threads, writes in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import apsw
import msgspec

from holdfast.errors import ConfigError, StoreUnavailableError
from holdfast.model.schema import Schema
from holdfast.private_files import create_file
from holdfast.store.catalog import Catalog
from holdfast.store.claimable import ClaimableWrites
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.plan import QueryPlan
from holdfast.store.port import MIGRATE_ALL, Capabilities, ClaimRequest, MigrationRequest, StorageReport
from holdfast.store.query import fitting
from holdfast.store.sql.engine import SqlEngine
from holdfast.store.sql.table_mapping import Row
from holdfast.store.sqlite.backup import back_up
from holdfast.store.sqlite.claims import claim, may_find
from holdfast.store.sqlite.commit_board import CommitBoard
from holdfast.store.sqlite.connections import Options, one, open_connection, parse_url, refused
from holdfast.store.sqlite.migrate import SqliteMigration
from holdfast.store.sqlite.notifier import SqliteNotifier
from holdfast.store.sqlite.shared_time import shared_now_us
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.write_connection import WriteJob
from holdfast.store.sqlite.writer import SqliteWriter

T = TypeVar("T")
Given = TypeVarTuple("Given")

# A page this small is read faster than handed to another thread.
IN_PLACE_MAX = 200
# From so many keys on one statement for all is faster than one for each.
ONE_STATEMENT_MIN = 4
READERS = 2
CAPABILITIES = Capabilities(name="sqlite", embedded=True, online_backup=True, writes_max=2_500)


def _open_board(path: str, tables: Mapping[Schema[Any], str]) -> CommitBoard | None:
    """The board of a database; None where the disk has no room for it, and the change counter must do."""
    try:
        create_file(Path(path))
        return CommitBoard(path, tables)
    except OSError:
        return None


async def connect(url: str, catalog: Catalog) -> SqliteEngine:
    """Open the file of a URL: `sqlite:///holdfast.db[?synchronous=full|normal][&busy_s=30]`."""
    return SqliteEngine(parse_url(url), catalog, asyncio.get_running_loop())


class SqliteEngine(SqlEngine[SqliteTable]):
    def __init__(self, options: Options, catalog: Catalog, loop: asyncio.AbstractEventLoop) -> None:
        mappings = {schema: SqliteTable(schema, catalog.table(schema)) for schema in catalog.schemas}
        self._notifier = SqliteNotifier(self._data_version, self._written_by_others)
        super().__init__(catalog, mappings, capabilities=CAPABILITIES, notifier=self._notifier)
        self._options = options
        self._board = _open_board(options.path, {one: catalog.table(one) for one in mappings})
        self._notifier.board = self._board
        self._claimable = {one: ClaimableWrites(one) for one in mappings if one.claim is not None}
        self._writer = SqliteWriter(options, mappings, loop=loop, notify=self._notify, board=self._board)
        self._migration = SqliteMigration(self._writer, mappings)
        self._connection = open_connection(options, writing=False)
        self._readers = ThreadPoolExecutor(READERS, "holdfast-sqlite-reader")
        self._local = threading.local()
        self._opened: list[apsw.Connection] = [self._connection]
        self._closed = False

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        mapping = self._mappings[schema]
        if len(keys) == 1:
            row = self._in_place(_first, mapping.select_sql, keys)
            return [None if row is None else mapping.snapshot(row)]
        if len(keys) <= IN_PLACE_MAX:
            return self._in_place(_fetch, mapping, keys)
        return await self._in_thread(lambda connection: _fetch(connection, mapping, keys))

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        if plan.limit > IN_PLACE_MAX:
            return await super().find(plan)
        statement = self._selects[plan.schema].select(plan)
        rows = self._in_place(_read, statement, apsw.Cursor.fetchall)
        return self._mappings[plan.schema].snapshots(rows)

    async def _execute(
        self, statement: tuple[str, list[Any]], read: Callable[[Iterable[Row]], T], *, rows_max: int
    ) -> T:
        if rows_max <= IN_PLACE_MAX:
            # All rows first: the driver's steps and the decoder's in turn take a tenth longer.
            return read(self._in_place(_read, statement, apsw.Cursor.fetchall))
        return await self._in_thread(lambda connection: _read(connection, statement, read))

    async def _sums(self, statement: tuple[str, list[Any]]) -> list[Row]:
        return await self._in_thread(lambda connection: _sums(connection, *statement))

    def commit(self, commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
        return self._writer.commit(commits)

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        # Looked for by reads first: a transaction would keep other processes from writing.
        due_us = await self.next_due(request.schema, None)
        if due_us is None or due_us > request.now_us:
            return []
        if (request.skip_lanes or request.only_lanes is not None) and not self._may_find(request):
            return []
        claimed: list[Snapshot[Any]] = await self._writer.do(lambda transaction: claim(transaction, request))
        return claimed

    def _may_find(self, request: ClaimRequest) -> bool:
        try:
            return self._in_place(may_find, self._mappings[request.schema], request)
        except apsw.Error:
            return True  # the claim meets the same fault, and explains it

    @property
    def problem(self) -> str | None:
        return self._writer.problem

    async def now_us(self, local_us: int) -> int:
        now: int = await self._writer.do(lambda tx: shared_now_us(tx.connection, local_us))
        return now

    async def migrate(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        return await self._migration.apply(request)

    async def diff(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        return await self._migration.diff(request)

    async def back_up(self, target: Path) -> int:
        """Copy the database to a new file while others write; returns its size in bytes."""
        return await self._in_thread(lambda connection: back_up(connection, target))

    async def storage_report(self, *, integrity: bool) -> StorageReport:
        """Measure the file; with `integrity` check every page of it."""
        path = self._options.path
        return await self._in_thread(lambda connection: _report(connection, path, integrity=integrity))

    async def close(self) -> None:
        if self._closed:
            return
        self._notifier.close()
        await self._writer.close()
        if self._board is not None:
            self._board.close()
        self._closed = True
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._opened:
            connection.close()

    def _in_place(self, read: Callable[[apsw.Connection, *Given], T], *given: *Given) -> T:
        """Read in the loop's thread, by the connection that writes while it is idle.

        Its own commits leave its cache as it is; every other connection drops its cache after each of them.
        """
        self._check_open()
        writer, using = self._writer, self._writer.using
        if not using.acquire(False):
            return read(self._connection, *given)
        try:
            return read(writer.connection.driver, *given)
        finally:
            using.release()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")

    def _notify(self, touched: set[Schema[Any]], jobs: Sequence[WriteJob]) -> None:
        """Wake subscriptions; those for claims only where the jobs may have left something to claim."""
        if not self._notifier.has_subscriptions:
            return
        unclaimable = {
            schema
            for schema in touched & self._notifier.claims_awaited & self._claimable.keys()
            if not any(job.work or self._claimable[schema].any(job.commits) for job in jobs)
        }
        self._notifier.notify(touched, unclaimable=unclaimable)

    def _data_version(self) -> int:
        """Return a number that changes when another process has committed."""
        return int(one(self._connection, "PRAGMA data_version")[0])

    def _written_by_others(self) -> bool:
        """Whether the last process to commit was another."""
        sql = "SELECT value FROM _holdfast_meta WHERE name = 'writer'"
        return self._connection.execute(sql).fetchone() != (self._writer.connection.token,)

    async def _in_thread(self, work: Callable[[apsw.Connection], T]) -> T:
        self._check_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: work(self._thread_connection()))

    def _thread_connection(self) -> apsw.Connection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = open_connection(self._options, writing=False)
            self._opened.append(connection)
        return connection


def _report(connection: apsw.Connection, path: str, *, integrity: bool) -> StorageReport:
    page_bytes = one(connection, "PRAGMA page_size")[0]
    pages, free = (one(connection, f"PRAGMA {name}")[0] for name in ("page_count", "freelist_count"))
    return StorageReport(
        path=path, bytes=pages * page_bytes, free_bytes=free * page_bytes,
        faults=_damages(connection) if integrity else [],
    )  # fmt: skip


def _damages(connection: apsw.Connection) -> list[str]:
    try:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)")]
    except apsw.CorruptError as fault:
        return [str(fault)]
    return [] if found == ["ok"] else found


def _first(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> Row | None:
    row: Row | None = _run(connection, sql, values).fetchone()
    return row


def _fetch(
    connection: apsw.Connection, mapping: SqliteTable, keys: Sequence[str]
) -> list[Snapshot[Any] | None]:
    if len(keys) < ONE_STATEMENT_MIN:
        rows = [_run(connection, mapping.select_sql, (key,)).fetchone() for key in keys]
        return [None if row is None else mapping.snapshot(row) for row in rows]
    listed = msgspec.json.encode(keys).decode()
    found = {row[0]: mapping.snapshot(row) for row in _run(connection, mapping.select_many_sql, (listed,))}
    return [found.get(key) for key in keys]


def _read(
    connection: apsw.Connection, statement: tuple[str, list[Any]], read: Callable[[apsw.Cursor], T]
) -> T:
    try:
        return read(_run(connection, *statement))
    except apsw.CorruptError as fault:
        raise _damaged(fault) from None


def _damaged(fault: apsw.CorruptError) -> ConfigError:
    return ConfigError(
        f"the SQLite file is damaged: {fault}; `holdfast doctor --integrity` says where; restore a backup"
    )


def _run(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> apsw.Cursor:
    try:
        return connection.execute(sql, values)
    except apsw.SQLError as fault:
        raise refused(fault) from None
    except apsw.CorruptError as fault:
        raise _damaged(fault) from None
    except apsw.BusyError:
        raise StoreUnavailableError("another process holds the database locked; retry later") from None


def _sums(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> list[Row]:
    try:
        return list(_run(connection, sql, values))
    except (apsw.SQLError, StoreUnavailableError) as fault:
        if "overflow" not in str(fault):
            raise
        # A sum of halves stays inside 64 bits.
        halves = _run(connection, sql.replace("sum(v)", "sum(v >> 32), sum(v & 4294967295)"), values)
        return [
            (*row[:-2], None if row[-1] is None else fitting((row[-2] << 32) + row[-1])) for row in halves
        ]
