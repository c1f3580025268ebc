"""Migration on PostgreSQL: inspects the database and executes the plan, online and resumable."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from holdfast.errors import StoreUnavailableError
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.port import MigrationRequest
from holdfast.store.postgres import security
from holdfast.store.postgres.backfill import fill_next
from holdfast.store.postgres.faults import explain, is_disconnected
from holdfast.store.postgres.inspection import InspectedDatabase, inspect
from holdfast.store.postgres.pool import (
    ConnectionPool,
    PgConnection,
    RetryDeadline,
    close_connection,
    unavailable,
)
from holdfast.store.postgres.statement import BATCHES, SEQUENCE, PostgresTable
from holdfast.store.postgres.storage import create_storage, inspect_storage, storage_step
from holdfast.store.postgres.views import create_view
from holdfast.store.postgres.writer import VERSIONS_PER_BLOCK
from holdfast.store.sql.migration import MigrationStep, create_statements, plan_table, select_steps

LOCK = 0x686F6C64  # "hold": the advisory lock of whoever migrates
STATEMENT_S_MAX = 86_400.0
WAIT_S_MAX = 600.0


def ddl(catalog: Catalog) -> list[str]:
    """Return every statement that makes the tables, indexes, views and policies in an empty database."""
    statements = [*_own_tables(), *security.create_roles()]
    for schema in catalog.schemas:
        mapping = PostgresTable(schema, catalog.table(schema))
        statements += [
            *create_statements(mapping.tables), *create_storage(mapping.table), *create_view(mapping.view),
            *security.protect(mapping),
        ]  # fmt: skip
    return statements


def _own_tables() -> list[str]:
    return [
        f"CREATE SEQUENCE IF NOT EXISTS {SEQUENCE} INCREMENT BY {VERSIONS_PER_BLOCK}",
        f"CREATE TABLE IF NOT EXISTS {BATCHES} (id BIGINT PRIMARY KEY, at TIMESTAMPTZ NOT NULL DEFAULT now(),"
        " void BOOLEAN NOT NULL DEFAULT false, lost TEXT[])",
        f"CREATE TABLE IF NOT EXISTS {security.SCHEMA_TABLE} (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ]


class PostgresMigration:
    def __init__(self, pool: ConnectionPool, mappings: Mapping[Schema[Any], PostgresTable]) -> None:
        self._pool = pool
        self._mappings = {mapping.table: mapping for mapping in mappings.values()}

    async def diff(self, request: MigrationRequest) -> list[str]:
        return [
            step.label for step in await self._pool.read(lambda connection: self._steps(connection, request))
        ]

    async def apply(self, request: MigrationRequest) -> list[str]:
        try:
            async with self._exclusively(), self._connection() as connection:
                steps = await self._pool.pinned(connection, lambda pinned: self._steps(pinned, request))
                done = [group for group in _grouped(steps) if await self._execute(connection, group)]
                return [step.label for group in done for step in group]
        except Exception as fault:
            raise (unavailable(fault) if is_disconnected(fault) else explain(fault)) from fault

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[PgConnection]:
        connection = await self._pool.open()
        try:
            yield connection
        finally:
            await close_connection(connection)

    @asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[None]:
        """Hold the advisory lock. It is polled: a waiting statement would block the building of indexes."""
        async with self._connection() as connection:
            await connection.execute("BEGIN")
            deadline = RetryDeadline(WAIT_S_MAX)
            while not await connection.fetchval(f"SELECT pg_try_advisory_xact_lock({LOCK})"):
                if deadline.passed:
                    raise StoreUnavailableError("another process has been migrating for minutes; retry later")
                await deadline.pause()
            # The last query's snapshot lives until the next statement, and would block index builds, too.
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield
            await connection.execute("COMMIT")

    async def _steps(self, connection: PgConnection, request: MigrationRequest) -> list[MigrationStep]:
        mappings = [one for one in self._mappings.values() if request.covers(one.schema)]
        tables = [table for one in mappings for table in one.tables]
        found = await inspect(connection, tables, [one.view for one in mappings])
        steps = []
        if not found.has_own_tables:
            label = "create the store's own tables"
            steps.append(MigrationStep(label=label, statements=tuple(_own_tables()), unused=True))
        storage = await inspect_storage(connection, [one.table for one in mappings])
        for mapping in mappings:
            steps += plan_table(mapping, found, request)
            steps += storage_step(mapping.table, storage, is_new=mapping.table not in found.columns)
        return select_steps([*steps, *self._security_steps(mappings, found)], request)

    def _security_steps(
        self, mappings: list[PostgresTable], found: InspectedDatabase
    ) -> Iterator[MigrationStep]:
        if not found.has_roles and not found.may_create_roles:
            roles = "; ".join(f"CREATE ROLE {name} NOLOGIN" for name in security.ROLE_NAMES)
            yield MigrationStep(
                label="row-level security is not as declared: this user may not create roles; let an"
                f" administrator run {roles}; then migrate again"
            )
            return
        shared = _security_step(
            security.LOGINS, security.create_roles(), found, is_new=not found.has_own_tables
        )
        # Only adds, so it does not wait for processes of other releases: new tables need it.
        yield from (msgspec.structs.replace(step, effect="add") for step in shared)
        for mapping in mappings:
            is_new = mapping.table not in found.columns
            yield from _security_step(mapping.table, security.protect(mapping), found, is_new=is_new)

    async def _execute(self, connection: PgConnection, steps: list[MigrationStep]) -> bool:
        """Execute the steps; False, with nothing done, where others hold a lock for too long."""
        step = steps[0]
        if step.backfill:
            mapping = self._mappings[step.backfill]
            while await self._pool.transact(connection, lambda connection: fill_next(connection, mapping)):
                pass
        elif step.concurrent:
            for statement in step.statements:
                await connection.execute(statement, timeout=STATEMENT_S_MAX)
        else:
            try:
                await self._pool.transact(connection, lambda connection: _run_all(connection, steps))
            except asyncpg.LockNotAvailableError:
                if not step.waits_s_max:
                    raise
                return False
        return True


def _security_step(
    table: str, statements: list[str], found: InspectedDatabase, *, is_new: bool
) -> Iterator[MigrationStep]:
    digest = hashlib.blake2b("\n".join(statements).encode(), digest_size=12).hexdigest()
    note = f"security {table}"
    if found.notes.get(note) != digest or is_new or not found.has_roles:
        yield MigrationStep(
            label=f"protect {table}", statements=tuple(statements), notes={note: digest},
            unused=is_new, effect="add" if is_new else "align",
        )  # fmt: skip


def _grouped(steps: list[MigrationStep]) -> list[list[MigrationStep]]:
    """Group steps on unused tables into one transaction; others run alone, to hold their locks shortly."""
    groups: list[list[MigrationStep]] = []
    for step in steps:
        if groups and step.unused and groups[-1][-1].unused:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _supported(connection: PgConnection, statement: str) -> str:
    """Return a statement for this server: before version 18 derived columns are stored."""
    old = connection.get_server_version().major < 18
    return statement.replace(") VIRTUAL", ") STORED") if old else statement


async def _run_all(connection: PgConnection, steps: list[MigrationStep]) -> None:
    for step in steps:
        if step.waits_s_max:
            await connection.execute(f"SET LOCAL lock_timeout = '{step.waits_s_max:g}s'")
        try:
            for statement in step.statements:
                await connection.execute(_supported(connection, statement), timeout=STATEMENT_S_MAX)
        except asyncpg.InsufficientPrivilegeError as fault:
            raise asyncpg.InsufficientPrivilegeError(
                f"{step.label}: {fault}; an administrator may run the statements of"
                " `holdfast schema export --format sql-postgres` instead"
            ) from None
        # Noted with the change itself: a kill right after it must not forget what is to be done.
        for note in step.notes.items():
            await connection.execute(
                f"INSERT INTO {security.SCHEMA_TABLE} VALUES ($1, $2)"
                " ON CONFLICT (name) DO UPDATE SET value = $2",
                *note,
            )
        if step.forget:
            await connection.execute(f"DELETE FROM {security.SCHEMA_TABLE} WHERE name = $1", step.forget)
