"""One commit on its way: what it must read, and the guarded writes it comes to.

Every document that was read is guarded: one that was there by its update time, one that was not by
its absence. So whatever was decided still holds at the instant the writes land, without a
transaction and its locks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.store.commit import Change, Commit, Committed, Outcome, Write, decide, needs_current
from holdfast.store.firestore import wire
from holdfast.store.firestore.places import Places, Stored, to_document


class Draft:
    """A commit and how far it got."""

    def __init__(self, commit: Commit, places: Places) -> None:
        self.commit = commit
        self.names = [places.name(write.schema, write.key) for write in commit.writes]
        self.reads = [n for n, w in zip(self.names, commit.writes, strict=True) if needs_current(w)]
        self.outcome: Outcome | None = None
        self.writes: list[Any] = []
        self.guarded = True
        self._slots: list[int | None] = []
        self.changes = 0

    def read_all(self) -> None:
        """After a conflict nothing is taken for granted, not even that a new id is free."""
        self.reads = list(self.names)

    def decide(self, found: Mapping[str, Any]) -> None:
        """Make the writes from what was read; raises what the rule book refuses."""
        self.writes, self._slots, self.guarded, self.changes = [], [], True, 0
        for write, name in zip(self.commit.writes, self.names, strict=True):
            stored = Stored(write.schema, write.key, found[name]) if name in found else None
            change = decide(write, stored, commit=self.commit)
            self._slots.append(len(self.writes) if change and change.kind != "delete" else None)
            if change is None:
                self.writes += _guard(name, stored)
            else:
                self.changes += 1
                self._add(write, change, name, stored)

    def _add(self, write: Write, change: Change, name: str, stored: Stored | None) -> None:
        guard = wire.Precondition(exists=False)
        if stored is not None:
            guard = wire.Precondition(update_time=wire.instant(stored.version))
        elif write.kind != "create" and name not in self.reads:
            guard, self.guarded = None, False
        if change.kind == "delete":
            self.writes.append(wire.Write(delete=name, current_document=guard))
            return
        assert change.prepared is not None
        document = to_document(change.schema, change.prepared.document, name)
        self.writes.append(wire.Write(update=document, current_document=guard))

    @property
    def idle(self) -> bool:
        """Whether there is nothing to send: nothing changes, and one read is a consistent view by itself."""
        return self.changes == 0 and len(self.commit.writes) == 1

    def landed(self, results: list[Any]) -> None:
        versions = [
            0 if slot is None else wire.nanoseconds(results[slot].update_time) for slot in self._slots
        ]
        self.outcome = Committed(tuple(versions))


def _guard(name: str, stored: Stored | None) -> list[Any]:
    """Writes that change nothing and fail when the document is not as it was read."""
    if stored is not None:
        same = wire.Precondition(update_time=wire.instant(stored.version))
        nothing = wire.DocumentMask()
        return [wire.Write(update=wire.Document(name=name), update_mask=nothing, current_document=same)]
    absent = wire.Precondition(exists=False)
    return [
        wire.Write(update=wire.Document(name=name), current_document=absent),
        wire.Write(delete=name),
    ]
