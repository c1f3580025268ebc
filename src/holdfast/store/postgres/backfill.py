"""Executes a backfill on PostgreSQL, some rows per transaction."""

from __future__ import annotations

import msgspec

from holdfast.model.schema import Prepared
from holdfast.store.postgres.pool import PgConnection
from holdfast.store.postgres.security import SCHEMA_TABLE
from holdfast.store.postgres.statement import PostgresTable, TableChange, change_sql
from holdfast.store.sql.backfill import (
    Backfill,
    backfill_note,
    delete_orphans,
    prepare_row,
    select_next,
)
from holdfast.store.sql.tables import BODY, KEY, PARENT


async def fill_next(connection: PgConnection, mapping: PostgresTable) -> bool:
    """Fill the next rows and note how far that went, in the caller's transaction; False at the end."""
    name = backfill_note(mapping.table)
    note = await connection.fetchval(f"SELECT value FROM {SCHEMA_TABLE} WHERE name = $1", name)
    if note is None:
        return False
    noted = msgspec.json.decode(note, type=Backfill)
    backfill = noted.known_to(mapping)
    rows = await connection.fetch(f"{select_next(mapping)} FOR UPDATE", backfill.after)
    prepared = [prepare_row(mapping, row, backfill) for row in rows]
    for change in _changes(mapping, backfill, prepared):
        await connection.execute(change_sql(change), *zip(*change.rows, strict=True))
    if not rows:
        for table in backfill.lists:
            await connection.execute(delete_orphans(mapping, table))
    left = noted.continued(rows[-1][0]) if rows else noted.without(backfill)
    await connection.execute(f"UPDATE {SCHEMA_TABLE} SET value = $2 WHERE name = $1", name, left)
    await connection.execute(f"DELETE FROM {SCHEMA_TABLE} WHERE name = $1 AND value = ''", name)
    return bool(rows)


def _changes(mapping: PostgresTable, backfill: Backfill, prepared: list[Prepared]) -> list[TableChange]:
    changes: list[TableChange] = []
    if not prepared:
        return changes
    if backfill.columns or backfill.documents:
        fixed = (KEY, PARENT, *([BODY] if backfill.documents else []))
        chosen = [n for n, name in enumerate(mapping.names) if name in backfill.columns or name in fixed]
        names, arrays = [mapping.names[n] for n in chosen], [mapping.arrays[n] for n in chosen]
        change = TableChange("update", mapping.table, names, arrays)
        for one in prepared:
            row = mapping.row(one, 0)
            change.rows.append(tuple(row[n] for n in chosen))
        changes.append(change)
    for items in mapping.lists:
        if items.table in backfill.lists:
            removal = TableChange("delete", items.table, items.names, items.arrays)
            removal.rows += [(one.key,) for one in prepared]
            changes.append(removal)
            change = TableChange("item", items.table, items.names, items.arrays)
            for one in prepared:
                change.rows += items.rows(one.key, one.tenant, document=mapping.schema.document_of(one))
            changes += [change] if change.rows else []
    return changes
