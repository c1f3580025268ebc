"""One collection's table: its statements, written once, and how rows become documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import force_setattr

from holdfast.clock import from_us, to_us
from holdfast.model.columns import Kind
from holdfast.model.index import ResolvedIndex
from holdfast.model.path import parent_of, split_key
from holdfast.model.schema import Prepared, Schema
from holdfast.model.sort_key import ordered
from holdfast.store.commit import Snapshot
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.fenced_patch import Group, merge_json
from holdfast.store.sql.overlay import conversion
from holdfast.store.sql.tables import (
    AMENDED,
    BODY,
    ITEM,
    KEY,
    PARENT,
    VERSION,
    items_table,
    plain_columns,
    scope_columns,
)
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.write_rules import Current

Row = tuple[Any, ...]

# SQLite's own number of a row: what is read is found again by it without asking for the key.
ROW: Final = "_rowid_"
ROW_AT: Final = 4
CLAIM_COLUMNS_AT: Final = 5
STATEMENT_BYTES_MAX: Final = 15_000

# How a column's value becomes the document's again, where it is not that already.
_UNBIND: Final[dict[Kind, Callable[[Any], Any]]] = {"time": from_us, "boolean": bool}


class SqliteTableMapping:
    """Knows a table by heart: what to select, insert, update, and how to read a row back."""

    def __init__(self, schema: Schema[Any], table: str) -> None:
        self.schema, self.table = schema, table
        self.columns = plain_columns(schema)
        self._positions = tuple(schema.columns.index(c) for c in self.columns)
        self._changing = tuple(p for p in self._positions if schema.columns[p].path not in schema.immutable)
        self._times = frozenset(p for p in self._positions if schema.columns[p].kind == "time")
        self._has_all = len(self.columns) == len(schema.columns)
        self._times_in_row = tuple(n for n, p in enumerate(self._positions, 2) if p in self._times)
        self._updates: dict[tuple[int, ...], str] = {}
        self.claim_columns = schema.claim_columns
        self.overlay = tuple((c.path, conversion(schema, c, _UNBIND)) for c in self.claim_columns)
        self.selected = (KEY, VERSION, BODY, AMENDED, ROW, *(c.stored for c in self.claim_columns))
        if schema.tenant is not None:
            self.selected = (*self.selected, schema.tenant.stored)
        shown = ", ".join(map(quote, self.selected))
        self.select_sql = f"SELECT {shown} FROM {quote(table)} WHERE {quote(KEY)} = ?"
        self.select_many_sql = (
            f"SELECT {shown} FROM {quote(table)} WHERE {quote(KEY)} IN (SELECT value FROM json_each(?))"
        )
        self.insert_sql = self._insert_sql()
        self._inserts: dict[int, str] = {}
        # As many as make a statement that apsw keeps prepared.
        self.rows_a_statement = STATEMENT_BYTES_MAX // (2 * len(self._names()) + 4)
        self.amend_sqls: dict[tuple[Group, int, bool], str] = {}
        self.upsert_sql = self.insert_sql + self._on_conflict()
        self.delete_sql = f"DELETE FROM {quote(table)} WHERE {quote(KEY)} = ?"
        self.lists = tuple(
            SqliteListIndexTable(schema, table, i) for i in schema.indexes if i.member is not None
        )

    def _names(self) -> list[str]:
        return [
            VERSION,
            *(c.stored for c in self.columns),
            BODY,
            *([PARENT] if self.schema.path.nested else []),
        ]

    def _insert_sql(self) -> str:
        names = [KEY, *self._names()]
        marks = ", ".join("?" * len(names))
        return f"INSERT INTO {quote(self.table)} ({', '.join(map(quote, names))}) VALUES ({marks})"

    def insert_many_sql(self, count: int) -> str:
        """The statement that inserts so many rows at once."""
        sql = self._inserts.get(count)
        if sql is None:
            head, _, row = self.insert_sql.partition(" VALUES ")
            row = row.replace(" ", "")
            sql = self._inserts[count] = f"{head} VALUES {','.join([row] * count)}"
        return sql

    def _on_conflict(self) -> str:
        sets = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in [*self._names(), AMENDED])
        return f" ON CONFLICT ({quote(KEY)}) DO UPDATE SET {sets}"

    def values(self, prepared: Prepared) -> list[Any]:
        return self._bound(prepared.values, self._positions)

    def _bound(self, values: Row, positions: tuple[int, ...]) -> list[Any]:
        times = self._times
        if times.isdisjoint(positions):
            return [values[p] for p in positions]
        return [DIALECT.bind(values[p]) if p in times else values[p] for p in positions]

    def inserted(self, *prepared: Prepared, version: int) -> list[Any]:
        """What an insert of these documents binds, row after row."""
        bound: list[Any] = []
        for one in prepared:
            values = one.values if self._has_all else [one.values[p] for p in self._positions]
            bound += (one.key, version, *values, one.body.decode())
            if self.schema.path.nested:
                bound.append(parent_of(one.key))
        width = len(bound) // len(prepared)
        for place in self._times_in_row:
            bound[place::width] = [time and to_us(time) for time in bound[place::width]]
        return bound

    def update(self, prepared: Prepared, version: int, *, before: Current | None) -> tuple[str, Row]:
        """The statement that writes what differs: SQLite writes every index whose column is named in one."""
        assert isinstance(before, SqliteStoredRow)
        new, changed = prepared.values, self._changing
        # An upgraded document may differ from its columns, which were written before the upgrade.
        if not self.schema.declared.upgrades:
            old = self.schema.values(before.document())
            changed = tuple([p for p in changed if old[p] != new[p]])
        sql = self._updates.get(changed) or self._update_sql(changed)
        return sql, (version, *self._bound(new, changed), prepared.body.decode(), before.row)

    def _update_sql(self, changed: tuple[int, ...]) -> str:
        names = [VERSION, *(self.schema.columns[p].stored for p in changed), BODY]
        sets = ", ".join(f"{quote(n)} = ?" for n in names)
        sql = f"UPDATE {quote(self.table)} SET {sets}, {quote(AMENDED)} = NULL WHERE {ROW} = ?"
        self._updates[changed] = sql
        return sql

    def decode(self, row: Row) -> Any:
        """The document as its JSON says, which claims don't touch."""
        decode, body = self.schema.decode, merge_json(row[2], row[3])
        return self.schema.load(body, split_key(row[0])) if decode is None else decode(body)

    def load(self, row: Row) -> Any:
        document = self.decode(row)
        for position, (path, convert) in enumerate(self.overlay, CLAIM_COLUMNS_AT):
            force_setattr(document, path, row[position] if convert is None else convert(row[position]))
        return document

    def snapshot(self, row: Row) -> Snapshot[Any]:
        return Snapshot(self.load(row), row[1], row[0])


class SqliteStoredRow:
    """A row as `decide` wants to see it; decoded only when asked."""

    __slots__ = ("_document", "_mapping", "_row")

    def __init__(self, mapping: SqliteTableMapping, row: Row) -> None:
        self._mapping, self._row = mapping, row
        self._document: Any = None

    @property
    def version(self) -> int:
        return int(self._row[1])

    @property
    def tenant(self) -> str | None:
        return self._row[-1] if self._mapping.schema.tenant is not None else None

    @property
    def row(self) -> int:
        return int(self._row[ROW_AT])

    def document(self) -> Any:
        if self._document is None:
            self._document = self._mapping.load(self._row)
        return self._document


class SqliteListIndexTable:
    """The table of one list index: a row per item, rewritten with its document."""

    def __init__(self, schema: Schema[Any], table: str, index: ResolvedIndex) -> None:
        assert index.member is not None
        self._schema, self._member = schema, index.member.column
        self._others = [f.column for f in index.fields if not f.member]
        self._scope = scope_columns(schema, index)
        self.table = items_table(table, index, DIALECT)
        names = [KEY, ITEM, *self._scope, *(c.stored for c in self._others)]
        marks = ", ".join("?" * len(names))
        self.insert_sql = f"INSERT INTO {quote(self.table)} ({', '.join(map(quote, names))}) VALUES ({marks})"
        self.delete_sql = f"DELETE FROM {quote(self.table)} WHERE {quote(KEY)} = ?"
        self.carry_sql = self._carry_sql(table)

    def _carry_sql(self, table: str) -> str:
        """The statement that repeats here what a claim changed in the main table; empty where nothing is."""
        claimed = [quote(c.stored) for c in self._others if c in self._schema.claim_columns]
        sets = ", ".join(f"{name} = t.{name}" for name in claimed)
        return sets and (
            f"UPDATE {quote(self.table)} AS i SET {sets} FROM {quote(table)} AS t"
            f" WHERE t.{ROW} IN (SELECT value FROM json_each(?)) AND i.{quote(KEY)} = t.{quote(KEY)}"
        )

    def rows(self, prepared: Prepared) -> Sequence[Row]:
        document = self._schema.document_of(prepared)
        items = self._member.read(document)
        if not isinstance(items, (list, tuple)):
            return []
        scope = [parent_of(prepared.key) if name == PARENT else prepared.tenant for name in self._scope]
        others = [DIALECT.bind(c.value(document)) for c in self._others]
        distinct = dict.fromkeys(ordered(item, self._member.stored) for item in items)
        return [(prepared.key, item, *scope, *others) for item in distinct]
