"""One batch as one statement: it costs one round trip and is applied as a whole or not at all.

Every batch also writes its number into `_holdfast_batches`. When the connection breaks before the response
came, the same number is written again from a new connection: if that succeeds, the batch was not applied and
never can be (its own mark would clash); if not, it was applied, and `lost` names the ids that were taken.
A batch of one row that finds its id taken, or its conditions unmet, changes nothing and leaves no mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, Literal

from holdfast.model.columns import Column
from holdfast.model.index import ResolvedIndex
from holdfast.model.path import parent_of
from holdfast.model.schema import Prepared, Schema
from holdfast.store.claimable import is_claimable
from holdfast.store.postgres.column_binding import Binding, RowSource, bind_columns
from holdfast.store.postgres.dialect import DIALECT, array_of
from holdfast.store.sql.blind_patch import PatchGroup, patch_conditions
from holdfast.store.sql.counting_upsert import counting_clause
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.table_mapping import ListIndexTable, TableMapping
from holdfast.store.sql.tables import BODY, ITEM, KEY, PARENT, PATCH, VERSION

# try: an insert that may fail by itself; insert: one that may not; item, drop: rows of a list's table.
# patch: an update that is made only where its conditions hold; count: counting upserts, all or none.
Verb = Literal["try", "insert", "upsert", "update", "delete", "item", "drop", "patch", "count"]
BATCHES: Final = "_holdfast_batches"
SEQUENCE: Final = "_holdfast_version"
CHANNEL: Final = "holdfast"
_SHAPES_MAX: Final = 1_000


class PostgresTable(TableMapping):
    """A table mapping with the statements that read, and the arrays that an insert binds."""

    def __init__(self, schema: Schema[Any], table: str) -> None:
        super().__init__(schema, table, DIALECT)
        self._nested = schema.path.nested
        select = f"SELECT {', '.join(map(quote, self.selected))} FROM {quote(self.table)} WHERE {quote(KEY)}"
        self.get_sql = f"{select} = $1"
        self.get_many_sql = f"{select} = ANY($1::text::text[])"
        self.lock_sql = f"{self.get_many_sql} ORDER BY {quote(KEY)} FOR UPDATE"
        parent = ["text[]"] if self._nested else []
        self.arrays = ("text[]", "bigint[]", *parent, *(array_of(c.kind) for c in self.columns), "json[]")
        self.lists = tuple(PostgresListTable(self, i) for i in schema.indexes if i.member is not None)
        self._clauses: dict[Column, str] = {}

    def counting_clause(self, column: Column) -> str:
        clause = self._clauses.get(column)
        if clause is None:
            clause = self._clauses[column] = counting_clause(self.schema, column, DIALECT)
        return clause

    def row(self, prepared: Prepared, version: int) -> tuple[Any, ...]:
        values = self.choose(prepared.values)
        if self._nested:
            return (prepared.key, version, parent_of(prepared.key), *values, prepared.body)
        return (prepared.key, version, *values, prepared.body)

    def rows(self, documents: Iterable[Prepared], version: int) -> list[tuple[Any, ...]]:
        """Return the rows of many documents of one version."""
        if self._nested:
            return [self.row(one, version) for one in documents]
        choose = self.choose
        return [(one.key, version, *choose(one.values), one.body) for one in documents]


class PostgresListTable(ListIndexTable):
    """A list index's table with the arrays that an insert binds."""

    def __init__(self, mapping: PostgresTable, index: ResolvedIndex) -> None:
        super().__init__(mapping, index)
        scope, others = ("text[]" for _ in self.scope), (array_of(c.kind) for c in self.others)
        self.arrays = ("text[]", "bytea[]", *scope, *others)


class TableChange:
    """Rows of one table that take the same verb."""

    __slots__ = ("arrays", "fields", "guarded", "names", "owners", "rows", "table", "verb", "where")

    def __init__(
        self,
        verb: Verb,
        table: str,
        names: Sequence[str],
        arrays: Sequence[str],
        *,
        where: Sequence[str] = (),
        fields: tuple[str, ...] = (),
        guarded: bool = False,
    ) -> None:
        width = 1 if verb == "delete" else 2 if verb == "drop" else len(names)
        self.verb, self.table, self.where = verb, table, tuple(where)
        self.fields = fields  # those that a patch changes
        self.names, self.arrays = tuple(names[:width]), tuple(arrays[:width])
        # The rows' last value is the version that was read: all have it still, or nothing is written.
        self.guarded = guarded
        if guarded:
            self.arrays = (*self.arrays, "bigint[]")
        self.rows: list[tuple[Any, ...]] = []
        self.owners: dict[str, int] = {}  # the commit that succeeds or fails with this key's row

    def leaves_claimable(self, due: str, owner: str | None) -> bool:
        """Whether a row is, or may be, due at some time and held by nobody."""
        if self.verb == "delete":
            return False
        if due not in self.names:
            return True
        dues = map(itemgetter(self.names.index(due)), self.rows)
        owners = map(itemgetter(self.names.index(owner)), self.rows) if owner in self.names else repeat(None)
        return any(map(is_claimable, dues, owners))


_Shape = tuple[str, Verb, tuple[str, ...], tuple[str, ...], tuple[str, ...], bool, tuple[Binding, ...]]
_shapes: dict[tuple[bool, tuple[_Shape, ...]], str] = {}
_differing: dict[tuple[str, Verb, tuple[str, ...]], set[int]] = {}  # see `bind_columns`


def render(changes: Sequence[TableChange], batch: int, note: str) -> tuple[str, list[Any]]:
    """Return the statement and its values; see `lost_rows` for its result."""
    single = all(len(c.rows) == 1 for c in changes)
    bound = [((), c.rows[0]) if single else _bind(c) for c in changes]
    shape = single, tuple([
        (c.table, c.verb, c.names, c.where, c.fields, c.guarded, bindings)
        for c, (bindings, _) in zip(changes, bound, strict=True)
    ])  # fmt: skip
    text = _shapes.get(shape)
    if text is None:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        text = _shapes[shape] = _write(changes, single=single, bindings=[one for one, _ in bound])
    return text, [batch, note, *[value for _, values in bound for value in values]]


def _bind(change: TableChange) -> tuple[tuple[Binding, ...], Sequence[Any]]:
    columns, differing = tuple(zip(*change.rows, strict=True)), None
    if change.verb in ("try", "insert", "patch"):
        if len(_differing) >= _SHAPES_MAX:
            _differing.clear()
        differing = _differing.setdefault((change.table, change.verb, change.names), set())
    return bind_columns(change.arrays, columns, differing=differing)


def lost_rows(row: Sequence[Any] | None, changes: Sequence[TableChange]) -> Iterator[tuple[TableChange, str]]:
    """Yield the changes and keys that the statement's result, or its mark, names as not made."""
    if row is None:  # of a single row
        yield changes[0], changes[0].rows[0][0]
        return
    for entry in row[0] or ():
        position, _, key = entry.partition(":")
        yield changes[int(position)], key


def _write(changes: Sequence[TableChange], *, single: bool, bindings: Sequence[tuple[Binding, ...]]) -> str:
    if single and len(changes) == 1 and changes[0].verb in ("try", "patch"):
        return _write_single(changes[0])
    parts, lost, all_made, position = [], [], [], 3
    for n, change in enumerate(changes):
        rows = RowSource(change.arrays, position, single=single, bindings=bindings[n])
        parts.append(f"x{n} AS ({_VERBS[change.verb](change, rows)})")
        if change.verb in ("try", "patch"):
            lost.append(_lost(n, rows))
        elif change.verb == "count" or change.guarded:
            all_made.append(f"(SELECT count(*) FROM x{n}) = {rows.count}")
        position += rows.width
    keys = " || ".join(lost) or "NULL::text[]"
    # A division by zero undoes the whole statement.
    id = f"$1::bigint / CASE WHEN {' AND '.join(all_made)} THEN 1 ELSE 0 END" if all_made else "$1::bigint"
    parts.append(f"mark AS (INSERT INTO {BATCHES} (id, lost) SELECT {id}, {keys} RETURNING lost)")
    return f"WITH {', '.join(parts)} SELECT lost, pg_notify('{CHANNEL}', $2) FROM mark"


def _write_single(change: TableChange) -> str:
    """Mark and notify only where the row is made: the server then has nothing to count and compare."""
    made = _VERBS[change.verb](change, RowSource(change.arrays, 3, single=True))
    mark = f"INSERT INTO {BATCHES} (id) SELECT $1::bigint FROM x0"
    return f"WITH x0 AS ({made}) {mark} RETURNING NULL::text[], pg_notify('{CHANNEL}', $2)"


def _lost(n: int, rows: RowSource) -> str:
    keys = rows.table(["k"], name="given")
    missing = f"SELECT '{n}:' || k FROM {keys} WHERE k NOT IN (SELECT {quote(KEY)} FROM x{n})"
    return f"CASE WHEN (SELECT count(*) FROM x{n}) < {rows.count} THEN ARRAY({missing}) END"


def _insert(change: TableChange, rows: RowSource) -> str:
    names = ", ".join(map(quote, change.names))
    return f"INSERT INTO {quote(change.table)} AS t ({names}) SELECT * FROM {rows.table()}"


def _try(change: TableChange, rows: RowSource) -> str:
    return f"{_insert(change, rows)} ON CONFLICT DO NOTHING RETURNING {quote(KEY)}"


def _upsert(change: TableChange, rows: RowSource) -> str:
    sets = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in (*change.names[1:], PATCH))
    return f"{_insert(change, rows)} ON CONFLICT ({quote(KEY)}) DO UPDATE SET {sets}"


def _count(change: TableChange, rows: RowSource) -> str:
    (clause,) = change.where
    return f"{_insert(change, rows)} {clause} RETURNING {quote(KEY)}"


def _update(change: TableChange, rows: RowSource) -> str:
    aliases = [f"c{n}" for n in range(len(change.names))]
    sets = ", ".join(
        f"{quote(name)} = u.{c}"
        for name, c in zip(change.names, aliases, strict=True)
        if name not in (KEY, PARENT)
    )
    if BODY in change.names:
        sets += f", {quote(PATCH)} = NULL"
    where = f"t.{quote(KEY)} = u.c0"
    if change.guarded:
        aliases.append("version_read")
        where += f" AND t.{quote(VERSION)} = u.version_read RETURNING 1"
    return f"UPDATE {quote(change.table)} AS t SET {sets} FROM {rows.table(aliases)} WHERE {where}"


def _patch(change: TableChange, rows: RowSource) -> str:
    """Names up to the patch column are written; those after it must equal the row's."""
    aliases = [f"c{n}" for n in range(len(change.names))]
    same = [f"t.{quote(name)} = u.{c}" for name, c in zip(change.names, aliases, strict=True)]
    last = change.names.index(PATCH) + 1
    written = [f"{quote(n)} = u.{c}" for n, c in zip(change.names[:last], aliases[:last], strict=True)]
    merged = DIALECT.merged_patch(f"t.{quote(PATCH)}", f"u.{aliases[last - 1]}", change.fields)
    sets = ", ".join([*written[1:-1], f"{quote(PATCH)} = {merged}"])
    where = " AND ".join([same[0], *same[last:], *change.where])
    return (
        f"UPDATE {quote(change.table)} AS t SET {sets} FROM {rows.table(aliases)} WHERE {where}"
        f" RETURNING t.{quote(KEY)}"
    )


def _delete(change: TableChange, rows: RowSource) -> str:
    return f"DELETE FROM {quote(change.table)} WHERE {quote(KEY)} = {rows.any_key}"


def _item(change: TableChange, rows: RowSource) -> str:
    sets = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in change.names[2:])
    act = f"UPDATE SET {sets}" if sets else "NOTHING"
    return f"{_insert(change, rows)} ON CONFLICT ({quote(KEY)}, {quote(ITEM)}) DO {act}"


def _drop(change: TableChange, rows: RowSource) -> str:
    same = f"t.{quote(KEY)} = u.k AND t.{quote(ITEM)} = u.i"
    return f"DELETE FROM {quote(change.table)} AS t USING {rows.table(['k', 'i'])} WHERE {same}"


_VERBS: Final = {
    "try": _try, "insert": _insert, "upsert": _upsert, "update": _update, "delete": _delete,
    "item": _item, "drop": _drop, "patch": _patch, "count": _count,
}  # fmt: skip


def change_sql(change: TableChange) -> str:
    return _VERBS[change.verb](change, RowSource(change.arrays, 1, single=False, literals=False))


def count_change(mapping: PostgresTable, column: Column) -> TableChange:
    """Return the change that makes counting upserts."""
    clause = mapping.counting_clause(column)
    return TableChange("count", mapping.table, mapping.names, mapping.arrays, where=[clause])


def patch_change(mapping: PostgresTable, group: PatchGroup, *, tenanted: bool) -> TableChange:
    """Return the change that patches rows where guard, tenant and state are as they must be."""
    tenant = mapping.schema.tenant
    names = [KEY, VERSION, *(c.stored for c in group.columns), PATCH]
    arrays = ["text[]", "bigint[]", *(array_of(c.kind) for c in group.columns), "json[]"]
    if group.guard is not None:
        names.append(group.guard)
        arrays.append("bigint[]")
    if tenanted and tenant is not None:
        names.append(tenant.stored)
        arrays.append("text[]")
    where = patch_conditions(group, "t", DIALECT)
    return TableChange("patch", mapping.table, names, arrays, where=where, fields=group.names)
