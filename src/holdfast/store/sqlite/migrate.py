"""Migration on SQLite: inspects the file and executes the plan, online, in small resumable transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from holdfast.model.schema import Prepared, Schema
from holdfast.store.catalog import Catalog
from holdfast.store.port import MigrationRequest
from holdfast.store.sql.backfill import Backfill, backfill_note, delete_orphans, prepare_row, select_next
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.migration import (
    DERIVED,
    InspectedIndex,
    InspectedSchema,
    MigrationStep,
    create_statements,
    plan_table,
    select_steps,
)
from holdfast.store.sql.tables import BODY, KEY, PATCH, Table, create_index
from holdfast.store.sql.views import InspectedView
from holdfast.store.sqlite.connections import one
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.views import create_view, inspect_view
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.sqlite.writer import SqliteWriter


def ddl(catalog: Catalog) -> list[str]:
    """Return every statement that makes the catalog's tables and views in an empty file."""
    mappings = [SqliteTable(schema, catalog.table(schema)) for schema in catalog.schemas]
    views = [text for one in mappings for text in create_view(one.view)]
    return [*create_statements(table for one in mappings for table in one.tables), *views]


class SqliteMigration:
    def __init__(self, writer: SqliteWriter, mappings: Mapping[Schema[Any], SqliteTable]) -> None:
        self._writer, self._planned_version = writer, 0
        self._mappings = {mapping.table: mapping for mapping in mappings.values()}

    async def diff(self, request: MigrationRequest) -> list[str]:
        return [step.label for step in await self._plan(request)]

    async def apply(self, request: MigrationRequest) -> list[str]:
        done: list[str] = []
        while steps := await self._plan(request):
            for step in steps:
                if not await self._execute(step):
                    break  # another process has changed the schema since: what was planned may be wrong
                done.append(step.label)
            else:
                break
        return done

    async def _execute(self, step: MigrationStep) -> bool:
        """Execute a step; False, with nothing done, where the schema is not the one that was planned for."""
        if not step.backfill:
            executed: bool = await self._writer.do(lambda tx: self._execute_planned(tx.connection, step))
            return executed
        mapping = self._mappings[step.backfill]
        while await self._writer.do(lambda transaction: _fill(transaction.connection, mapping)):
            pass
        return True

    def _execute_planned(self, connection: apsw.Connection, step: MigrationStep) -> bool:
        if _schema_version(connection) != self._planned_version:
            return False
        _execute(connection, step)
        self._planned_version = _schema_version(connection)
        return True

    async def _plan(self, request: MigrationRequest) -> list[MigrationStep]:
        steps: list[MigrationStep] = await self._writer.do(lambda tx: self._steps(tx, request))
        return steps

    def _steps(self, transaction: WriteTransaction, request: MigrationRequest) -> list[MigrationStep]:
        mappings = [one for one in self._mappings.values() if request.covers(one.schema)]
        self._planned_version = _schema_version(transaction.connection)
        found = _inspect(transaction.connection, mappings)
        steps = [step for one in mappings for step in plan_table(one, found, request)]
        return select_steps(steps, request)


def _schema_version(connection: apsw.Connection) -> int:
    """Return SQLite's own count of changes to the schema, by any process."""
    version: int = one(connection, "PRAGMA schema_version")[0]
    return version


def _inspect(connection: apsw.Connection, mappings: list[SqliteTable]) -> InspectedSchema:
    views: dict[str, InspectedView] = {}
    found, stored = InspectedSchema(views=views), dict[str, dict[str, str]]()
    notes = "SELECT name, value FROM _holdfast_meta WHERE name NOT IN ('version', 'writer')"
    found.notes = dict(connection.execute(notes))
    # Read once: it has no index, and hundreds of rows.
    rows = connection.execute("SELECT tbl_name, name, sql FROM sqlite_master WHERE type IN ('index', 'view')")
    for table, name, sql in rows:
        stored.setdefault(str(table), {})[str(name)] = str(sql or "")
    for mapping in mappings:
        for table in mapping.tables:
            _inspect_table(connection, table, found=found, stored=stored.get(table.name, {}))
        if sql := stored.get(mapping.view.name, {}).get(mapping.view.name):
            views[mapping.view.name] = inspect_view(mapping.view, sql)
    return found


def _inspect_table(
    connection: apsw.Connection, table: Table, *, found: InspectedSchema, stored: dict[str, str]
) -> None:
    columns = connection.execute(
        "SELECT name, type || iif(hidden, ?, '') FROM pragma_table_xinfo(?)", (DERIVED, table.name)
    )
    if existing := dict(columns):
        found.columns[table.name] = existing
    declared = {index.name: _text(create_index(index)) for index in table.indexes}
    mirrors = {i.name: _text(create_index(i.mirrored)) for i in table.indexes if i.mirror}
    found.indexes[table.name] = {
        name: InspectedIndex(
            _index_columns(connection, name),
            _text(sql) == declared.get(name),
            mirrored=_text(sql) == mirrors.get(name),
        )
        for name, sql in stored.items()
        if sql
    }


def _text(sql: str) -> str:
    return sql.replace("IF NOT EXISTS ", "")


def _index_columns(connection: apsw.Connection, index: str) -> tuple[str, ...]:
    return tuple(
        str(name) for (name,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,))
    )


def _execute(connection: apsw.Connection, step: MigrationStep) -> None:
    # Else SQLite refuses to drop a column while any view of the file, be it somebody's, is not sound.
    connection.execute("PRAGMA writable_schema = ON")
    try:
        for statement in step.statements:
            connection.execute(statement).fetchall()
    finally:
        connection.execute("PRAGMA writable_schema = OFF")
    # Noted with the change itself: a kill right after it must not forget what is to be filled.
    for note in step.notes.items():
        connection.execute("INSERT OR REPLACE INTO _holdfast_meta VALUES (?, ?)", note)
    connection.execute("DELETE FROM _holdfast_meta WHERE name = ?", (step.forget,))


def _fill(connection: apsw.Connection, mapping: SqliteTable) -> bool:
    """Fill the next rows and note how far that went; False at the end."""
    note = backfill_note(mapping.table)
    row = connection.execute("SELECT value FROM _holdfast_meta WHERE name = ?", (note,)).fetchone()
    if row is None:
        return False
    noted = msgspec.json.decode(str(row[0]), type=Backfill)
    backfill = noted.known_to(mapping)
    rows = connection.execute(select_next(mapping), (backfill.after,)).fetchall()
    for row in rows:
        _fill_row(connection, mapping, prepare_row(mapping, row, backfill), backfill=backfill)
    if not rows:
        for table in backfill.lists:
            connection.execute(delete_orphans(mapping, table))
    left = noted.continued(str(rows[-1][0])) if rows else noted.without(backfill)
    connection.execute("UPDATE _holdfast_meta SET value = ? WHERE name = ?", (left, note))
    connection.execute("DELETE FROM _holdfast_meta WHERE name = ? AND value = ''", (note,))
    return bool(rows)


def _fill_row(
    connection: apsw.Connection, mapping: SqliteTable, prepared: Prepared, *, backfill: Backfill
) -> None:
    columns = mapping.schema.columns
    positions = tuple(p for p in mapping.positions if columns[p].stored in backfill.columns)
    sets = [f"{quote(columns[p].stored)} = ?" for p in positions]
    values = [*mapping.bind(prepared.values, positions)]
    if backfill.documents:
        sets += [f"{quote(BODY)} = ?", f"{quote(PATCH)} = NULL"]
        values.append(prepared.body.decode())
    if sets:
        text = f"UPDATE {quote(mapping.table)} SET {', '.join(sets)} WHERE {quote(KEY)} = ?"
        connection.execute(text, (*values, prepared.key))
    for items in mapping.lists:
        if items.table in backfill.lists:
            connection.execute(items.delete_sql, (prepared.key,))
            document = mapping.schema.document_of(prepared)
            rows = items.rows(prepared.key, prepared.tenant, document=document)
            connection.executemany(items.insert_sql, rows)
