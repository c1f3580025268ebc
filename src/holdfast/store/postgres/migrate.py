"""Bringing a database to what the classes declare: online, in small steps, resumable."""

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
from holdfast.store.postgres import security
from holdfast.store.postgres.backfill import ToFill, fill_some
from holdfast.store.postgres.faults import explain, is_away
from holdfast.store.postgres.inspection import SCHEMA_TABLE, InspectedSchema, inspect, same_index, type_of
from holdfast.store.postgres.pool import ConnectionPool, Link, RetryDeadline, shut, unavailable
from holdfast.store.postgres.statement import BATCHES, SEQUENCE
from holdfast.store.postgres.table_mapping import PostgresTableMapping
from holdfast.store.postgres.writer import VERSIONS_A_BLOCK
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import AMENDED, Table, create_index, create_table

LOCK = 0x686F6C64  # "hold": the advisory lock of whoever migrates
STATEMENT_S_MAX = 86_400.0
WAIT_S_MAX = 600.0


def ddl(catalog: Catalog) -> list[str]:
    """Every statement that makes the catalog's tables, indexes and policies in an empty database."""
    mappings = [PostgresTableMapping(schema, catalog.table(schema)) for schema in catalog.schemas]
    statements = [*_own_tables(), *security.make_role()]
    for mapping in mappings:
        for table in mapping.tables:
            statements += [create_table(table), *(create_index(index) for index in table.indexes)]
        statements += security.protect(mapping)
    return statements


def _own_tables() -> list[str]:
    return [
        f"CREATE SEQUENCE IF NOT EXISTS {SEQUENCE} INCREMENT BY {VERSIONS_A_BLOCK}",
        f"CREATE TABLE IF NOT EXISTS {BATCHES} (id BIGINT PRIMARY KEY, at TIMESTAMPTZ NOT NULL DEFAULT now(),"
        " void BOOLEAN NOT NULL DEFAULT false, lost TEXT[])",
        f"CREATE TABLE IF NOT EXISTS {SCHEMA_TABLE} (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ]


class PostgresMigrationStep(msgspec.Struct, frozen=True):
    """One thing to do: what to tell people, its statements, and what to note with them.

    `apart` runs outside a transaction; `quiet` touches only tables nobody uses yet; `fill` is the table
    whose rows are to be filled.
    """

    label: str
    statements: tuple[str, ...] = ()
    notes: dict[str, str] = {}
    forget: str = ""
    apart: bool = False
    quiet: bool = False
    fill: str = ""


class PostgresMigration:
    """Compares the database with the declarations and closes the distance."""

    def __init__(self, pool: ConnectionPool, mappings: Mapping[Schema[Any], PostgresTableMapping]) -> None:
        self._pool = pool
        self._mappings = {mapping.table: mapping for mapping in mappings.values()}

    async def diff(self) -> list[str]:
        return [step.label for step in await self._pool.read(self._steps)]

    async def apply(self) -> list[str]:
        try:
            async with self._alone(), self._connection() as connection:
                steps = await self._pool.whole(connection, self._steps)
                for group in _grouped(steps):
                    await self._do(connection, group)
                return [step.label for step in steps]
        except Exception as fault:
            raise (unavailable(fault) if is_away(fault) else explain(fault)) from fault

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Link]:
        connection = await self._pool.open()
        try:
            yield connection
        finally:
            await shut(connection)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nobody else migrates meanwhile. The lock is asked for again and again, never waited for:
        a waiting statement would hold up the building of indexes that it waits for."""
        async with self._connection() as connection:
            await connection.execute("BEGIN")
            patience = RetryDeadline(WAIT_S_MAX)
            while not await connection.fetchval(f"SELECT pg_try_advisory_xact_lock({LOCK})"):
                if patience.over:
                    raise StoreUnavailableError("another process has been migrating for minutes")
                await patience.pause()
            # The driver's last question keeps its snapshot until the next one, and that, too, would
            # hold up the building of indexes.
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield
            await connection.execute("COMMIT")

    async def _steps(self, connection: Link) -> list[PostgresMigrationStep]:
        names = [table.name for mapping in self._mappings.values() for table in mapping.tables]
        found = await inspect(connection, names)
        steps = (
            []
            if found.prepared
            else [PostgresMigrationStep("create the store's own tables", tuple(_own_tables()), quiet=True)]
        )
        for mapping in self._mappings.values():
            steps += self._shelf_steps(mapping, found)
        return steps + list(self._security_steps(found))

    def _shelf_steps(
        self, mapping: PostgresTableMapping, found: InspectedSchema
    ) -> Iterator[PostgresMigrationStep]:
        fresh = mapping.table not in found.columns
        mark = f"fill {mapping.table}"
        todo = msgspec.json.decode(found.notes[mark], type=ToFill) if mark in found.notes else ToFill()
        for table in mapping.tables:
            for step in _table_steps(table, found, mark=mark, todo=None if fresh else todo):
                yield step
                if mark in step.notes:
                    todo = msgspec.json.decode(step.notes[mark], type=ToFill)
        yield from _gone_lists(mapping, found)
        if todo.columns or todo.lists:
            yield PostgresMigrationStep(f"fill {mapping.table}", fill=mapping.table)
        for table in mapping.tables:
            yield from _index_steps(table, found)

    def _security_steps(self, found: InspectedSchema) -> Iterator[PostgresMigrationStep]:
        if not found.role and not found.may_make_role:
            yield PostgresMigrationStep(
                f"row-level security is off: this user may not create the role {security.ROLE}; let an"
                f" administrator run CREATE ROLE {security.ROLE} NOLOGIN, then migrate again"
            )
            return
        for mapping in self._mappings.values():
            statements = [*security.make_role(), *security.protect(mapping)]
            digest = hashlib.blake2b("\n".join(statements).encode(), digest_size=12).hexdigest()
            name = f"security {mapping.table}"
            if found.notes.get(name) != digest or mapping.table not in found.columns or not found.role:
                quiet = mapping.table not in found.columns
                yield PostgresMigrationStep(
                    f"protect {mapping.table}", tuple(statements), {name: digest}, quiet=quiet
                )

    async def _do(self, connection: Link, steps: list[PostgresMigrationStep]) -> None:
        step = steps[0]
        if step.fill:
            mapping = self._mappings[step.fill]
            while await self._pool.transact(connection, lambda connection: fill_some(connection, mapping)):
                pass
        elif step.apart:
            for statement in step.statements:
                await connection.execute(statement, timeout=STATEMENT_S_MAX)
        else:
            await self._pool.transact(connection, lambda connection: _run_all(connection, steps))


def _grouped(steps: list[PostgresMigrationStep]) -> list[list[PostgresMigrationStep]]:
    """Steps that disturb nobody share a transaction; the others keep their locks as short as can be."""
    groups: list[list[PostgresMigrationStep]] = []
    for step in steps:
        if groups and step.quiet and groups[-1][-1].quiet:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


async def _run_all(connection: Link, steps: list[PostgresMigrationStep]) -> None:
    for step in steps:
        await _run(connection, step)


async def _run(connection: Link, step: PostgresMigrationStep) -> None:
    try:
        for statement in step.statements:
            await connection.execute(statement, timeout=STATEMENT_S_MAX)
    except asyncpg.InsufficientPrivilegeError as fault:
        raise asyncpg.InsufficientPrivilegeError(
            f"{step.label}: {fault}; an administrator may run the statements of"
            " `holdfast schema export --format sql-postgres` instead"
        ) from None
    # Noted with the change itself: a kill right after it must not forget what is to be done.
    for note in step.notes.items():
        await connection.execute(
            f"INSERT INTO {SCHEMA_TABLE} VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2", *note
        )
    if step.forget:
        await connection.execute(f"DELETE FROM {SCHEMA_TABLE} WHERE name = $1", step.forget)


def _table_steps(
    table: Table, found: InspectedSchema, *, mark: str, todo: ToFill | None
) -> Iterator[PostgresMigrationStep]:
    existing = found.columns.get(table.name)
    if existing is None:
        yield _create_step(table, mark=mark, todo=todo)
        return
    for column in table.columns:
        if existing.get(column.name) == type_of(column):
            continue
        drop = [f"DROP COLUMN {quote(column.name)}"] if column.name in existing else []
        acts = ", ".join([*drop, f"ADD COLUMN {quote(column.name)} {type_of(column)}"])
        note = {}
        if column.name != AMENDED:
            todo = (todo or ToFill()).with_column(table, column.name)
            note = {mark: msgspec.json.encode(todo).decode()}
        yield PostgresMigrationStep(
            f"add column {table.name}.{column.name}", (f"ALTER TABLE {quote(table.name)} {acts}",), note
        )
    for gone in sorted(existing.keys() - {c.name for c in table.columns}):
        text = f"ALTER TABLE {quote(table.name)} DROP COLUMN {quote(gone)}"
        yield PostgresMigrationStep(f"drop column {table.name}.{gone}", (text,))


def _create_step(table: Table, *, mark: str, todo: ToFill | None) -> PostgresMigrationStep:
    """A list's table is noted as ours, so that it can go when its index goes."""
    notes = {}
    if table.items_of:
        notes[f"list {table.name}"] = mark.removeprefix("fill ")
        if todo is not None:
            notes[mark] = msgspec.json.encode(todo.with_list(table.name)).decode()
    return PostgresMigrationStep(f"create table {table.name}", (create_table(table),), notes, quiet=True)


def _gone_lists(mapping: PostgresTableMapping, found: InspectedSchema) -> Iterator[PostgresMigrationStep]:
    kept = {items.table for items in mapping.lists}
    for name, owner in sorted(found.notes.items()):
        table = name.removeprefix("list ")
        if table != name and owner == mapping.table and table not in kept:
            yield PostgresMigrationStep(
                f"drop table {table}", (f"DROP TABLE IF EXISTS {quote(table)}",), forget=name
            )


def _index_steps(table: Table, found: InspectedSchema) -> Iterator[PostgresMigrationStep]:
    """On a table in use an index is built beside the writers; on a new one that would be slow for nothing."""
    existing = found.indexes.get(table.name, {})
    wanted = {index.name: index for index in table.indexes}
    how = "CONCURRENTLY " if table.name in found.columns else ""
    for name, found_index in existing.items():
        if name not in wanted or not same_index(found_index, wanted[name]):
            yield PostgresMigrationStep(
                f"drop index {name}", (f"DROP INDEX CONCURRENTLY IF EXISTS {quote(name)}",), apart=True
            )
    for name, index in wanted.items():
        if name not in existing or not same_index(existing[name], index):
            yield PostgresMigrationStep(
                f"create index {name}", (create_index(index, how),), apart=bool(how), quiet=not how
            )
