"""Upserts that only count: each inserts its document, or adds the document's number to the stored one.

Such an upsert depends on a few columns of the stored row (number, tenant), so an SQL engine makes many of
them in one statement, reading nothing. Any other upsert, and one whose conditions do not hold, goes
through `decide`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import inspect as mi

from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Write
from holdfast.store.sql.blind_patch import PATCHED_BODY_BYTES_MAX, PENDING_BYTES_MAX
from holdfast.store.sql.dialect import Dialect, quote
from holdfast.store.sql.tables import BODY, KEY, PATCH, VERSION
from holdfast.store.transforms import Increment

# Two numbers inside these bounds have a sum inside 64 bits.
NUMBER_MAX: Final = 2**62 - 1
_COLUMNS_MAX: Final = 1_000
# By schema and field: the column and its position among the schema's, None where the field is no counter.
_columns: dict[tuple[Schema[Any], str], tuple[Column, int] | None] = {}


def counting_column(write: Write, commit: Commit) -> Column | None:
    """Return the column that an upsert adds its document's number to, or None where it does more."""
    if write.kind != "upsert" or commit.restoring or commit.expiring:
        return None
    prepared, changes = write.prepared, write.changes
    if prepared is None or changes is None or len(changes) != 1:
        return None
    ((name, change),) = changes.items()
    if type(change) is not Increment or change.at_most is not None or change.at_least is not None:
        return None
    found = _column(write.schema, name)
    if found is None or type(change.by) is not int or not -NUMBER_MAX <= change.by <= NUMBER_MAX:
        return None
    column, position = found
    return column if prepared.values[position] == change.by else None


def _column(schema: Schema[Any], name: str) -> tuple[Column, int] | None:
    try:
        return _columns[schema, name]
    except KeyError:
        if len(_columns) >= _COLUMNS_MAX:
            _columns.clear()
        column = schema.column(name) if _countable(schema, name) else None
        found = None if column is None else (column, schema.columns.index(column))
        _columns[schema, name] = found
        return found


def _countable(schema: Schema[Any], name: str) -> bool:
    """Whether a document with another number in this field needs no look at its other fields."""
    if schema.append_only or schema.lifecycle or schema.claim or schema.declared.upgrades:
        return False
    if schema.declared.path_only or any(index.member for index in schema.indexes):
        return False
    in_rules = {word[5:] for word in schema.access.words if word.startswith("self:")}
    if name in {*schema.path.parameters, *schema.immutable, *in_rules}:
        return False
    field = schema.fields.get(name)
    return field is not None and field.type == mi.IntType()


def counting_clause(schema: Schema[Any], column: Column, dialect: Dialect) -> str:
    """Return what an INSERT into the table, as `t`, does where the row exists and its conditions hold."""
    number, stored, patch = quote(column.stored), f"t.{quote(column.stored)}", f"t.{quote(PATCH)}"
    total = f"{stored} + excluded.{number}"
    conditions = [
        f"{stored} BETWEEN -{NUMBER_MAX} AND {NUMBER_MAX}",
        f"{dialect.body_bytes(f't.{quote(BODY)}')} <= {PATCHED_BODY_BYTES_MAX}",
        f"({patch} IS NULL OR {dialect.body_bytes(patch)} <= {PENDING_BYTES_MAX})",
    ]
    if schema.tenant is not None:
        conditions.append(f"t.{quote(schema.tenant.stored)} = excluded.{quote(schema.tenant.stored)}")
    counted = f"CAST({_patch_text(column, f'({total})')} AS {dialect.body_type})"
    # Almost every patch has the number alone, and is replaced without being parsed.
    alone = f"{patch} IS NULL OR CAST({patch} AS TEXT) = {_patch_text(column, stored)}"
    merged = dialect.merged_patch(patch, counted, [column.stored])
    sets = [
        f"{quote(VERSION)} = excluded.{quote(VERSION)}",
        f"{number} = {total}",
        f"{quote(PATCH)} = CASE WHEN {alone} THEN {counted} ELSE {merged} END",
    ]
    return f"ON CONFLICT ({quote(KEY)}) DO UPDATE SET {', '.join(sets)} WHERE {' AND '.join(conditions)}"


def _patch_text(column: Column, number: str) -> str:
    name = msgspec.json.encode(column.stored).decode().replace("'", "''")
    return f"'{{{name}:' || {number} || '}}'"
