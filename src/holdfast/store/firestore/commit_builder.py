"""One commit on its way: what it must read, and the guarded writes it comes to.

Everything but a create is read first, and what was read is guarded: a document that was there by its
update time, one that was not by its absence. So whatever was decided still holds at the instant the
writes land, without a transaction and its locks, and writes sent again can't land twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.store.commit import Commit, Committed, Outcome
from holdfast.store.firestore import wire
from holdfast.store.firestore.document_names import DocumentNames, Stored, to_document
from holdfast.store.write_rules import Change, decide


class CommitBuilder:
    """A commit and how far it got."""

    def __init__(self, commit: Commit, places: DocumentNames) -> None:
        self.commit = commit
        self.names = [places.name(write.schema, write.key) for write in commit.writes]
        self.reads = [n for n, w in zip(self.names, commit.writes, strict=True) if w.kind != "create"]
        self.outcome: Outcome | None = None
        self.writes: list[Any] = []
        self._slots: list[int | None] = []
        self.changes = 0

    def read_all(self) -> None:
        """After a conflict nothing is taken for granted, not even that a new id is free."""
        self.reads = list(self.names)

    @property
    def saw_all(self) -> bool:
        return len(self.reads) == len(self.names)

    def decide(self, found: Mapping[str, Any]) -> None:
        """Make the writes from what was read; raises what the rule book refuses."""
        self.writes, self._slots, self.changes = [], [], 0
        for write, name in zip(self.commit.writes, self.names, strict=True):
            stored = Stored(write.schema, write.key, found[name]) if name in found else None
            change = decide(write, stored, commit=self.commit)
            self._slots.append(len(self.writes) if change and change.kind != "delete" else None)
            if change is None:
                self.writes += _guard(name, stored)
            else:
                self.changes += 1
                self.writes.append(_write(change, name, stored))

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send: nothing changes, and one read is a consistent view by itself."""
        return self.changes == 0 and len(self.commit.writes) == 1

    def landed(self, results: list[Any]) -> None:
        versions = [
            0 if slot is None else wire.nanoseconds(results[slot].update_time) for slot in self._slots
        ]
        self.outcome = Committed(tuple(versions))


def _write(change: Change, name: str, stored: Stored | None) -> Any:
    if change.kind == "delete":
        return wire.Write(delete=name, current_document=_as_read(stored))
    assert change.prepared is not None
    document = to_document(change.schema, change.schema.document_of(change.prepared), name)
    if stored is not None:
        stored.differ(document)
    return wire.Write(update=document, current_document=_as_read(stored))


def _as_read(stored: Stored | None) -> Any:
    if stored is None:
        return wire.Precondition(exists=False)
    return wire.Precondition(update_time=wire.instant(stored.version))


def _guard(name: str, stored: Stored | None) -> list[Any]:
    """Writes that change nothing and fail when the document is not as it was read."""
    write = wire.Write(update=wire.Document(name=name), current_document=_as_read(stored))
    if stored is None:
        return [write, wire.Write(delete=name)]
    write.update_mask.SetInParent()  # of no field
    return [write]
