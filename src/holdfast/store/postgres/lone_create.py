"""A create that comes alone: a batch of one, without sorting out, grouping and rendering many.

Its statement, its row and its rules are those of a batch, written once for each collection.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Write
from holdfast.store.notifier import CommitNotifier
from holdfast.store.postgres.batch import leaves_claimable
from holdfast.store.postgres.statement import PostgresTable, TableChange, render


class LoneCreate:
    """The statement that creates one document of a collection."""

    __slots__ = ("_mapping", "_note", "_touched", "text")

    def __init__(self, mapping: PostgresTable, note: str) -> None:
        self._mapping, self._note = mapping, note
        self._touched = frozenset([mapping.schema])
        self.text, _ = render([self._change((None,) * len(mapping.names))], 0, note)

    def _change(self, row: tuple[Any, ...]) -> TableChange:
        change = TableChange("try", self._mapping.table, self._mapping.names, self._mapping.arrays)
        change.rows.append(row)
        return change

    def values(self, prepared: Prepared, version: int) -> tuple[Any, ...]:
        """Return what the statement binds; the batch has the number of the document's version."""
        return (version, self._note, *self._mapping.row(prepared, version))

    def notify(self, notifier: CommitNotifier, values: Sequence[Any]) -> None:
        """Tell subscriptions of the document that was made by these values."""
        if notifier.has_subscriptions:
            claimable = leaves_claimable(self._mapping, [self._change(tuple(values[2:]))])
            notifier.notify(self._touched, unclaimable=frozenset() if claimable else self._touched)


def lone_create(commits: Sequence[Commit], listed: Container[Schema[Any]]) -> Write | None:
    """Return the write of a batch that creates one document, whose list items (`listed`) need no rows."""
    if len(commits) != 1 or len(commits[0].writes) != 1:
        return None
    write = commits[0].writes[0]
    return None if write.kind != "create" or write.schema in listed else write
