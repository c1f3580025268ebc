"""One collection's statements in SQLite's dialect, written once and kept prepared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

from holdfast.clock import to_us
from holdfast.model.columns import Column
from holdfast.model.index import ResolvedIndex
from holdfast.model.path import parent_of
from holdfast.model.schema import Prepared, Schema
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup, patch_conditions
from holdfast.store.sql.counting_upsert import counting_clause
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.table_mapping import ListIndexTable, StoredRow, TableMapping
from holdfast.store.sql.tables import BODY, KEY, PATCH, VERSION
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.write_rules import Current

# What was read is found again by SQLite's own row number, without looking up the key.
ROW_ID: Final = DIALECT.row_id
STATEMENT_BYTES_MAX: Final = 15_000  # longer statements are not kept prepared by apsw
_STEP: Final = 16
_PATCHES_MAX: Final = 1_000
Conflict = Literal["ABORT", "ROLLBACK", "IGNORE"]
T = TypeVar("T")


def statement_slices(items: Sequence[T], rows_max: int) -> Iterator[Sequence[T]]:
    """Yield rows by statements: few to run for any number, and few to keep prepared.

    A statement takes a power of two from 128 on, below that a multiple of the step, or what is left over.
    """
    start = 0
    while (left := len(items) - start) > 0:
        most = min(left, rows_max)
        size = 1 << (most.bit_length() - 1) if most >= 8 * _STEP else most - most % _STEP or most
        yield items[start : start + size]
        start += size


def _stored_times(times: Sequence[datetime | None]) -> list[int | None]:
    """Return times as they are stored; one that neighbours share, as in a batch, is converted once."""
    stored: list[int | None] = []
    last, last_us = None, None
    for time in times:
        if time != last:
            last, last_us = time, None if time is None else to_us(time)
        stored.append(last_us)
    return stored


class SqliteTable(TableMapping):
    """A table mapping with the statements that select, insert, update and delete."""

    def __init__(self, schema: Schema[Any], table: str) -> None:
        super().__init__(schema, table, DIALECT)
        self._nested = schema.path.nested
        self._mutable = tuple(p for p in self.positions if schema.columns[p].path not in schema.immutable)
        self._times = frozenset(p for p in self.positions if schema.columns[p].kind == "time")
        first = self.names.index(self.columns[0].stored) if self.columns else 0
        self._times_in_row = tuple(n for n, p in enumerate(self.positions, first) if p in self._times)
        shown, name = ", ".join(map(quote, self.selected)), quote(self.table)
        self.select_sql = f"SELECT {shown} FROM {name} WHERE {quote(KEY)} = ?"
        self.select_many_sql = (
            f"SELECT {shown} FROM {name} WHERE {quote(KEY)} IN (SELECT value FROM json_each(?))"
        )
        marks = ",".join("?" * len(self.names))
        self._insert_head = f"INSERT INTO {name} AS t ({', '.join(map(quote, self.names))}) VALUES "
        self._insert_row = f"({marks})"
        self.insert_sql = self._insert_head + self._insert_row
        sets = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in (*self.names[1:], PATCH))
        self.upsert_sql = f"{self.insert_sql} ON CONFLICT ({quote(KEY)}) DO UPDATE SET {sets}"
        self.delete_sql = f"DELETE FROM {name} WHERE {quote(KEY)} = ?"
        self.rows_per_statement = STATEMENT_BYTES_MAX // (2 * len(self.names) + 2)
        self._inserts: dict[tuple[int, Conflict], str] = {}
        self._updates: dict[tuple[int, ...], str] = {}
        self._patches: dict[tuple[PatchGroup, int, bool], str] = {}
        self._counts: dict[tuple[Column, int, bool], str] = {}
        self.lists = tuple(SqliteListTable(self, i) for i in schema.indexes if i.member is not None)

    def insert_many_sql(self, count: int, *, on_conflict: Conflict = "ABORT") -> str:
        """Return the statement that inserts so many rows.

        To undo it alone, as `ABORT` does, SQLite keeps a copy of each page that the statement changes. With
        `ROLLBACK` a taken id ends the transaction, with `IGNORE` it leaves its row out.
        """
        sql = self._inserts.get((count, on_conflict))
        if sql is None:
            sql = self._insert_head + ",".join([self._insert_row] * count)
            sql = self._inserts[count, on_conflict] = sql.replace("INSERT", f"INSERT OR {on_conflict}", 1)
        return sql

    def count_many_sql(self, column: Column, count: int, *, rolls_back: bool = False) -> str:
        """Return the statement that makes so many counting upserts."""
        sql = self._counts.get((column, count, rolls_back))
        if sql is None:
            insert = self.insert_many_sql(count, on_conflict="ROLLBACK" if rolls_back else "ABORT")
            sql = f"{insert} {counting_clause(self.schema, column, DIALECT)}"
            self._counts[column, count, rolls_back] = sql
        return sql

    def bind(self, values: tuple[Any, ...], positions: tuple[int, ...]) -> list[Any]:
        times = self._times
        if times.isdisjoint(positions):
            return [values[p] for p in positions]
        return [DIALECT.bind(values[p]) if p in times else values[p] for p in positions]

    def inserted(self, *prepared: Prepared, version: int) -> list[Any]:
        """Return what an insert of these documents binds, row after row."""
        bound: list[Any] = []
        choose, nested = self.choose, self._nested
        for one in prepared:
            if nested:
                bound += (one.key, version, parent_of(one.key), *choose(one.values), one.body.decode())
            else:
                bound += (one.key, version, *choose(one.values), one.body.decode())
        width = len(self.names)
        for position in self._times_in_row:
            bound[position::width] = _stored_times(bound[position::width])
        return bound

    def keys_of(self, documents: Sequence[Prepared]) -> list[list[str]]:
        """Return the columns that make up the key of a row."""
        keys = [one.key for one in documents]
        return [keys, [parent_of(key) for key in keys]] if self._nested else [keys]

    def bodies_of(self, documents: Sequence[Prepared]) -> list[str]:
        return [one.body.decode() for one in documents]

    def bound_columns(self, documents: Sequence[Prepared]) -> list[Sequence[Any]]:
        """Return the values of each column, of one document after the other."""
        columns: list[Sequence[Any]] = list(zip(*[self.choose(one.values) for one in documents], strict=True))
        for n, position in enumerate(self.positions):
            if position in self._times:
                columns[n] = _stored_times(columns[n])
        return columns

    def patch_columns(self, patches: Sequence[BlindPatch]) -> list[Sequence[Any]]:
        """Return what patches of one group bind, by columns: key, JSON, columns' values, guard's number."""
        bound: list[Sequence[Any]] = [[one.key for one in patches], [one.body.decode() for one in patches]]
        values = zip(*[one.values for one in patches], strict=True)
        for column, stored in zip(patches[0].group.columns, values, strict=True):
            bound.append(_stored_times(stored) if column.kind == "time" else stored)
        bound += zip(*[one.expected for one in patches], strict=True)
        return bound

    def update(self, prepared: Prepared, version: int, *, before: Current | None) -> tuple[str, list[Any]]:
        """Return the statement that writes what differs: naming a column makes SQLite write its indexes."""
        assert isinstance(before, StoredRow)
        new, changed = prepared.values, self._mutable
        # An upgraded document may differ from its columns, which were written before the upgrade.
        if not self.schema.declared.upgrades:
            old = self.schema.values(before.document())
            changed = tuple([p for p in changed if old[p] != new[p]])
        sql = self._updates.get(changed)
        if sql is None:
            names = [VERSION, *(self.schema.columns[p].stored for p in changed), BODY]
            sets = ", ".join(f"{quote(n)} = ?" for n in names)
            sql = f"UPDATE {quote(self.table)} SET {sets}, {quote(PATCH)} = NULL WHERE {ROW_ID} = ?"
            self._updates[changed] = sql
        return sql, [version, *self.bind(new, changed), prepared.body.decode(), before.row[self.row_id_at]]

    def patch(
        self, patches: Sequence[BlindPatch], version: int, *, tenant: str | None
    ) -> tuple[str, list[Any]]:
        """Return the statement that makes blind patches of one group, where the tenant is this one."""
        group, tenanted = patches[0].group, tenant is not None and self.schema.tenant is not None
        shape = (group, len(patches), tenanted)
        sql = self._patches.get(shape)
        if sql is None:
            if len(self._patches) >= _PATCHES_MAX:
                self._patches.clear()
            sql = self._patches[shape] = self._patch_sql(group, len(patches), tenanted)
        values: list[Any] = [version]
        for one in patches:
            values += (one.key, one.body.decode(), *[DIALECT.bind(v) for v in one.values], *one.expected)
        return sql, [*values, tenant] if tenanted else values

    def _patch_sql(self, group: PatchGroup, count: int, tenanted: bool) -> str:
        """Return the statement; it binds the version, each patch's values, and the tenant."""
        width = 2 + len(group.columns) + (group.guard is not None)
        # A single patch needs no table of values, which takes SQLite as long as the update itself.
        given = [f"u.column{n}" if count > 1 else f"?{n + 1}" for n in range(1, width + 1)]
        row = f"({', '.join('?' * width)})"
        source = f" FROM (VALUES {', '.join([row] * count)}) AS u" if count > 1 else ""
        tenant = f"{{}} = ?{width * count + 2}" if tenanted else ""
        return self.patch_row_sql(group, given, version="?1", tenant=tenant, source=source)

    def patch_row_sql(
        self, group: PatchGroup, given: Sequence[str], *, version: str, tenant: str = "", source: str = ""
    ) -> str:
        """Return the update that makes a patch of what is given: key, JSON, columns' values, guard's number.

        `tenant` is a condition with a place for the tenant's column.
        """
        table = quote(self.table)
        patch = DIALECT.merged_patch(f"{table}.{quote(PATCH)}", given[1], group.names)
        sets = [f"{quote(VERSION)} = {version}", f"{quote(PATCH)} = {patch}"]
        sets += [f"{quote(c.stored)} = {value}" for c, value in zip(group.columns, given[2:], strict=False)]
        where = [f"{table}.{quote(KEY)} = {given[0]}", *patch_conditions(group, table, DIALECT)]
        if group.guard is not None:
            where.append(f"{table}.{quote(group.guard)} = {given[2 + len(group.columns)]}")
        if tenant and self.schema.tenant is not None:
            where.append(tenant.format(f"{table}.{quote(self.schema.tenant.stored)}"))
        return f"UPDATE {table} SET {', '.join(sets)}{source} WHERE {' AND '.join(where)}"


class SqliteListTable(ListIndexTable):
    """A list index's table with its statements; its rows are rewritten with their document."""

    def __init__(self, mapping: SqliteTable, index: ResolvedIndex) -> None:
        super().__init__(mapping, index)
        marks = ", ".join("?" * len(self.names))
        self.insert_sql = (
            f"INSERT INTO {quote(self.table)} ({', '.join(map(quote, self.names))}) VALUES ({marks})"
        )
        self.delete_sql = f"DELETE FROM {quote(self.table)} WHERE {quote(KEY)} = ?"
        sets = ", ".join(f"{quote(c.stored)} = t.{quote(c.stored)}" for c in self.claim_columns)
        # Repeats here what a claim changed in the main table.
        self.claim_sql = sets and (
            f"UPDATE {quote(self.table)} AS i SET {sets} FROM {quote(mapping.table)} AS t"
            f" WHERE t.{ROW_ID} IN (SELECT value FROM json_each(?)) AND i.{quote(KEY)} = t.{quote(KEY)}"
        )
