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

    def __init__(self, writer: SqliteWriter, mappings: dict[Schema[Any], SqliteTableMapping]) -> None:
        self._writer = writer
        self._mappings = mappings

    async def diff(self) -> list[str]:
        steps: list[SqliteMigrationStep] = await self._writer.do(
            lambda transaction: list(self._steps(transaction))
        )
        return [step.label for step in steps]

    async def apply(self) -> list[str]:
        steps: list[SqliteMigrationStep] = await self._writer.do(
            lambda transaction: list(self._steps(transaction))
        )
        for step in steps:
            if step.sql:
                await self._writer.do(_statement(step))
            else:
                await self._fill(step.fill)
        return [step.label for step in steps]

    def _steps(self, transaction: WriteTransaction) -> Iterator[SqliteMigrationStep]:
        for schema, mapping in self._mappings.items():
            tables = tables_for(schema, mapping.table, DIALECT)
            filled = _columns(transaction, mapping.table)
            steps = [
                step
                for table in tables
                for step in _table_steps(transaction, table, mapping.table if filled else "")
            ]
            yield from steps
            if any(step.fill for step in steps) or _unfinished(transaction, mapping.table):
                yield SqliteMigrationStep(f"fill {mapping.table}", fill=mapping.table)
            for table in tables:
                yield from _index_steps(transaction, table)

    async def _fill(self, table: str) -> None:
        """Write every document's columns again, a few rows a transaction, from where it stopped."""
        mapping = next(s for s in self._mappings.values() if s.table == table)
        while await self._writer.do(lambda transaction: _fill_some(transaction, mapping)):
            pass


def _table_steps(transaction: WriteTransaction, table: Table, fill: str) -> Iterator[SqliteMigrationStep]:
    existing = _columns(transaction, table.name)
    if not existing:
        yield SqliteMigrationStep(f"create table {table.name}", create_table(table), fill)
        return
    for column in table.columns:
        if existing.get(column.name) == _type(column):
            continue
        if column.name in existing:
            yield from _drop_column(transaction, table, column.name)
        text = f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(column.name)} {_type(column)}"
        yield SqliteMigrationStep(
            f"add column {table.name}.{column.name}", text, "" if column.name == AMENDED else fill
        )
    for gone in existing.keys() - {c.name for c in table.columns}:
        yield from _drop_column(transaction, table, gone)


def _statement(step: SqliteMigrationStep) -> TransactionBody:
    def work(transaction: WriteTransaction) -> None:
        transaction.connection.execute(step.sql).fetchall()
        if step.fill:
            # Noted with the change itself: a kill right after it must not forget what is to be filled.
            transaction.connection.execute(
                "INSERT OR IGNORE INTO _holdfast_meta VALUES (?, '')", (f"fill {step.fill}",)
            )

    return work


def _columns(transaction: WriteTransaction, table: str) -> dict[str, str]:
    rows = transaction.connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return dict(rows)


def _type(column: TableColumn) -> str:
    return column.type.removesuffix(" NOT NULL")


def _index_steps(transaction: WriteTransaction, table: Table) -> Iterator[SqliteMigrationStep]:
    wanted = {i.name: i for i in table.indexes}
    rows = transaction.connection.execute(
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


def _drop_column(transaction: WriteTransaction, table: Table, name: str) -> Iterator[SqliteMigrationStep]:
    """SQLite lets go of a column only when no index holds it."""
    rows = transaction.connection.execute(
        "SELECT DISTINCT i.name FROM pragma_index_list(?) AS i, pragma_index_info(i.name) AS c"
        " WHERE c.name = ? AND i.origin = 'c'",
        (table.name, name),
    )
    for (index,) in list(rows):
        yield SqliteMigrationStep(f"drop index {index}", f"DROP INDEX IF EXISTS {quote(str(index))}")
    yield SqliteMigrationStep(
        f"drop column {table.name}.{name}", f"ALTER TABLE {quote(table.name)} DROP COLUMN {quote(name)}"
    )


def _unfinished(transaction: WriteTransaction, table: str) -> bool:
    return (
        transaction.connection.execute(
            "SELECT 1 FROM _holdfast_meta WHERE name = ?", (f"fill {table}",)
        ).fetchone()
        is not None
    )


def _fill_some(transaction: WriteTransaction, mapping: SqliteTableMapping) -> bool:
    mark = f"fill {mapping.table}"
    row = transaction.connection.execute(
        "SELECT value FROM _holdfast_meta WHERE name = ?", (mark,)
    ).fetchone()
    rows = transaction.connection.execute(
        f"SELECT {quote(KEY)}, {quote(BODY)}, {quote(AMENDED)} FROM {quote(mapping.table)}"
        f" WHERE {quote(KEY)} > ?"
        f" ORDER BY {quote(KEY)} LIMIT {ROWS_A_STEP}",
        (row[0] if row else "",),
    ).fetchall()
    if not rows:
        transaction.connection.execute("DELETE FROM _holdfast_meta WHERE name = ?", (mark,))
        return False
    for key, body, amended in rows:
        _fill_one(transaction, mapping, key, merge_json(body, amended))
    transaction.connection.execute("INSERT OR REPLACE INTO _holdfast_meta VALUES (?, ?)", (mark, rows[-1][0]))
    return True


def _fill_one(transaction: WriteTransaction, mapping: SqliteTableMapping, key: Any, body: Any) -> None:
    prepared = mapping.schema.prepare(mapping.schema.load(body, split_key(key)))
    values = mapping.values(prepared)
    if values:
        sets = ", ".join(_filled(mapping, column) for column in mapping.columns)
        transaction.connection.execute(
            f"UPDATE {quote(mapping.table)} SET {sets} WHERE {quote(KEY)} = ?", (*values, key)
        )
    for items in mapping.lists:
        transaction.connection.execute(items.delete_sql, (key,))
        transaction.connection.executemany(items.insert_sql, items.rows(prepared))


def _filled(mapping: SqliteTableMapping, column: Column) -> str:
    """A claim may have moved a claimed column on since the body was written: there only gaps are filled."""
    name = quote(column.stored)
    return f"{name} = coalesce({name}, ?)" if column in mapping.claim_columns else f"{name} = ?"
