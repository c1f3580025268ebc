"""The tables and indexes a declaration becomes."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.model.columns import Column
from holdfast.model.index import IndexField, ResolvedIndex
from holdfast.model.schema import Schema
from holdfast.store.sql.dialect import Dialect, quote

KEY, VERSION, BODY, PATCH = "_key", "_version", "_body", "_patch"
PARENT, ITEM = "_parent", "_item"


class TableColumn(msgspec.Struct, frozen=True):
    """A column; `derived` is its definition where the database computes it from the body."""

    name: str
    type: str
    derived: str = ""

    @property
    def definition(self) -> str:
        return f"{self.type} {self.derived}".rstrip()


class TableIndex(msgspec.Struct, frozen=True):
    name: str
    table: str
    terms: tuple[str, ...]
    where: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table as declared. `items_of` names the index a list's table serves."""

    name: str
    columns: tuple[TableColumn, ...]
    primary: tuple[str, ...]
    indexes: tuple[TableIndex, ...]
    items_of: str = ""


def short_name(text: str, bytes_max: int) -> str:
    """Return a name that fits, made unique by a digest where it had to be cut."""
    if len(text.encode()) <= bytes_max:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    return text.encode()[: bytes_max - 11].decode(errors="ignore") + "_" + digest


def index_name(table: str, index: ResolvedIndex, dialect: Dialect) -> str:
    return short_name(f"{table}__{index.name}", dialect.names_bytes_max)


def items_table(table: str, index: ResolvedIndex, dialect: Dialect) -> str:
    return short_name(f"{table}__{index.name}__items", dialect.names_bytes_max)


def scope_columns(schema: Schema[Any], index: ResolvedIndex) -> list[str]:
    """Return the columns before an index's own: the tenant or the parent."""
    if index.across == "tenants":
        return []
    if schema.path.nested and index.across == "nothing":
        return [PARENT]
    return [schema.tenant.stored] if schema.tenant else []


def plain_columns(schema: Schema[Any]) -> tuple[Column, ...]:
    """Return the columns of the main table: list fields have tables of their own."""
    return tuple(c for c in schema.columns if c.kind != "list")


def tables_for(schema: Schema[Any], name: str, dialect: Dialect) -> list[Table]:
    """Return the main table of a collection, then one for each list index."""
    plain = [i for i in schema.indexes if i.member is None]
    lists = [i for i in schema.indexes if i.member is not None]
    main = Table(name, _main_columns(schema, dialect), (KEY,), tuple(_indexes(schema, name, plain, dialect)))
    return [main, *(_items(schema, name, index, dialect) for index in lists)]


def _main_columns(schema: Schema[Any], dialect: Dialect) -> tuple[TableColumn, ...]:
    columns = [
        TableColumn(KEY, f"{dialect.key_type} NOT NULL"),
        TableColumn(VERSION, f"{dialect.version_type} NOT NULL"),
    ]
    if schema.path.nested:
        columns.append(TableColumn(PARENT, f"{dialect.key_type} NOT NULL"))
    columns += [TableColumn(c.stored, dialect.types[c.kind]) for c in plain_columns(schema)]
    columns += [TableColumn(BODY, f"{dialect.body_type} NOT NULL"), TableColumn(PATCH, dialect.body_type)]
    for name, kind in schema.readable.items():
        columns.append(TableColumn(name, *dialect.derived(name, kind)))
    return tuple(columns)


def _indexes(
    schema: Schema[Any], table: str, plain: list[ResolvedIndex], dialect: Dialect
) -> list[TableIndex]:
    found = []
    for index in plain:
        name, terms = index_name(table, index, dialect), _terms(schema, index, index.fields, dialect)
        found.append(TableIndex(name, table, terms, index_condition(index, name, dialect=dialect)))
    return found + _claim_indexes(schema, table, dialect)


def index_condition(index: ResolvedIndex, name: str, *, dialect: Dialect, alias: str = "") -> str:
    """Return the condition on the rows of a declared index, which its queries repeat; empty for all rows."""
    mark = dialect.mark(f"{alias}{quote(KEY)}", name)
    if index.sparse is None:
        return mark
    column = f"{alias}{quote(index.sparse.stored)}"
    return _joined(f"{column} <> ''" if index.sparse.kind == "text" else f"{column} IS NOT NULL", mark)


def _joined(condition: str, mark: str) -> str:
    return f"{condition} AND {mark}" if mark else condition


def _terms(
    schema: Schema[Any], index: ResolvedIndex, fields: tuple[IndexField, ...], dialect: Dialect
) -> tuple[str, ...]:
    terms = [quote(name) for name in scope_columns(schema, index)]
    terms += [dialect.ordered(quote(ITEM if f.member else f.column.stored), f.descending) for f in fields]
    return (*terms, dialect.ordered(dialect.tie(quote(KEY)), index.key_descending))


def claim_index(table: str, dialect: Dialect, *, lanes: bool) -> str:
    return short_name(f"{table}__due_by_lane" if lanes else f"{table}__due", dialect.names_bytes_max)


def _claim_indexes(schema: Schema[Any], table: str, dialect: Dialect) -> list[TableIndex]:
    """Return partial indexes: a finished document costs a claim nothing."""
    if schema.claim is None:
        return []
    due = quote(schema.claim_columns[0].stored)
    name = claim_index(table, dialect, lanes=False)
    found = [TableIndex(name, table, (due, quote(KEY)), claimable(due, name, dialect))]
    lane = schema.column(schema.claim.lane) if schema.claim.lane else None
    if lane is not None:
        terms = (quote(lane.stored), due, quote(KEY))
        name = claim_index(table, dialect, lanes=True)
        found.append(TableIndex(name, table, terms, claimable(due, name, dialect)))
    return found


def claimable(due: str, index: str, dialect: Dialect) -> str:
    """Return the condition of a claim's partial index: the document is due at some time."""
    return _joined(f"{due} IS NOT NULL", dialect.mark(quote(KEY), index))


def _items(schema: Schema[Any], table: str, index: ResolvedIndex, dialect: Dialect) -> Table:
    name = items_table(table, index, dialect)
    columns = [
        TableColumn(KEY, f"{dialect.key_type} NOT NULL"),
        TableColumn(ITEM, f"{dialect.types['open']} NOT NULL"),
    ]
    columns += [TableColumn(c, f"{dialect.key_type} NOT NULL") for c in scope_columns(schema, index)]
    columns += [
        TableColumn(f.column.stored, dialect.types[f.column.kind]) for f in index.fields if not f.member
    ]
    own_name, terms = index_name(table, index, dialect), _terms(schema, index, index.fields, dialect)
    own = TableIndex(own_name, name, terms, index_condition(index, own_name, dialect=dialect))
    return Table(name, tuple(columns), (KEY, ITEM), (own,), items_of=index.name)


def create_table(table: Table) -> str:
    lines = [f"  {quote(c.name)} {c.definition}" for c in table.columns]
    lines.append(f"  PRIMARY KEY ({', '.join(quote(name) for name in table.primary)})")
    return f"CREATE TABLE IF NOT EXISTS {quote(table.name)} (\n" + ",\n".join(lines) + "\n)"


def create_index(index: TableIndex, how: str = "") -> str:
    terms = ", ".join(index.terms)
    text = f"CREATE INDEX {how}IF NOT EXISTS {quote(index.name)} ON {quote(index.table)} ({terms})"
    return f"{text} WHERE {index.where}" if index.where else text
