"""A whole batch as one statement, so that it costs one round trip and lands whole or not at all.

Every batch also writes its number into `_holdfast_batches`. When the link breaks before the answer
came, the same number is written again from a new link: if that succeeds, the batch never landed and
never can (its own mark would clash); if not, it did land, and `lost` says which ids were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import AMENDED, BODY, ITEM, KEY, PARENT

# try: an insert that may lose alone; insert: one that may not; item, drop: rows of a list's table.
# amend: an update that is made only where its conditions hold.
Verb = Literal["try", "insert", "upsert", "update", "delete", "item", "drop", "amend"]
BATCHES: Final = "_holdfast_batches"
SEQUENCE: Final = "_holdfast_version"
CHANNEL: Final = "holdfast"
_SHAPES_MAX: Final = 1_000


class TableChange:
    """Rows of one table that take the same verb."""

    __slots__ = ("arrays", "names", "owners", "rows", "table", "verb", "where")

    def __init__(
        self,
        verb: Verb,
        table: str,
        names: Sequence[str],
        arrays: Sequence[str],
        *,
        where: Sequence[str] = (),
    ) -> None:
        width = 1 if verb == "delete" else 2 if verb == "drop" else len(names)
        self.verb, self.table, self.where = verb, table, tuple(where)
        self.names, self.arrays = tuple(names[:width]), tuple(arrays[:width])
        self.rows: list[tuple[Any, ...]] = []
        self.owners: dict[str, int] = {}  # the commit that stands or falls with this key's row


_Shape = tuple[str, Verb, tuple[str, ...], tuple[str, ...]]
_shapes: dict[tuple[_Shape, ...], str] = {}


def render(changes: Sequence[TableChange], batch: int, note: str) -> tuple[str, list[Any]]:
    """The statement and its values; it answers with the list of lost keys, `N:key`, or null."""
    shape = tuple([(c.table, c.verb, c.names, c.where) for c in changes])
    text = _shapes.get(shape)
    if text is None:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        text = _shapes[shape] = _write(changes)
    values: list[Any] = [batch, note]
    for change in changes:
        values += zip(*change.rows, strict=True)
    return text, values


def _write(changes: Sequence[TableChange]) -> str:
    parts, lost, position = [], [], 3
    for n, change in enumerate(changes):
        marks = [f"${position + i}::{kind}" for i, kind in enumerate(change.arrays)]
        parts.append(f"x{n} AS ({_VERBS[change.verb](change, marks)})")
        if change.verb in ("try", "amend"):
            lost.append(_lost(n, marks[0]))
        position += len(marks)
    told = " || ".join(lost) or "NULL::text[]"
    parts.append(f"mark AS (INSERT INTO {BATCHES} (id, lost) SELECT $1::bigint, {told} RETURNING lost)")
    return f"WITH {', '.join(parts)} SELECT lost, pg_notify('{CHANNEL}', $2) FROM mark"


def _lost(n: int, keys: str) -> str:
    missing = f"SELECT '{n}:' || k FROM unnest({keys}) AS k WHERE k NOT IN (SELECT {quote(KEY)} FROM x{n})"
    return f"CASE WHEN (SELECT count(*) FROM x{n}) < cardinality({keys}) THEN ARRAY({missing}) END"


def _insert(change: TableChange, marks: list[str]) -> str:
    names = ", ".join(map(quote, change.names))
    return f"INSERT INTO {quote(change.table)} ({names}) SELECT * FROM unnest({', '.join(marks)})"


def _try(change: TableChange, marks: list[str]) -> str:
    return f"{_insert(change, marks)} ON CONFLICT DO NOTHING RETURNING {quote(KEY)}"


def _upsert(change: TableChange, marks: list[str]) -> str:
    sets = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in (*change.names[1:], AMENDED))
    return f"{_insert(change, marks)} ON CONFLICT ({quote(KEY)}) DO UPDATE SET {sets}"


def _update(change: TableChange, marks: list[str]) -> str:
    given = [f"c{n}" for n in range(len(change.names))]
    sets = ", ".join(
        f"{quote(name)} = u.{c}"
        for name, c in zip(change.names, given, strict=True)
        if name not in (KEY, PARENT)
    )
    if BODY in change.names:
        sets += f", {quote(AMENDED)} = NULL"
    source = f"unnest({', '.join(marks)}) AS u({', '.join(given)})"
    return f"UPDATE {quote(change.table)} AS t SET {sets} FROM {source} WHERE t.{quote(KEY)} = u.c0"


def _amend(change: TableChange, marks: list[str]) -> str:
    """Names up to the JSON laid over are written; those after it must be what the row has."""
    given = [f"c{n}" for n in range(len(change.names))]
    same = [f"t.{quote(name)} = u.{c}" for name, c in zip(change.names, given, strict=True)]
    last = change.names.index(AMENDED) + 1
    sets = ", ".join(f"{quote(n)} = u.{c}" for n, c in zip(change.names[1:last], given[1:last], strict=True))
    source = f"unnest({', '.join(marks)}) AS u({', '.join(given)})"
    where = " AND ".join([same[0], *same[last:], *change.where])
    return (
        f"UPDATE {quote(change.table)} AS t SET {sets} FROM {source} WHERE {where} RETURNING t.{quote(KEY)}"
    )


def _delete(change: TableChange, marks: list[str]) -> str:
    return f"DELETE FROM {quote(change.table)} WHERE {quote(KEY)} = ANY({marks[0]})"


def _item(change: TableChange, marks: list[str]) -> str:
    sets = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in change.names[2:])
    act = f"UPDATE SET {sets}" if sets else "NOTHING"
    return f"{_insert(change, marks)} ON CONFLICT ({quote(KEY)}, {quote(ITEM)}) DO {act}"


def _drop(change: TableChange, marks: list[str]) -> str:
    source = f"unnest({', '.join(marks)}) AS u(k, i)"
    same = f"t.{quote(KEY)} = u.k AND t.{quote(ITEM)} = u.i"
    return f"DELETE FROM {quote(change.table)} AS t USING {source} WHERE {same}"


_VERBS: Final = {
    "try": _try, "insert": _insert, "upsert": _upsert, "update": _update, "delete": _delete,
    "item": _item, "drop": _drop, "amend": _amend,
}  # fmt: skip


def change_sql(change: TableChange) -> str:
    """One change as a statement by itself."""
    return _VERBS[change.verb](change, [f"${n}::{kind}" for n, kind in enumerate(change.arrays, 1)])
