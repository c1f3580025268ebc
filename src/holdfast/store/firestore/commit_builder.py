"""One commit: what it must read, and the writes with preconditions it becomes.

Everything but a create is read first, and the write's precondition is what was read: the update time, or
the absence. So what was decided still holds when the writes are applied, without a transaction and its
locks, and writes that are sent again can't be applied twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.store.commit import Commit, Committed, Outcome
from holdfast.store.firestore import wire
from holdfast.store.firestore.document_names import DocumentNames, FirestoreDocument, to_document
from holdfast.store.write_rules import Change, decide


class CommitBuilder:
    """A commit, its writes and its outcome."""

    def __init__(self, commit: Commit, names: DocumentNames) -> None:
        self.commit = commit
        self.names = [names.name(write.schema, write.key) for write in commit.writes]
        self.reads = [n for n, w in zip(self.names, commit.writes, strict=True) if w.kind != "create"]
        self.outcome: Outcome | None = None
        self.writes: list[Any] = []
        self._positions: list[int | None] = []
        self.changes = 0

    def read_all(self) -> None:
        """After a conflict, read the ids of creates, too."""
        self.reads = list(self.names)

    @property
    def reads_all(self) -> bool:
        return len(self.reads) == len(self.names)

    def decide(self, found: Mapping[str, Any]) -> None:
        """Make the writes from what was read; raises what `decide` refuses."""
        self.writes, self._positions, self.changes = [], [], 0
        for write, name in zip(self.commit.writes, self.names, strict=True):
            stored = FirestoreDocument(write.schema, write.key, found[name]) if name in found else None
            change = decide(write, stored, commit=self.commit)
            self._positions.append(len(self.writes) if change and change.kind != "delete" else None)
            if change is None:
                self.writes += _guard(name, stored)
            else:
                self.changes += 1
                self.writes.append(_write(change, name, stored))

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send: no changes, and a single read is consistent by itself."""
        return self.changes == 0 and len(self.commit.writes) == 1

    def complete(self, results: list[Any]) -> None:
        versions = [
            0 if position is None else wire.nanoseconds(results[position].update_time)
            for position in self._positions
        ]
        self.outcome = Committed(tuple(versions))


def _write(change: Change, name: str, stored: FirestoreDocument | None) -> Any:
    if change.kind == "delete":
        return wire.Write(delete=name, current_document=_precondition(stored))
    assert change.prepared is not None
    document = to_document(change.schema, change.schema.document_of(change.prepared), name)
    if stored is not None:
        stored.make_different(document)
    return wire.Write(update=document, current_document=_precondition(stored))


def _precondition(stored: FirestoreDocument | None) -> Any:
    if stored is None:
        return wire.Precondition(exists=False)
    return wire.Precondition(update_time=wire.instant(stored.version))


def _guard(name: str, stored: FirestoreDocument | None) -> list[Any]:
    """Return writes that change nothing and fail when the document is not as it was read."""
    write = wire.Write(update=wire.Document(name=name), current_document=_precondition(stored))
    if stored is None:
        return [write, wire.Write(delete=name)]
    write.update_mask.SetInParent()  # an empty mask
    return [write]
