"""Backfill: writing new columns and list tables from the documents, some rows per transaction. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.model.schema import Prepared
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.table_mapping import CLAIM_COLUMNS_AT, Row, TableMapping, merge_json
from holdfast.store.sql.tables import KEY, Table

ROWS_PER_STEP: Final = 500


class Backfill(msgspec.Struct, frozen=True):
    """What of a collection is still to be filled, and the last key that is.

    With `documents` each one is written in the newest version of its declaration.
    """

    columns: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    after: str = ""
    documents: bool = False

    def with_column(self, table: Table, name: str) -> Backfill:
        if table.items_of:
            return self.with_list(table.name)
        return Backfill(tuple(dict.fromkeys([*self.columns, name])), self.lists, documents=self.documents)

    def with_list(self, name: str) -> Backfill:
        return Backfill(self.columns, tuple(dict.fromkeys([*self.lists, name])), documents=self.documents)

    def continued(self, after: str) -> str:
        """Return the note that continues behind a key."""
        return msgspec.json.encode(Backfill(self.columns, self.lists, after, self.documents)).decode()

    def known_to(self, mapping: TableMapping) -> Backfill:
        """Return what of it this release declares; the rest is for the release that noted it."""
        columns, lists = {c.stored for c in mapping.columns}, {t.name for t in mapping.tables if t.items_of}
        return Backfill(
            tuple(c for c in self.columns if c in columns),
            tuple(t for t in self.lists if t in lists),
            self.after,
            self.documents,
        )

    def without(self, filled: Backfill) -> str:
        """Return the note of what is left once something is filled; empty where nothing is."""
        columns = tuple(c for c in self.columns if c not in filled.columns)
        lists = tuple(t for t in self.lists if t not in filled.lists)
        return msgspec.json.encode(Backfill(columns, lists)).decode() if columns or lists else ""


def backfill_note(table: str) -> str:
    """Return the name of the note that holds a table's `Backfill`."""
    return f"fill {table}"


def select_next(mapping: TableMapping) -> str:
    """Return the statement that reads the rows of the next step; it binds the last key filled."""
    shown, key = ", ".join(map(quote, mapping.selected)), quote(KEY)
    return (
        f"SELECT {shown} FROM {quote(mapping.table)} WHERE {key} > {mapping.dialect.placeholder(1)}"
        f" ORDER BY {key} LIMIT {ROWS_PER_STEP}"
    )


def delete_orphans(mapping: TableMapping, table: str) -> str:
    """Return the statement that deletes a list's rows whose document is gone.

    A release without that list index deletes documents, and leaves their rows there.
    """
    key, main = quote(KEY), quote(mapping.table)
    return (
        f"DELETE FROM {quote(table)} WHERE NOT EXISTS"
        f" (SELECT 1 FROM {main} AS t WHERE t.{key} = {quote(table)}.{key})"
    )


def prepare_row(mapping: TableMapping, row: Row, backfill: Backfill) -> Prepared:
    """Return a row's document prepared again.

    A claim may have changed a claimed column since the body was written, so the column wins, unless it
    is new and nothing was written to it yet.
    """
    body = row[2] if row[3] is None else merge_json(row[2], row[3])
    stored = zip(mapping.claim_columns, row[CLAIM_COLUMNS_AT:], strict=False)
    new = {c.stored for c, value in stored if value is None and c.stored in backfill.columns}
    claimed = {name: value for name, value in mapping.claimed(row).items() if name not in new}
    return mapping.schema.prepare(mapping.load_versioned(row, body, claimed))
