"""A batch by one statement: a temporary view whose triggers insert and patch the rows of one table.

A statement releases the GIL, and its thread waits to have it back while the event loop works. A transaction
of `BEGIN`, several statements and `COMMIT` waits each time. One insert of many rows into the view begins the
transaction, makes every change, commits and syncs, while the loop goes on. It makes all changes or none:
where an id is taken or a patch's conditions do not hold, the batch needs a transaction of several statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final

import apsw

from holdfast.model.schema import Prepared
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.shared_columns import SHARED_MIN, shared_columns
from holdfast.store.sql.tables import VERSION
from holdfast.store.sqlite.statements import STATEMENT_BYTES_MAX, SqliteTable

NAME_WRITER: Final = "INSERT OR REPLACE INTO _holdfast_meta VALUES ('writer', {})"
PATCH_GROUPS_MAX: Final = 6  # every row is compared with each kind
# What a row of the view does. A row without a kind does nothing: it fills a statement up to its size.
_CHECK: Final = 0
_CREATE: Final = 1
_WRITER: Final = 2
_FIRST_PATCH: Final = 3
_SHARED: Final = ("version", "tenant")  # bound once for all rows


class BatchView:
    """The view of one table on one connection, with a trigger for each kind of row.

    A row has what all share, its kind, and as many values as a patch of every column.
    """

    def __init__(self, connection: apsw.Connection, mapping: SqliteTable) -> None:
        self.connection, self.mapping = connection, mapping
        self._name = f"_holdfast_batch_{mapping.table}"
        self.width = len(mapping.columns) + 4  # kind, key, patch, the columns, guard
        self._row = f"(?1,?2,{','.join('?' * self.width)})"
        self.rows_max = STATEMENT_BYTES_MAX // (len(self._row) + 1) - 1
        self._kinds: dict[PatchGroup, int] = {}
        self._statements: dict[int, str] = {}
        self._inserts: dict[tuple[int, tuple[int, ...]], str] = {}
        self._differing: set[int] = set()  # the columns that have differed among new documents
        self._insert = f"INSERT INTO {quote(mapping.table)} ({', '.join(map(quote, mapping.names))})"
        self._create()

    def patch_kind(self, group: PatchGroup) -> int | None:
        """Return the kind of a row that makes a patch of this group, None where there are too many groups."""
        kind = self._kinds.get(group)
        if kind is None and len(self._kinds) < PATCH_GROUPS_MAX:
            kind = self._kinds[group] = _FIRST_PATCH + len(self._kinds)
            given = [f"new.c{n}" for n in range(1, self.width)]
            tenant = "(new.tenant IS NULL OR {} = new.tenant)"
            self._on(kind, self.mapping.patch_row_sql(group, given, version="new.version", tenant=tenant))
        return kind

    def statement(self, size: int) -> str:
        """Return the statement of so many rows, which its triggers make."""
        sql = self._statements.get(size)
        if sql is None:
            rows = ",".join([self._row] * size)
            sql = self._statements[size] = f"INSERT INTO {quote(self._name)} VALUES {rows}"
        return sql

    def insert(self, documents: Sequence[Prepared], version: int) -> tuple[str, list[Any]]:
        """Return the statement that creates documents alone, which needs no trigger, and what it binds."""
        mapping, size = self.mapping, _statement_rows(len(documents))
        columns = mapping.bound_columns(documents)
        is_long, every = len(documents) >= SHARED_MIN, range(len(columns))
        shared = shared_columns(columns, every, self._differing) if is_long else ()
        single = [column for n, column in enumerate(columns) if n not in shared]
        given = (*mapping.keys_of(documents), *single, mapping.bodies_of(documents))
        rows = chain.from_iterable(zip(*given, strict=True))
        values = [version, *[columns[n][0] for n in shared], *rows]
        sql = self._inserts.get((size, shared))
        if sql is None:
            sql = self._inserts[size, shared] = self._insert_sql(size, shared)
        blank = (size - len(documents)) * (len(mapping.names) - 1 - len(shared))
        return sql, [*values, *[None] * blank]

    def _insert_sql(self, size: int, shared: Sequence[int]) -> str:
        """Return the statement; a row without a key does nothing: it fills the statement up to its size."""
        names, selected, given, once = self.mapping.names, [], 0, 1
        first = names.index(self.mapping.columns[0].stored) if shared else 0
        for n, name in enumerate(names):
            if name == VERSION:
                selected.append("?1")
            elif n - first in shared:
                once += 1
                selected.append(f"?{once}")
            else:
                given += 1
                selected.append(f"column{given}")
        rows = ",".join([f"({','.join('?' * given)})"] * size)
        return f"{self._insert} SELECT {', '.join(selected)} FROM (VALUES {rows}) WHERE column1 IS NOT NULL"

    def _create(self) -> None:
        given = [f"c{n}" for n in range(1, self.width)]
        names = [*_SHARED, "kind", *given]
        blank = ", ".join(["NULL"] * len(names))
        self.connection.execute(
            f"CREATE TEMP VIEW {quote(self._name)} ({', '.join(names)}) AS SELECT {blank}"
        )
        # Comes last: a patch whose conditions do not hold is one change less.
        self._on(_CHECK, "SELECT RAISE(ROLLBACK, 'refused') WHERE total_changes() <> new.c1")
        inserted = ", ".join(self._inserted("new.version", [f"new.{name}" for name in given]))
        self._on(_CREATE, f"{self._insert} VALUES ({inserted})")
        self._on(_WRITER, NAME_WRITER.format("new.c1"))

    def _inserted(self, version: str, given: Sequence[str]) -> Iterator[str]:
        """Yield what is inserted into each column of the table."""
        others = iter(given)
        for name in self.mapping.names:
            yield version if name == VERSION else next(others)

    def _on(self, kind: int, statement: str) -> None:
        self.connection.execute(
            f"CREATE TEMP TRIGGER {quote(f'{self._name}_{kind}')} INSTEAD OF INSERT ON {quote(self._name)}"
            f" WHEN new.kind = {kind} BEGIN {statement}; END"
        )


class BatchStatement:
    """The changes of one batch, in the order in which they are made."""

    def __init__(self, view: BatchView, *, version: int, tenant: str | None) -> None:
        self._view, self.schema, self.version = view, view.mapping.schema, version
        self._new: list[Prepared] = []  # created before anything else
        self._values: list[Any] = [version, tenant]
        self._count = 0
        self._triggered = False  # whether it needs the view

    def create(self, documents: Sequence[Prepared]) -> None:
        self._count += len(documents)
        if self._triggered:
            self._add_creates(documents)
        else:
            self._new += documents

    def _add_creates(self, documents: Sequence[Prepared]) -> None:
        mapping = self._view.mapping
        columns = mapping.bound_columns(documents)
        self._add_rows(_CREATE, [*mapping.keys_of(documents), *columns, mapping.bodies_of(documents)])

    def _add_rows(self, kind: int, columns: Sequence[Sequence[Any]]) -> None:
        blank = [repeat(None)] * (self._view.width - 1 - len(columns))
        self._values += chain.from_iterable(zip(repeat(kind), *columns, *blank, strict=False))

    def _use_view(self) -> None:
        """Have the rows made by triggers from here on."""
        if not self._triggered:
            self._triggered = True
            if self._new:
                self._add_creates(self._new)

    def patch(self, group: PatchGroup, patches: Sequence[BlindPatch]) -> bool:
        """Add patches; False where the view can't make them."""
        kind = self._view.patch_kind(group)
        if kind is None:
            return False
        self._use_view()
        self._add_rows(kind, self._view.mapping.patch_columns(patches))
        self._count += len(patches)
        return True

    def name_writer(self, token: str) -> None:
        """Have the file name this process as the last that wrote."""
        self._use_view()
        self._values += (_WRITER, token, *(None,) * (self._view.width - 2))
        self._count += 1

    def execute(self) -> bool:
        """Make and commit all changes.

        Return False, with nothing changed, where one is refused or there are more than a statement takes.
        """
        if _statement_rows(self._count + self._triggered) > self._view.rows_max:
            return False
        sql, values = self._rendered() if self._triggered else self._view.insert(self._new, self.version)
        try:
            self._view.connection.execute(sql, values)
        except apsw.ConstraintError:
            return False
        return True

    def _rendered(self) -> tuple[str, list[Any]]:
        view, values = self._view, self._values
        values += (_CHECK, view.connection.total_changes() + self._count)
        size = _statement_rows(self._count + 1)
        values += [None] * (len(_SHARED) + size * view.width - len(values))
        return view.statement(size), values


def _statement_rows(count: int) -> int:
    """Return how many rows the statement for these has: few statements are to be kept prepared."""
    if count <= 16:
        return max(4, 1 << (count - 1).bit_length())
    step = 16 if count <= 128 else 32
    return -(-count // step) * step
