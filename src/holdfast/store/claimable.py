"""Whether commits leave something to claim: those who wait for that need not be woken by others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.model.schema import Schema
from holdfast.store.commit import Write


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

    def any(self, writes: Iterable[Write]) -> bool:
        """Whether one of these, to this collection and others, does."""
        return any(write.schema is self._schema and self._leaves(write) for write in writes)

    def _leaves(self, write: Write) -> bool:
        if write.kind in ("delete", "check"):
            return False
        changes, owner = write.changes, self._owner
        if write.kind == "create" and write.prepared is not None:
            values, at = write.prepared.values, self._owner_at
            return is_claimable(values[self._due_at], None if at is None else values[at])
        if write.kind == "patch" and changes is not None and self._due in changes:
            return is_claimable(changes[self._due], None if owner is None else changes.get(owner))
        return True
