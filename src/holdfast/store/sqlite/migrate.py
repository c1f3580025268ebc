"""Bringing a file to what the classes declare: online, in small steps, resumable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.model.columns import Column
from holdfast.model.path import split_key
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.fenced_patch import merge_json
from holdfast.store.sql.tables import (
    AMENDED,
    BODY,
    KEY,
    Table,
    TableColumn,
    TableIndex,
    create_index,
    create_table,
    tables_for,
)
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.sqlite.table_mapping import SqliteTableMapping
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.sqlite.writer import SqliteWriter, TransactionBody

ROWS_A_STEP = 500


def ddl(catalog: Catalog) -> list[str]:
    """Every statement that makes the catalog's tables in an empty file."""
    tables = [t for s in catalog.schemas for t in tables_for(s, catalog.table(s), DIALECT)]
    return [text for t in tables for text in (create_table(t), *(create_index(i) for i in t.indexes))]


class SqliteMigrationStep(msgspec.Struct, frozen=True):
    """One thing to do: what to tell people, the statement, and the collection it leaves to be filled.

    A step without a statement is the filling itself.
    """

    label: str
    sql: str = ""
    fill: str = ""


class SqliteMigration:
    """Compares the file with the declarations and closes the distance."""

    def __init__(self, writer: SqliteWriter, shelves: dict[Schema[Any], SqliteTableMapping]) -> None:
        self._writer = writer
        self._shelves = shelves

    async def diff(self) -> list[str]:
        steps: list[SqliteMigrationStep] = await self._writer.do(lambda desk: list(self._steps(desk)))
        return [step.label for step in steps]

    async def apply(self) -> list[str]:
        steps: list[SqliteMigrationStep] = await self._writer.do(lambda desk: list(self._steps(desk)))
        for step in steps:
            if step.sql:
                await self._writer.do(_statement(step))
            else:
                await self._fill(step.fill)
        return [step.label for step in steps]

    def _steps(self, desk: WriteTransaction) -> Iterator[SqliteMigrationStep]:
        for schema, shelf in self._shelves.items():
            tables = tables_for(schema, shelf.table, DIALECT)
            filled = _columns(desk, shelf.table)
            steps = [
                step for table in tables for step in _table_steps(desk, table, shelf.table if filled else "")
            ]
            yield from steps
            if any(step.fill for step in steps) or _unfinished(desk, shelf.table):
                yield SqliteMigrationStep(f"fill {shelf.table}", fill=shelf.table)
            for table in tables:
                yield from _index_steps(desk, table)

    async def _fill(self, table: str) -> None:
        """Write every document's columns again, a few rows a transaction, from where it stopped."""
        shelf = next(s for s in self._shelves.values() if s.table == table)
        while await self._writer.do(lambda desk: _fill_some(desk, shelf)):
            pass


def _table_steps(desk: WriteTransaction, table: Table, fill: str) -> Iterator[SqliteMigrationStep]:
    existing = _columns(desk, table.name)
    if not existing:
        yield SqliteMigrationStep(f"create table {table.name}", create_table(table), fill)
        return
    for column in table.columns:
        if existing.get(column.name) == _type(column):
            continue
        if column.name in existing:
            yield from _drop_column(desk, table, column.name)
        text = f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(column.name)} {_type(column)}"
        yield SqliteMigrationStep(
            f"add column {table.name}.{column.name}", text, "" if column.name == AMENDED else fill
        )
    for gone in existing.keys() - {c.name for c in table.columns}:
        yield from _drop_column(desk, table, gone)


def _statement(step: SqliteMigrationStep) -> TransactionBody:
    def work(desk: WriteTransaction) -> None:
        desk.link.execute(step.sql).fetchall()
        if step.fill:
            # Noted with the change itself: a kill right after it must not forget what is to be filled.
            desk.link.execute("INSERT OR IGNORE INTO _holdfast_meta VALUES (?, '')", (f"fill {step.fill}",))

    return work


def _columns(desk: WriteTransaction, table: str) -> dict[str, str]:
    rows = desk.link.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return dict(rows)


def _type(column: TableColumn) -> str:
    return column.type.removesuffix(" NOT NULL")


def _index_steps(desk: WriteTransaction, table: Table) -> Iterator[SqliteMigrationStep]:
    wanted = {i.name: i for i in table.indexes}
    rows = desk.link.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
        (table.name,),
    )
    found: dict[str, str] = dict(rows)
    for name in found:
        if name not in wanted or not _same(found[name], wanted[name]):
            yield SqliteMigrationStep(f"drop index {name}", f"DROP INDEX IF EXISTS {quote(name)}")
    for name, index in wanted.items():
        if name not in found or not _same(found[name], index):
            yield SqliteMigrationStep(f"create index {name}", create_index(index))


def _same(sql: str, index: TableIndex) -> bool:
    return sql.replace("IF NOT EXISTS ", "") == create_index(index).replace("IF NOT EXISTS ", "")


def _drop_column(desk: WriteTransaction, table: Table, name: str) -> Iterator[SqliteMigrationStep]:
    """SQLite lets go of a column only when no index holds it."""
    rows = desk.link.execute(
        "SELECT DISTINCT i.name FROM pragma_index_list(?) AS i, pragma_index_info(i.name) AS c"
        " WHERE c.name = ? AND i.origin = 'c'",
        (table.name, name),
    )
    for (index,) in list(rows):
        yield SqliteMigrationStep(f"drop index {index}", f"DROP INDEX IF EXISTS {quote(str(index))}")
    yield SqliteMigrationStep(
        f"drop column {table.name}.{name}", f"ALTER TABLE {quote(table.name)} DROP COLUMN {quote(name)}"
    )


def _unfinished(desk: WriteTransaction, table: str) -> bool:
    return (
        desk.link.execute("SELECT 1 FROM _holdfast_meta WHERE name = ?", (f"fill {table}",)).fetchone()
        is not None
    )


def _fill_some(desk: WriteTransaction, shelf: SqliteTableMapping) -> bool:
    mark = f"fill {shelf.table}"
    row = desk.link.execute("SELECT value FROM _holdfast_meta WHERE name = ?", (mark,)).fetchone()
    rows = desk.link.execute(
        f"SELECT {quote(KEY)}, {quote(BODY)}, {quote(AMENDED)} FROM {quote(shelf.table)}"
        f" WHERE {quote(KEY)} > ?"
        f" ORDER BY {quote(KEY)} LIMIT {ROWS_A_STEP}",
        (row[0] if row else "",),
    ).fetchall()
    if not rows:
        desk.link.execute("DELETE FROM _holdfast_meta WHERE name = ?", (mark,))
        return False
    for key, body, amended in rows:
        _fill_one(desk, shelf, key, merge_json(body, amended))
    desk.link.execute("INSERT OR REPLACE INTO _holdfast_meta VALUES (?, ?)", (mark, rows[-1][0]))
    return True


def _fill_one(desk: WriteTransaction, shelf: SqliteTableMapping, key: Any, body: Any) -> None:
    prepared = shelf.schema.prepare(shelf.schema.load(body, split_key(key)))
    values = shelf.values(prepared)
    if values:
        sets = ", ".join(_filled(shelf, column) for column in shelf.columns)
        desk.link.execute(f"UPDATE {quote(shelf.table)} SET {sets} WHERE {quote(KEY)} = ?", (*values, key))
    for items in shelf.lists:
        desk.link.execute(items.delete_sql, (key,))
        desk.link.executemany(items.insert_sql, items.rows(prepared))


def _filled(shelf: SqliteTableMapping, column: Column) -> str:
    """A claim may have moved a claimed column on since the body was written: there only gaps are filled."""
    name = quote(column.stored)
    return f"{name} = coalesce({name}, ?)" if column in shelf.hot else f"{name} = ?"
