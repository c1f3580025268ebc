"""How documents become rows and rows documents; the engines add their statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

from msgspec import UNSET
from msgspec import inspect as mi
from msgspec.structs import force_setattr

from holdfast.model.columns import Column
from holdfast.model.index import ResolvedIndex
from holdfast.model.path import parent_of, split_key
from holdfast.model.schema import Schema
from holdfast.model.sort_key import NULL, ordered
from holdfast.store.catalog import VIEW_PREFIX
from holdfast.store.commit import Snapshot
from holdfast.store.sql.dialect import Dialect
from holdfast.store.sql.tables import (
    BODY,
    ITEM,
    KEY,
    PARENT,
    PATCH,
    VERSION,
    Table,
    items_table,
    plain_columns,
    scope_columns,
    short_name,
    tables_for,
)
from holdfast.store.sql.views import View, view_of

Row = Sequence[Any]
Convert = Callable[[Any], Any]
# Where a selected row has its first claimed column; key, version, body and patch are before it.
CLAIM_COLUMNS_AT: Final = 4


class TableMapping:
    """One collection's table.

    `loaded` names the columns that documents are made of, `selected` those that a write reads as well, and
    `names` those of an insert.
    """

    def __init__(self, schema: Schema[Any], table: str, dialect: Dialect) -> None:
        self.schema, self.dialect = schema, dialect
        self.table = short_name(table, dialect.names_bytes_max)
        self.columns = plain_columns(schema)
        self.positions = tuple(schema.columns.index(c) for c in self.columns)
        self.choose = _chooser(self.positions, len(schema.columns))
        self.claim_columns = schema.claim_columns
        # Claims change columns only, so a claimed column wins over the JSON.
        self.overlay = tuple((c.path, _conversion(schema, c, dialect)) for c in self.claim_columns)
        self.tenant_at = CLAIM_COLUMNS_AT + len(self.claim_columns)
        tenant = [schema.tenant.stored] if schema.tenant else []
        row_id = [dialect.row_id] if dialect.row_id else []
        self.row_id_at = self.tenant_at + len(tenant)
        self.loaded = (KEY, VERSION, BODY, PATCH, *(c.stored for c in self.claim_columns))
        self.selected = (*self.loaded, *tenant, *row_id)
        parent = [PARENT] if schema.path.nested else []
        self.names = (KEY, VERSION, *parent, *(c.stored for c in self.columns), BODY)

    @property
    def tables(self) -> list[Table]:
        return tables_for(self.schema, self.table, self.dialect)

    @cached_property
    def view(self) -> View:
        name = short_name(f"{VIEW_PREFIX}{self.table}", self.dialect.names_bytes_max)
        return view_of(self.schema, name, self.table)

    def decode(self, row: Row) -> Any:
        """Return the document for a caller that sets the claimed fields itself."""
        if self.schema.decode is None:
            return self.load(row)
        return self.schema.decode(row[2] if row[3] is None else merge_json(row[2], row[3]))

    def load(self, row: Row) -> Any:
        body = row[2] if row[3] is None else merge_json(row[2], row[3])
        decode = self.schema.decode
        if decode is None:
            return self.load_versioned(row, body, self.claimed(row))
        document = decode(body)
        for position, (path, convert) in enumerate(self.overlay, CLAIM_COLUMNS_AT):
            force_setattr(document, path, row[position] if convert is None else convert(row[position]))
        return document

    def claimed(self, row: Row) -> dict[str, Any]:
        """Return what claims changed of a row, by stored names."""
        columns = zip(self.claim_columns, self.overlay, row[CLAIM_COLUMNS_AT:], strict=False)
        return {c.stored: value if convert is None else convert(value) for c, (_, convert), value in columns}

    def load_versioned(self, row: Row, body: Any, claimed: Mapping[str, Any]) -> Any:
        """Return the document with what claims changed; an upgrade sees it, too."""
        ids = split_key(row[0])
        if self.schema.is_outdated(body):
            present = {name: value for name, value in claimed.items() if value is not UNSET}
            return self.schema.load(body, ids, present)
        document = self.schema.load(body, ids)
        for column in self.claim_columns:
            if column.stored in claimed:
                force_setattr(document, column.path, claimed[column.stored])
        return document

    def snapshot(self, row: Row) -> Snapshot[Any]:
        decode = self.schema.decode
        if decode is None or self.overlay or row[3] is not None:
            return Snapshot(self.load(row), row[1], row[0])
        return Snapshot(decode(row[2]), row[1], row[0])

    def snapshots(self, rows: Iterable[Row]) -> list[Snapshot[Any]]:
        decode, load = self.schema.decode, self.load
        if decode is None or self.overlay:
            return [Snapshot(load(row), row[1], row[0]) for row in rows]
        return [
            Snapshot(decode(body if patch is None else merge_json(body, patch)), version, key)
            for key, version, body, patch in rows
        ]


class StoredRow:
    """A row as `decide` sees it; decoded only when asked."""

    __slots__ = ("_document", "_mapping", "row")

    def __init__(self, mapping: TableMapping, row: Row) -> None:
        self._mapping, self.row = mapping, row
        self._document: Any = None

    @property
    def version(self) -> int:
        return int(self.row[1])

    @property
    def tenant(self) -> str | None:
        return self.row[self._mapping.tenant_at] if self._mapping.schema.tenant is not None else None

    def document(self) -> Any:
        if self._document is None:
            self._document = self._mapping.load(self.row)
        return self._document


class ListIndexTable:
    """The table of one list index: a row per distinct item."""

    def __init__(self, mapping: TableMapping, index: ResolvedIndex) -> None:
        assert index.member is not None
        schema, self._bind = mapping.schema, mapping.dialect.bind
        self._member = index.member.column
        self.others = [f.column for f in index.fields if not f.member]
        self.scope = scope_columns(schema, index)
        self.table = items_table(mapping.table, index, mapping.dialect)
        self.names = (KEY, ITEM, *self.scope, *(c.stored for c in self.others))
        self.claim_columns = tuple(c for c in schema.claim_columns if c in self.others)

    def items(self, document: Any) -> list[bytes]:
        items = self._member.read(document)
        if not isinstance(items, (list, tuple)):
            return []
        return list(dict.fromkeys(ordered(item, self._member.stored) for item in items))

    def rows(self, key: str, tenant: str | None, *, document: Any) -> list[tuple[Any, ...]]:
        scope = [parent_of(key) if name == PARENT else tenant for name in self.scope]
        others = [self._bind(c.value(document)) for c in self.others]
        return [(key, item, *scope, *others) for item in self.items(document)]


def merge_json(body: Any, patch: Any) -> Any:
    """Return a document's JSON with a patch appended: of a repeated name, readers take the last."""
    if len(body) <= 2:
        return patch
    return f"{body[:-1]},{patch[1:]}" if isinstance(body, str) else b",".join((body[:-1], patch[1:]))


def _chooser(positions: tuple[int, ...], count: int) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return what picks the main table's values out of all columns' values."""
    if len(positions) == count:
        return tuple
    if len(positions) == 1:
        return lambda values: (values[positions[0]],)
    return itemgetter(*positions) if positions else lambda values: ()


def _conversion(schema: Schema[Any], column: Column, dialect: Dialect) -> Convert | None:
    """Return what makes a claimed column's value the document's; None where it already is."""
    if column.kind == "open":
        return _from_ordered
    convert = _enum(schema.fields[column.path].type) or dialect.unbind.get(column.kind)
    return None if convert is None else lambda value: None if value is None else convert(value)


def _from_ordered(value: bytes | None) -> Any:
    return UNSET if value is None else None if value == NULL else value[1:].decode()


def _enum(kind: mi.Type) -> Convert | None:
    if isinstance(kind, mi.Metadata):
        return _enum(kind.type)
    if isinstance(kind, mi.UnionType):
        return next((enum for enum in map(_enum, kind.types) if enum), None)
    return kind.cls if isinstance(kind, mi.EnumType) else None
