"""Deciding a batch: each commit in its turn, against what the ones before it left. No I/O.

A batch ends as one change per document, however many of its commits touched it, so that it can be
applied by one statement for each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Change, Commit, Committed, Current, Outcome, Write, decide, needs_current
from holdfast.store.postgres.shelf import Row, Shelf, StoredRow
from holdfast.store.postgres.statement import Change as TableChange
from holdfast.store.postgres.statement import Verb

Place = tuple[Schema[Any], str]


class Landed:
    """A document as an earlier commit of the same batch left it."""

    __slots__ = ("prepared", "version")

    def __init__(self, prepared: Prepared, version: int) -> None:
        self.prepared, self.version = prepared, version

    @property
    def tenant(self) -> str | None:
        return self.prepared.tenant

    def document(self) -> Any:
        return self.prepared.document


class UnseenError(Exception):
    """A commit was refused behind a create whose id nobody has looked up, which may be refused first."""


class Slot:
    """One document's way through the batch."""

    __slots__ = ("before", "blind", "free", "now")

    def __init__(self, before: StoredRow | None) -> None:
        self.before = before
        self.now: Current | None = before
        self.blind = False  # may replace what nobody looked at
        self.free = -1  # the commit that stands or falls with this insert alone


class Work:
    """What a batch comes to: an outcome for each commit, and the changes to make."""

    def __init__(self, shelves: Mapping[Schema[Any], Shelf], next_version: Callable[[], int]) -> None:
        self._shelves, self._next_version = shelves, next_version
        self._slots: dict[Place, Slot] = {}
        self.outcomes: list[Outcome] = []
        self.touched: set[Schema[Any]] = set()

    def found(self, schema: Schema[Any], rows: Iterable[Row]) -> None:
        """Take in what is stored; what was asked for and is not here is absent."""
        shelf = self._shelves[schema]
        for row in rows:
            self._slots[schema, row[0]] = Slot(StoredRow(shelf, row))

    def decide(self, commits: Sequence[Commit], *, careful: bool = False) -> None:
        for commit in commits:
            changes: list[Change | None] = []
            try:
                changes.extend(decide(write, self._now(write), commit=commit) for write in commit.writes)
            except HoldfastError as refusal:
                if not careful and self._trusted(commit.writes[: len(changes)]):
                    raise UnseenError from refusal
                self.outcomes.append(refusal)
            else:
                alone = len(changes) == 1 and commit.writes[0].kind == "create"
                self.outcomes.append(Committed(tuple([self._land(c, alone) for c in changes])))

    def _trusted(self, writes: Sequence[Write]) -> bool:
        """Whether one of these was let through without a look at what is there."""
        return any(w.kind == "create" and (w.schema, w.key) not in self._slots for w in writes)

    def _now(self, write: Write) -> Current | None:
        slot = self._slots.get((write.schema, write.key))
        return None if slot is None else slot.now

    def _land(self, change: Change | None, alone: bool) -> int:
        if change is None:
            return 0
        self.touched.add(change.schema)
        slot = self._slots.get((change.schema, change.key))
        if slot is None:
            slot = self._slots[change.schema, change.key] = Slot(None)
            if alone and not self._shelves[change.schema].lists:
                slot.free = len(self.outcomes)
            slot.blind = change.blind
        else:
            slot.free = -1
        if change.prepared is None:
            slot.now = None
            return 0
        version = self._next_version()
        slot.now = Landed(change.prepared, version)
        return version

    def changes(self) -> list[TableChange]:
        """One per table and verb, rows in key order so that two processes lock alike."""
        groups: dict[tuple[str, Verb], TableChange] = {}
        for (schema, key), slot in sorted(self._slots.items(), key=lambda one: one[0][1]):
            if slot.now is not slot.before:
                self._change(groups, self._shelves[schema], key, slot=slot)
        return [groups[name] for name in sorted(groups)]

    def _change(
        self, groups: dict[tuple[str, Verb], TableChange], shelf: Shelf, key: str, *, slot: Slot
    ) -> None:
        now = slot.now
        if now is None:
            _group(groups, "delete", shelf).rows.append((key,))
        else:
            assert isinstance(now, Landed)
            change = _group(groups, _verb(slot), shelf)
            change.rows.append(shelf.row(now.prepared, now.version))
            if slot.free >= 0:
                change.owners[key] = slot.free
        for items in shelf.lists:
            new = items.rows(key, now.tenant, document=now.document()) if now else []
            old = items.items(slot.before.document()) if slot.before else []
            if gone := set(old) - {row[1] for row in new}:
                _group(groups, "drop", items).rows += [(key, item) for item in sorted(gone)]
            if new:
                _group(groups, "item", items).rows += new

    def lose(self, change: TableChange, key: str, commits: Sequence[Commit]) -> None:
        """A free insert found its id taken: its commit fails, as if it had been seen."""
        position = change.owners[key]
        try:
            decide(commits[position].writes[0], _TAKEN, commit=commits[position])
        except HoldfastError as refusal:
            self.outcomes[position] = refusal


def _group(groups: dict[tuple[str, Verb], TableChange], verb: Verb, shelf: Any) -> TableChange:
    change = groups.get((shelf.table, verb))
    if change is None:
        change = groups[shelf.table, verb] = TableChange(verb, shelf.table, shelf.names, shelf.arrays)
    return change


def _verb(slot: Slot) -> Verb:
    if slot.before is not None:
        return "update"
    if slot.blind:
        return "upsert"
    return "try" if slot.free >= 0 else "insert"


class _Taken:
    """Somebody's document, about which nothing else is known."""

    version = 0
    tenant: str | None = None

    def document(self) -> Any:
        raise NotImplementedError("a create never looks at the document in its way")


_TAKEN = _Taken()


def to_read(
    commits: Sequence[Commit], shelves: Mapping[Schema[Any], Shelf], *, careful: bool
) -> dict[Schema[Any], list[str]]:
    """The keys to look at before deciding, by collection; `careful` looks at everything."""
    wanted: dict[Schema[Any], set[str]] = {}
    for commit in commits:
        for write in commit.writes:
            if careful or needs_current(write) or (write.kind == "put" and shelves[write.schema].lists):
                wanted.setdefault(write.schema, set()).add(write.key)
    ordered = sorted(wanted, key=lambda schema: shelves[schema].table)
    return {schema: sorted(wanted[schema]) for schema in ordered}
