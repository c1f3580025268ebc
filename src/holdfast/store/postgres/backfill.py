"""Filling new columns and lists' tables from the documents, a few rows a transaction."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.path import split_key
from holdfast.model.schema import Prepared
from holdfast.store.postgres.inspection import SCHEMA_TABLE
from holdfast.store.postgres.pool import Link
from holdfast.store.postgres.statement import TableChange, change_sql
from holdfast.store.postgres.table_mapping import CLAIM_COLUMNS_AT, PostgresTableMapping, Row
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.fenced_patch import merge_json
from holdfast.store.sql.tables import KEY, PARENT, Table

ROWS_A_STEP = 500


class ToFill(msgspec.Struct, frozen=True):
    """What of a collection is still to be filled, and the last key that is."""

    columns: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    after: str = ""

    def with_column(self, table: Table, name: str) -> ToFill:
        if table.items_of:
            return self.with_list(table.name)
        return ToFill(tuple(dict.fromkeys([*self.columns, name])), self.lists)

    def with_list(self, name: str) -> ToFill:
        return ToFill(self.columns, tuple(dict.fromkeys([*self.lists, name])))


async def fill_some(connection: Link, mapping: PostgresTableMapping) -> bool:
    """Fill the next rows and note how far that went, in the caller's transaction; False at the end."""
    mark = f"fill {mapping.table}"
    note = await connection.fetchval(f"SELECT value FROM {SCHEMA_TABLE} WHERE name = $1", mark)
    if note is None:
        return False
    todo = msgspec.json.decode(note, type=ToFill)
    shown = ", ".join(map(quote, mapping.selected))
    rows = await connection.fetch(
        f"SELECT {shown} FROM {quote(mapping.table)} WHERE {quote(KEY)} > $1"
        f" ORDER BY {quote(KEY)} LIMIT {ROWS_A_STEP} FOR UPDATE",
        todo.after,
    )
    if not rows:
        await connection.execute(f"DELETE FROM {SCHEMA_TABLE} WHERE name = $1", mark)
        return False
    prepared = [_prepared(mapping, row, todo) for row in rows]
    for change in _changes(mapping, todo, prepared):
        await connection.execute(change_sql(change), *zip(*change.rows, strict=True))
    further = msgspec.json.encode(ToFill(todo.columns, todo.lists, rows[-1][0])).decode()
    await connection.execute(f"UPDATE {SCHEMA_TABLE} SET value = $2 WHERE name = $1", mark, further)
    return True


def _prepared(mapping: PostgresTableMapping, row: Row, todo: ToFill) -> Prepared:
    document: Any = mapping.schema.load(merge_json(row[2], row[3]), split_key(row[0]))
    for position, (path, convert) in enumerate(mapping.overlay, CLAIM_COLUMNS_AT):
        if mapping.claim_columns[position - CLAIM_COLUMNS_AT].stored not in todo.columns:
            force_setattr(document, path, row[position] if convert is None else convert(row[position]))
    return mapping.schema.prepare(document)


def _changes(mapping: PostgresTableMapping, todo: ToFill, prepared: list[Prepared]) -> list[TableChange]:
    chosen = [n for n, name in enumerate(mapping.names) if name in todo.columns or name in (KEY, PARENT)]
    main = TableChange(
        "update", mapping.table, [mapping.names[n] for n in chosen], [mapping.arrays[n] for n in chosen]
    )
    for one in prepared:
        row = mapping.row(one, 0)
        main.rows.append(tuple(row[n] for n in chosen))
    changes = [main] if todo.columns else []
    for items in mapping.lists:
        if items.table in todo.lists:
            change = TableChange("item", items.table, items.names, items.arrays)
            for one in prepared:
                change.rows += items.rows(one.key, one.tenant, document=mapping.schema.document_of(one))
            changes += [change] if change.rows else []
    return changes
