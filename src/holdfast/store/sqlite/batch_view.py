"""A batch by one statement: a temporary view whose triggers insert and patch the rows of one table.

A statement releases the GIL, and its thread waits to have it back while the event loop works. A transaction
of `BEGIN`, several statements and `COMMIT` waits each time. One insert of many rows into the view begins the
transaction, makes every change, commits and syncs, while the loop goes on. It makes all changes or none:
where an id is taken or a patch's conditions do not hold, the batch needs a transaction of several statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw

from holdfast.model.schema import Prepared
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup
from holdfast.store.sql.dialect import quote
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
        self._statements: dict[tuple[int, bool], str] = {}
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

    def statement(self, size: int, *, triggered: bool) -> str:
        """Return the statement of so many rows; creates alone need no trigger."""
        sql = self._statements.get((size, triggered))
        if sql is None:
            rows = f"VALUES {','.join([self._row] * size)}"
            if triggered:
                sql = f"INSERT INTO {quote(self._name)} {rows}"
            else:
                first, kind = len(_SHARED) + 2, len(_SHARED) + 1
                inserted = ", ".join(
                    self._inserted("column1", [f"column{first + n}" for n in range(self.width)])
                )
                sql = f"{self._insert} SELECT {inserted} FROM ({rows}) WHERE column{kind} IS NOT NULL"
            self._statements[size, triggered] = sql
        return sql

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
        self._values: list[Any] = [version, tenant]
        self._count = 0
        self._triggered = False  # whether it needs the view

    def create(self, documents: Sequence[Prepared]) -> None:
        view = self._view
        self._values += view.mapping.insert_values(documents, kind=_CREATE, width=view.width)
        self._count += len(documents)

    def patch(self, group: PatchGroup, patches: Sequence[BlindPatch]) -> bool:
        """Add patches; False where the view can't make them."""
        kind = self._view.patch_kind(group)
        if kind is None:
            return False
        bind, values = self._view.mapping.dialect.bind, self._values
        used = 3 + len(group.columns) + (group.guard is not None)
        blank = (None,) * (self._view.width - used)
        for one in patches:
            values += (kind, one.key, one.body.decode(), *map(bind, one.values), *one.expected, *blank)
        self._count += len(patches)
        self._triggered = True
        return True

    def name_writer(self, token: str) -> None:
        """Have the file name this process as the last that wrote."""
        self._values += (_WRITER, token, *(None,) * (self._view.width - 2))
        self._count += 1
        self._triggered = True

    def execute(self) -> bool:
        """Make and commit all changes.

        Return False, with nothing changed, where one is refused or there are more than a statement takes.
        """
        view, values, rows = self._view, self._values, self._count
        if self._triggered:
            values += (_CHECK, view.connection.total_changes() + rows)
            rows += 1
        size = _statement_rows(rows)
        if size > view.rows_max:
            return False
        values += [None] * (len(_SHARED) + size * view.width - len(values))
        try:
            view.connection.execute(view.statement(size, triggered=self._triggered), values)
        except apsw.ConstraintError:
            return False
        return True


def _statement_rows(count: int) -> int:
    """Return how many rows the statement for these has: few statements are to be kept prepared."""
    if count <= 16:
        return max(4, 1 << (count - 1).bit_length())
    step = 16 if count <= 128 else 32
    return -(-count // step) * step
