"""Whether commits leave something to claim: those who wait for that need not be woken by others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Write
from holdfast.store.commit_batch import CreateBatch, PatchBatch


def is_claimable(due: Any, owner: Any) -> bool:
    """Whether a document is due at some time and held by nobody."""
    return due is not None and not owner


class ClaimableWrites:
    """Tells which writes to one collection leave, or may leave, a document that can be claimed."""

    def __init__(self, schema: Schema[Any]) -> None:
        assert schema.claim is not None
        self._schema, self._due, self._owner = schema, schema.claim.due, schema.claim.owner
        self._due_at = schema.columns.index(schema.claim_columns[0])
        owner = None if self._owner is None else schema.column(self._owner)
        self._owner_at = None if owner is None else schema.columns.index(owner)

    def any(self, commits: Sequence[Commit]) -> bool:
        """Whether a write of these, to this collection and others, does."""
        schema = self._schema
        if type(commits) is CreateBatch:
            return commits.schema is schema and any(map(self._is_due, commits.documents))
        if type(commits) is PatchBatch:
            return commits.schema is schema and self._leaves_patched(commits)
        for commit in commits:
            for write in commit.writes:
                if write.schema is schema and self._leaves(write):
                    return True
        return False

    def _leaves_patched(self, batch: PatchBatch) -> bool:
        if self._due not in batch.names:
            return True
        dues = map(itemgetter(batch.names.index(self._due)), batch.values)
        owner = self._owner if self._owner in batch.names else None
        owners = repeat(None) if owner is None else map(itemgetter(batch.names.index(owner)), batch.values)
        return any(map(is_claimable, dues, owners))

    def _leaves(self, write: Write) -> bool:
        kind, changes = write.kind, write.changes
        if kind == "patch" and changes is not None and self._due in changes:
            owner = None if self._owner is None else changes.get(self._owner)
            return is_claimable(changes[self._due], owner)
        if kind == "create" and write.prepared is not None:
            return self._is_due(write.prepared)
        return kind not in ("delete", "check")

    def _is_due(self, new: Prepared) -> bool:
        at = self._owner_at
        return is_claimable(new.values[self._due_at], None if at is None else new.values[at])
