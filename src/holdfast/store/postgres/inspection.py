"""What the database holds, read from PostgreSQL's own catalog."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.postgres.pool import PgConnection
from holdfast.store.postgres.security import ROLE_NAMES, SCHEMA_TABLE
from holdfast.store.postgres.views import INCOMPLETE, SERVER_MIN, digest_of
from holdfast.store.sql.migration import DERIVED, InspectedIndex, InspectedSchema
from holdfast.store.sql.tables import Table, TableIndex
from holdfast.store.sql.views import InspectedView, View

_COLUMNS = """
SELECT c.relname, a.attname, upper(format_type(a.atttypid, NULL)) AS type, l.collname,
  a.attgenerated::text <> '' AS derived
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
  AND c.relname = ANY($1::text[]) AND a.attnum > 0 AND NOT a.attisdropped"""
_VIEWS = """
SELECT c.relname, obj_description(c.oid, 'pg_class') AS comment,
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid ORDER BY a.attnum) AS names,
  ARRAY(SELECT format_type(a.atttypid, NULL) || CASE l.collname WHEN 'C' THEN ' COLLATE "C"' ELSE '' END
    FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE a.attrelid = c.oid ORDER BY a.attnum) AS types,
  ARRAY(SELECT DISTINCT r.ev_class::regclass::text FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
    WHERE d.refobjid = c.oid AND d.classid = 'pg_rewrite'::regclass AND r.ev_class <> c.oid) AS users
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'v'
  AND c.relname = ANY($1::text[])"""
_INDEXES = """
SELECT t.relname AS table, c.relname AS name, i.indisvalid AS valid, i.indoption::int2[]::int[] AS options,
  i.indpred IS NOT NULL AS partial,
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid ORDER BY attnum) AS columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE t.relnamespace = current_schema()::regnamespace AND t.relname = ANY($1::text[])
  AND NOT i.indisprimary"""
_ROLES = """
SELECT (SELECT bool_and(to_regrole(name) IS NOT NULL) FROM unnest($1::text[]) AS name),
  rolsuper OR rolcreaterole
FROM pg_roles WHERE rolname = current_user"""
_TYPES = {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}


class InspectedDatabase(InspectedSchema, kw_only=True):
    """Also: whether the store's own tables and the roles exist, and whether roles may be created."""

    has_own_tables: bool = False
    has_roles: bool = False
    may_create_roles: bool = False


async def inspect(
    connection: PgConnection, tables: Sequence[Table], views: Sequence[View]
) -> InspectedDatabase:
    found, names = InspectedDatabase(), [table.name for table in tables]
    exists = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", SCHEMA_TABLE)
    found.has_own_tables = bool(exists)
    if found.has_own_tables:
        rows = await connection.fetch(f"SELECT name, value FROM {SCHEMA_TABLE}")
        found.notes = {row["name"]: row["value"] for row in rows}
    row = await connection.fetchrow(_ROLES, ROLE_NAMES)
    assert row is not None
    found.has_roles, found.may_create_roles = row
    for row in await connection.fetch(_COLUMNS, names):
        kind = _TYPES.get(row["type"], row["type"]) + (' COLLATE "C"' if row["collname"] == "C" else "")
        found.columns.setdefault(row["relname"], {})[row["attname"]] = kind + (
            DERIVED if row["derived"] else ""
        )
    found.views = await _inspect_views(connection, views)
    declared = {index.name: _shape(index) for table in tables for index in table.indexes}
    mirrors = {i.name: _shape(i.mirrored) for t in tables for i in t.indexes if i.mirror}
    for row in await connection.fetch(_INDEXES, names):
        columns = tuple(row["columns"])
        shape = (columns, tuple(row["options"]), row["partial"])
        name = row["name"]
        index = InspectedIndex(
            columns, shape == declared.get(name), usable=row["valid"], mirrored=shape == mirrors.get(name)
        )
        found.indexes.setdefault(row["table"], {})[name] = index
    return found


async def _inspect_views(connection: PgConnection, views: Sequence[View]) -> dict[str, InspectedView] | None:
    if connection.get_server_version().major < SERVER_MIN:
        return None
    found, digests = dict[str, InspectedView](), {view.name: digest_of(view) for view in views}
    for row in await connection.fetch(_VIEWS, list(digests)):
        users, digest = tuple(row["users"]), digests[row["relname"]]
        # One that keeps columns for views of others is replaced when those are gone.
        as_declared = row["comment"] in ((digest, digest + INCOMPLETE) if users else (digest,))
        columns = tuple(zip(row["names"], row["types"], strict=True))
        found[row["relname"]] = InspectedView(columns, as_declared, users)
    return found


def _shape(index: TableIndex) -> tuple[tuple[str, ...], tuple[int, ...], bool]:
    """Return columns, `indoption` flags and partiality, as the catalog would have them."""
    columns = tuple(t.split('" ')[0].strip('"').replace('""', '"') for t in index.terms)
    options = tuple(1 if t.endswith(" DESC NULLS LAST") else 2 if t.endswith(" ASC NULLS FIRST") else 0
                    for t in index.terms)  # fmt: skip
    return columns, options, bool(index.where)
