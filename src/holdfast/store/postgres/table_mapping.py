"""One collection's tables: their columns, and how documents become rows and rows documents."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import force_setattr

from holdfast.model.index import ResolvedIndex
from holdfast.model.path import parent_of, split_key
from holdfast.model.schema import Prepared, Schema
from holdfast.model.sort_key import ordered
from holdfast.store.commit import Snapshot
from holdfast.store.postgres.dialect import DIALECT, array_of
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.fenced_patch import merge_json
from holdfast.store.sql.overlay import conversion
from holdfast.store.sql.tables import (
    AMENDED,
    BODY,
    ITEM,
    KEY,
    PARENT,
    VERSION,
    Table,
    items_table,
    plain_columns,
    scope_columns,
    short_name,
    tables_for,
)

Row = Sequence[Any]
CLAIM_COLUMNS_AT: Final = 4


def table_name(name: str) -> str:
    return short_name(name, DIALECT.names_bytes_max)


class PostgresTableMapping:
    """Knows a table by heart. A row read back begins with key, version, body and what amends it."""

    def __init__(self, schema: Schema[Any], table: str) -> None:
        self.schema, self.table = schema, table_name(table)
        self.columns = plain_columns(schema)
        self.claim_columns = schema.claim_columns
        self.overlay = tuple((c.path, conversion(schema, c, {})) for c in self.claim_columns)
        self.lists = tuple(
            PostgresListIndexTable(schema, self.table, i) for i in schema.indexes if i.member is not None
        )
        self.selected = (KEY, VERSION, BODY, AMENDED, *(c.stored for c in self.claim_columns))
        if schema.tenant is not None:
            self.selected = (*self.selected, schema.tenant.stored)
        shown = ", ".join(map(quote, self.selected))
        self.get_sql = f"SELECT {shown} FROM {quote(self.table)} WHERE {quote(KEY)} = $1"
        self.get_many_sql = f"SELECT {shown} FROM {quote(self.table)} WHERE {quote(KEY)} = ANY($1::text[])"
        self.lock_sql = f"{self.get_many_sql} ORDER BY {quote(KEY)} FOR UPDATE"
        self.names = (KEY, VERSION, *([PARENT] if schema.path.nested else []),
                      *(c.stored for c in self.columns), BODY)  # fmt: skip
        self.arrays = ("text[]", "bigint[]", *(["text[]"] if schema.path.nested else []),
                       *(array_of(c.kind) for c in self.columns), "json[]")  # fmt: skip
        self._values = self._chooser()

    @property
    def tables(self) -> list[Table]:
        return tables_for(self.schema, self.table, DIALECT)

    def _chooser(self) -> Any:
        positions = [self.schema.columns.index(c) for c in self.columns]
        if len(positions) == len(self.schema.columns):
            return tuple
        if len(positions) == 1:
            return lambda values: (values[positions[0]],)
        return itemgetter(*positions) if positions else lambda values: ()

    def row(self, prepared: Prepared, version: int) -> tuple[Any, ...]:
        values = self._values(prepared.values)
        if self.schema.path.nested:
            return (prepared.key, version, parent_of(prepared.key), *values, prepared.body)
        return (prepared.key, version, *values, prepared.body)

    def load(self, row: Row) -> Any:
        decode, body = self.schema.decode, merge_json(row[2], row[3])
        document = self.schema.load(body, split_key(row[0])) if decode is None else decode(body)
        for position, (path, convert) in enumerate(self.overlay, CLAIM_COLUMNS_AT):
            force_setattr(document, path, row[position] if convert is None else convert(row[position]))
        return document

    def snapshot(self, row: Row) -> Snapshot[Any]:
        return Snapshot(self.load(row), row[1], row[0])


class PostgresStoredRow:
    """A row as `decide` wants to see it; decoded only when asked."""

    __slots__ = ("_document", "_mapping", "_row")

    def __init__(self, mapping: PostgresTableMapping, row: Row) -> None:
        self._mapping, self._row = mapping, row
        self._document: Any = None

    @property
    def version(self) -> int:
        return int(self._row[1])

    @property
    def tenant(self) -> str | None:
        return self._row[len(self._row) - 1] if self._mapping.schema.tenant is not None else None

    def document(self) -> Any:
        if self._document is None:
            self._document = self._mapping.load(self._row)
        return self._document


class PostgresListIndexTable:
    """The table of one list index: a row per distinct item."""

    def __init__(self, schema: Schema[Any], table: str, index: ResolvedIndex) -> None:
        assert index.member is not None
        self._member = index.member.column
        self._others = [f.column for f in index.fields if not f.member]
        self._scope = scope_columns(schema, index)
        self.table = items_table(table, index, DIALECT)
        self.names = (KEY, ITEM, *self._scope, *(c.stored for c in self._others))
        self.arrays = ("text[]", "bytea[]", *("text[]" for _ in self._scope),
                       *(array_of(c.kind) for c in self._others))  # fmt: skip
        self.claim_columns = tuple(c for c in schema.claim_columns if c in self._others)

    def items(self, document: Any) -> list[bytes]:
        held = self._member.read(document)
        if not isinstance(held, (list, tuple)):
            return []
        return list(dict.fromkeys(ordered(item, self._member.stored) for item in held))

    def rows(self, key: str, tenant: str | None, *, document: Any) -> list[tuple[Any, ...]]:
        scope = [parent_of(key) if name == PARENT else tenant for name in self._scope]
        others = [c.value(document) for c in self._others]
        return [(key, item, *scope, *others) for item in self.items(document)]
