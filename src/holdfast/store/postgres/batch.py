"""Deciding a batch: each commit in its turn, against what the ones before it left. No I/O.

A batch ends as one change per document, however many of its commits touched it, so that it can be
applied by one statement for each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.postgres.dialect import array_of
from holdfast.store.postgres.statement import TableChange as TableChange
from holdfast.store.postgres.statement import Verb
from holdfast.store.postgres.table_mapping import PostgresStoredRow, PostgresTableMapping, Row
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.fenced_patch import UNDER_BYTES_MAX, FencedPatch, Group, fenced_patch, uncontended
from holdfast.store.sql.tables import AMENDED, BODY, KEY, VERSION
from holdfast.store.write_rules import Change, Current, decide, needs_current

Place = tuple[Schema[Any], str]
Plain = Write | FencedPatch


class StagedDocument:
    """A document as an earlier commit of the same batch left it."""

    __slots__ = ("prepared", "schema", "version")

    def __init__(self, schema: Schema[Any], prepared: Prepared, version: int) -> None:
        self.schema, self.prepared, self.version = schema, prepared, version

    @property
    def tenant(self) -> str | None:
        return self.prepared.tenant

    def document(self) -> Any:
        return self.schema.document_of(self.prepared)


class UnseenError(Exception):
    """A commit was refused behind a create whose id nobody has looked up, which may be refused first."""


class DocumentState:
    """One document's way through the batch."""

    __slots__ = ("before", "blind", "free", "now")

    def __init__(self, before: PostgresStoredRow | None) -> None:
        self.before = before
        self.now: Current | None = before
        self.blind = False  # may replace what nobody looked at
        self.free = -1  # the commit that stands or falls with this insert alone


class Batch:
    """What a batch comes to: an outcome for each commit, and the changes to make."""

    def __init__(
        self,
        mappings: Mapping[Schema[Any], PostgresTableMapping],
        next_version: Callable[[], int],
        *,
        plain: Mapping[int, Plain],
    ) -> None:
        self._mappings, self._next_version, self.plain = mappings, next_version, plain
        self._slots: dict[Place, DocumentState] = {}
        self._creating: dict[Schema[Any], TableChange] = {}
        self._amending: dict[tuple[Group, bool], TableChange] = {}
        self.outcomes: list[Outcome] = []
        self.touched: set[Schema[Any]] = set()
        self.again: set[int] = set()  # commits whose amendment found its conditions unmet

    def found(self, schema: Schema[Any], rows: Iterable[Row]) -> None:
        """Take in what is stored; what was asked for and is not here is absent."""
        mapping = self._mappings[schema]
        for row in rows:
            self._slots[schema, row[0]] = DocumentState(PostgresStoredRow(mapping, row))

    def decide(self, commits: Sequence[Commit], *, careful: bool = False) -> None:
        for number, commit in enumerate(commits):
            plain = self.plain.get(number)
            if plain is not None:
                self._go_plainly(number, plain, commit)
                continue
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

    def _go_plainly(self, number: int, plain: Plain, commit: Commit) -> None:
        version = self._next_version()
        try:
            if isinstance(plain, FencedPatch):
                self._amend(number, plain, commit, version=version)
            else:
                self._create(number, plain, commit, version=version)
        except HoldfastError as refusal:
            self.outcomes.append(refusal)
        else:
            self.outcomes.append(Committed((version,)))

    def _create(self, number: int, write: Write, commit: Commit, *, version: int) -> None:
        decide(write, None, commit=commit)
        assert write.prepared is not None
        mapping = self._mappings[write.schema]
        change = self._creating.get(write.schema)
        if change is None:
            change = TableChange("try", mapping.table, mapping.names, mapping.arrays)
            self._creating[write.schema] = change
        change.rows.append(mapping.row(write.prepared, version))
        change.owners[write.key] = number
        self.touched.add(write.schema)

    def _amend(self, number: int, one: FencedPatch, commit: Commit, *, version: int) -> None:
        schema = one.group.schema
        mine = commit.tenant is not None and schema.tenant is not None
        change = self._amending.get((one.group, mine))
        if change is None:
            change = amend_change(self._mappings[schema], one.group, mine=mine)
            self._amending[one.group, mine] = change
        tenant = (commit.tenant,) if mine else ()
        change.rows.append((one.key, version, *one.values, one.body, one.fence, *tenant))
        change.owners[one.key] = number
        self.touched.add(schema)

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
            slot = self._slots[change.schema, change.key] = DocumentState(None)
            if alone and not self._mappings[change.schema].lists:
                slot.free = len(self.outcomes)
            slot.blind = change.blind
        else:
            slot.free = -1
        if change.prepared is None:
            slot.now = None
            return 0
        version = self._next_version()
        slot.now = StagedDocument(change.schema, change.prepared, version)
        return version

    def changes(self) -> list[TableChange]:
        """One per table and verb, rows in key order so that two processes lock alike."""
        groups: dict[tuple[str, Verb], TableChange] = {}
        for (schema, key), slot in sorted(self._slots.items(), key=lambda one: one[0][1]):
            if slot.now is not slot.before:
                self._change(groups, self._mappings[schema], key, slot=slot)
        plain = [*self._creating.values(), *self._amending.values()]
        for change in plain:
            change.rows.sort(key=itemgetter(0))
        return [*(groups[name] for name in sorted(groups)), *plain]

    def _change(
        self,
        groups: dict[tuple[str, Verb], TableChange],
        mapping: PostgresTableMapping,
        key: str,
        *,
        slot: DocumentState,
    ) -> None:
        now = slot.now
        if now is None:
            _group(groups, "delete", mapping).rows.append((key,))
        else:
            assert isinstance(now, StagedDocument)
            change = _group(groups, _verb(slot), mapping)
            change.rows.append(mapping.row(now.prepared, now.version))
            if slot.free >= 0:
                change.owners[key] = slot.free
        for items in mapping.lists:
            new = items.rows(key, now.tenant, document=now.document()) if now else []
            old = items.items(slot.before.document()) if slot.before else []
            if gone := set(old) - {row[1] for row in new}:
                _group(groups, "drop", items).rows += [(key, item) for item in sorted(gone)]
            if new:
                _group(groups, "item", items).rows += new

    def lose(self, change: TableChange, key: str, commits: Sequence[Commit]) -> None:
        """A free insert found its id taken: its commit fails, as if it had been seen."""
        position = change.owners[key]
        if change.verb == "amend":
            self.again.add(position)
            return
        try:
            decide(commits[position].writes[0], _TAKEN, commit=commits[position])
        except HoldfastError as refusal:
            self.outcomes[position] = refusal


def _group(groups: dict[tuple[str, Verb], TableChange], verb: Verb, mapping: Any) -> TableChange:
    change = groups.get((mapping.table, verb))
    if change is None:
        change = groups[mapping.table, verb] = TableChange(verb, mapping.table, mapping.names, mapping.arrays)
    return change


def _verb(slot: DocumentState) -> Verb:
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
    commits: Sequence[Commit],
    mappings: Mapping[Schema[Any], PostgresTableMapping],
    *,
    plain: Mapping[int, Plain],
    careful: bool,
) -> dict[Schema[Any], list[str]]:
    """The keys to look at before deciding, by collection; `careful` looks at everything."""
    wanted: dict[Schema[Any], set[str]] = {}
    for number, commit in enumerate(commits):
        for write in commit.writes if number not in plain else ():
            if careful or needs_current(write) or (write.kind == "put" and mappings[write.schema].lists):
                wanted.setdefault(write.schema, set()).add(write.key)
    ordered = sorted(wanted, key=lambda schema: mappings[schema].table)
    return {schema: sorted(wanted[schema]) for schema in ordered}


def plain_ones(
    commits: Sequence[Commit], mappings: Mapping[Schema[Any], PostgresTableMapping]
) -> dict[int, Plain]:
    """Those of the commits that can be made without a look and in any order, by position."""
    alone = uncontended(commits)
    found: dict[int, Plain] = {}
    for number, commit in enumerate(commits):
        for write in commit.writes if len(commit.writes) == 1 else ():
            if (write.schema, write.key) in alone and not mappings[write.schema].lists:
                made = write if write.kind == "create" else fenced_patch(write)
                if made is not None:
                    found[number] = made
    return found


def amend_change(mapping: PostgresTableMapping, group: Group, *, mine: bool) -> TableChange:
    """The change that amends rows where fence, tenant and state are as they must be."""
    schema, fence = mapping.schema, mapping.claim_columns[1]
    names = [KEY, VERSION, *(c.stored for c in group.columns), AMENDED, fence.stored]
    arrays = ["text[]", "bigint[]", *(array_of(c.kind) for c in group.columns), "json[]", "bigint[]"]
    where = [f"t.{quote(AMENDED)} IS NULL", f"octet_length(t.{quote(BODY)}::text) <= {UNDER_BYTES_MAX}"]
    if mine and schema.tenant is not None:
        names.append(schema.tenant.stored)
        arrays.append("text[]")
    if group.states is not None and schema.state is not None:
        states = ", ".join("'" + state.replace("'", "''") + "'" for state in group.states)
        where.append(f"t.{quote(schema.state.stored)} IN ({states})")
    return TableChange("amend", mapping.table, names, arrays, where=where)
