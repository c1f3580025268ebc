"""A create or blind patch that comes alone: a batch of one, without sorting out, grouping and rendering many.

Its statement, its row and its rules are those of a batch, written once for each collection and kind of patch.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from holdfast.model.schema import Schema
from holdfast.store.commit import Commit
from holdfast.store.notifier import CommitNotifier
from holdfast.store.postgres.batch import independent_row, leaves_claimable, tenant_values
from holdfast.store.postgres.statement import PostgresTable, TableChange, patch_change, render
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup, blind_patch
from holdfast.store.sql.write_batch import IndependentWrite

_PATCHES_MAX: Final = 1_000


class LoneStatement:
    """The statement that creates one document of a collection or, with a group, patches one."""

    __slots__ = ("_change", "_mapping", "_note", "_touched", "text")

    def __init__(
        self, mapping: PostgresTable, note: str, *, group: PatchGroup | None = None, tenanted: bool = False
    ) -> None:
        self._mapping, self._note = mapping, note
        self._touched = frozenset([mapping.schema])
        self._change = (
            TableChange("try", mapping.table, mapping.names, mapping.arrays)
            if group is None
            else patch_change(mapping, group, tenanted=tenanted)
        )
        self._change.rows = [(None,) * len(self._change.arrays)]
        self.text, _ = render([self._change], 0, note)

    def values(self, write: IndependentWrite, commit: Commit, version: int) -> tuple[Any, ...]:
        """Return what the statement binds; the batch has the number of the document's version."""
        return (version, self._note, *independent_row(self._mapping, write, commit, version=version))

    def notify(self, notifier: CommitNotifier, values: Sequence[Any]) -> None:
        """Tell subscriptions of the document that was written by these values."""
        if notifier.has_subscriptions:
            self._change.rows = [tuple(values[2:])]
            claimable = leaves_claimable(self._mapping, [self._change])
            notifier.notify(self._touched, unclaimable=frozenset() if claimable else self._touched)


class LoneStatements:
    """The statements of one writer, each rendered when it is first needed."""

    def __init__(self, note: str) -> None:
        self._note = note
        self._creates: dict[Schema[Any], LoneStatement] = {}
        self._patches: dict[tuple[PatchGroup, bool], LoneStatement] = {}

    def of(self, write: IndependentWrite, commit: Commit, mapping: PostgresTable) -> LoneStatement:
        """Return the statement that makes a write."""
        if isinstance(write, BlindPatch):
            tenanted = bool(tenant_values(write.group, commit.tenant))
            made = self._patches.get((write.group, tenanted))
            if made is None:
                if len(self._patches) >= _PATCHES_MAX:
                    self._patches.clear()
                made = LoneStatement(mapping, self._note_of(mapping), group=write.group, tenanted=tenanted)
                self._patches[write.group, tenanted] = made
            return made
        made = self._creates.get(write.schema)
        if made is None:
            made = self._creates[write.schema] = LoneStatement(mapping, self._note_of(mapping))
        return made

    def _note_of(self, mapping: PostgresTable) -> str:
        return f"{self._note} {mapping.table}"


def lone_write(commits: Sequence[Commit], listed: Container[Schema[Any]]) -> IndependentWrite | None:
    """Return what a batch of one write makes without a read; list items (`listed`) need rows of their own."""
    if len(commits) != 1 or len(commits[0].writes) != 1:
        return None
    write = commits[0].writes[0]
    if write.schema in listed:
        return None
    return write if write.kind == "create" else blind_patch(write)
