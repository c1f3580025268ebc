"""What the database holds now, read from PostgreSQL's own catalog."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.store.postgres.pool import Link
from holdfast.store.postgres.security import ROLE
from holdfast.store.sql.tables import TableColumn, TableIndex

SCHEMA_TABLE = "_holdfast_schema"

_COLUMNS = """
SELECT c.relname, a.attname, upper(format_type(a.atttypid, NULL)) AS type, l.collname
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
  AND c.relname = ANY($1::text[]) AND a.attnum > 0 AND NOT a.attisdropped"""
_INDEXES = """
SELECT t.relname AS table, c.relname AS name, i.indisvalid AS valid, i.indoption::int2[]::int[] AS options,
  i.indpred IS NOT NULL AS partial,
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid ORDER BY attnum) AS columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = current_schema()::regnamespace AND t.relname = ANY($1::text[])
  AND NOT i.indisprimary"""
_ROLES = """
SELECT to_regrole($1) IS NOT NULL, rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"""
_TYPES = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}


class InspectedIndex(msgspec.Struct, frozen=True):
    valid: bool
    columns: tuple[str, ...]
    options: tuple[int, ...]
    partial: bool


class InspectedSchema(msgspec.Struct):
    """Tables with columns and indexes, what migrations noted, and how it stands with the role."""

    columns: dict[str, dict[str, str]]
    indexes: dict[str, dict[str, InspectedIndex]]
    notes: dict[str, str]
    prepared: bool
    role: bool
    may_make_role: bool


async def inspect(connection: Link, tables: Sequence[str]) -> InspectedSchema:
    found = InspectedSchema({}, {}, {}, False, False, False)
    found.prepared = bool(await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", SCHEMA_TABLE))
    if found.prepared:
        rows = await connection.fetch(f"SELECT name, value FROM {SCHEMA_TABLE}")
        found.notes = {row["name"]: row["value"] for row in rows}
    row = await connection.fetchrow(_ROLES, ROLE)
    assert row is not None
    found.role, found.may_make_role = row
    for row in await connection.fetch(_COLUMNS, tables):
        kind = _TYPES.get(row["type"], row["type"]) + (' COLLATE "C"' if row["collname"] == "C" else "")
        found.columns.setdefault(row["relname"], {})[row["attname"]] = kind
    for row in await connection.fetch(_INDEXES, tables):
        index = InspectedIndex(row["valid"], tuple(row["columns"]), tuple(row["options"]), row["partial"])
        found.indexes.setdefault(row["table"], {})[row["name"]] = index
    return found


def same_index(found: InspectedIndex, wanted: TableIndex) -> bool:
    options = tuple(1 if t.endswith(" DESC NULLS LAST") else 2 if t.endswith(" ASC NULLS FIRST") else 0
                    for t in wanted.terms)  # fmt: skip
    columns = tuple(t.split('" ')[0].strip('"').replace('""', '"') for t in wanted.terms)
    return (found.valid, found.columns, found.options, found.partial) == (
        True, columns, options, bool(wanted.where),
    )  # fmt: skip


def type_of(column: TableColumn) -> str:
    return column.type.removesuffix(" NOT NULL")
