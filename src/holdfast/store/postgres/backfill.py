"""Executes a backfill on PostgreSQL, some rows per transaction."""

from __future__ import annotations

import msgspec

from holdfast.model.schema import Prepared
from holdfast.store.postgres.inspection import SCHEMA_TABLE
from holdfast.store.postgres.pool import PgConnection
from holdfast.store.postgres.statement import PostgresTable, TableChange, change_sql
from holdfast.store.sql.backfill import Backfill, backfill_note, prepare_row, select_next
from holdfast.store.sql.tables import KEY, PARENT


async def fill_next(connection: PgConnection, mapping: PostgresTable) -> bool:
    """Fill the next rows and note how far that went, in the caller's transaction; False at the end."""
    name = backfill_note(mapping.table)
    note = await connection.fetchval(f"SELECT value FROM {SCHEMA_TABLE} WHERE name = $1", name)
    if note is None:
        return False
    backfill = msgspec.json.decode(note, type=Backfill)
    rows = await connection.fetch(f"{select_next(mapping)} FOR UPDATE", backfill.after)
    if not rows:
        await connection.execute(f"DELETE FROM {SCHEMA_TABLE} WHERE name = $1", name)
        return False
    prepared = [prepare_row(mapping, row, backfill) for row in rows]
    for change in _changes(mapping, backfill, prepared):
        await connection.execute(change_sql(change), *zip(*change.rows, strict=True))
    continued = backfill.continued(rows[-1][0])
    await connection.execute(f"UPDATE {SCHEMA_TABLE} SET value = $2 WHERE name = $1", name, continued)
    return True


def _changes(mapping: PostgresTable, backfill: Backfill, prepared: list[Prepared]) -> list[TableChange]:
    changes = []
    if backfill.columns:
        fixed = (KEY, PARENT)
        chosen = [n for n, name in enumerate(mapping.names) if name in backfill.columns or name in fixed]
        names, arrays = [mapping.names[n] for n in chosen], [mapping.arrays[n] for n in chosen]
        change = TableChange("update", mapping.table, names, arrays)
        for one in prepared:
            row = mapping.row(one, 0)
            change.rows.append(tuple(row[n] for n in chosen))
        changes.append(change)
    for items in mapping.lists:
        if items.table in backfill.lists:
            change = TableChange("item", items.table, items.names, items.arrays)
            for one in prepared:
                change.rows += items.rows(one.key, one.tenant, document=mapping.schema.document_of(one))
            changes += [change] if change.rows else []
    return changes
