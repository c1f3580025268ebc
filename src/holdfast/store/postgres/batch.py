"""Decides a batch: each commit in order, against what the ones before it left. Pure.

A batch ends as one change per document, however many of its commits touched it, so that it can be
applied by one statement for each table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.columns import Column
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.postgres.statement import PostgresTable, TableChange, Verb, count_change, patch_change
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup
from holdfast.store.sql.table_mapping import Row, StoredRow
from holdfast.store.sql.write_batch import (
    BulkWrites,
    ClaimedPatches,
    IndependentWrite,
    IndependentWrites,
    NewDocuments,
    PermittedWrites,
)
from holdfast.store.write_rules import Change, Current, check_create, decide

DocumentKey = tuple[Schema[Any], str]
Groups = dict[tuple[str, Verb, str], TableChange]
_KEY_OF_ROW: Final = itemgetter(0)


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


class UnreadInsertError(Exception):
    """A commit was refused after an insert whose id was not read, which may be refused first."""


class DocumentState:
    """One document before the batch, and as the commits so far left it."""

    __slots__ = ("before", "blind", "counted", "now", "owner")

    def __init__(self, before: StoredRow | None) -> None:
        self.before = before
        self.now: Current | None = before
        self.blind = False  # may replace what was not read
        self.counted: Column | None = None  # what a counting upsert adds to, where the document exists
        self.owner = -1  # the commit that succeeds or fails with this insert alone


class OwnPatches(NamedTuple):
    """The patches of one group that one tenant's commits make: their change, and its last value."""

    change: TableChange
    tenant: tuple[str, ...]


class Batch:
    """An outcome for each commit, and the changes to make."""

    def __init__(
        self,
        mappings: Mapping[Schema[Any], PostgresTable],
        next_version: Callable[[], int],
        *,
        independent: IndependentWrites,
        bulk: Mapping[int, BulkWrites],
        counts: Mapping[DocumentKey, Column],
    ) -> None:
        self._mappings, self._next_version = mappings, next_version
        self._independent, self._bulk, self.counts = independent, bulk, counts
        # Commits that are made without reading their documents.
        self.unread: Collection[int] = (
            range(len(independent))
            if isinstance(independent, (NewDocuments, ClaimedPatches))
            else {*independent, *bulk}
        )
        self._bulk_versions: dict[int, int] = {}
        self._states: dict[DocumentKey, DocumentState] = {}
        self._creates: dict[Schema[Any], TableChange] = {}
        self._patches: dict[tuple[PatchGroup, bool], TableChange] = {}
        self._own_patches: dict[tuple[PatchGroup, str | None], OwnPatches] = {}
        self.outcomes: list[Outcome] = []
        self.touched: set[Schema[Any]] = set()
        self.unclaimable: set[Schema[Any]] = set()  # touched, and left with nothing new to claim
        self.unpatched: set[int] = set()  # commits whose blind patch found its conditions unmet

    def add_rows(self, schema: Schema[Any], rows: Iterable[Row]) -> None:
        """Add what is stored; of the keys read, those without a row are absent."""
        mapping = self._mappings[schema]
        for row in rows:
            self._states[schema, row[0]] = DocumentState(StoredRow(mapping, row))

    def decide(self, commits: Sequence[Commit], *, careful: bool = False) -> None:
        independent = self._independent
        if isinstance(independent, NewDocuments):
            self._create_all(independent)
            return
        if isinstance(independent, ClaimedPatches):
            self._patch_all(independent)
            return
        if isinstance(independent, PermittedWrites):
            self._make_all(independent, commits)
            return
        for number, commit in enumerate(commits):
            if number in self._bulk:
                self._add_bulk(number, commit)
            elif number in independent:
                self._add_independent(number, independent[number], commit)
            else:
                self._decide(commit, careful=careful)

    def _decide(self, commit: Commit, *, careful: bool) -> None:
        changes: list[Change | None] = []
        try:
            changes.extend(decide(write, self._now(write), commit=commit) for write in commit.writes)
        except HoldfastError as refusal:
            if not careful and self._has_unread(commit.writes[: len(changes)]):
                raise UnreadInsertError from refusal
            self.outcomes.append(refusal)
        else:
            alone = len(changes) == 1 and commit.writes[0].kind == "create"
            self.outcomes.append(Committed(tuple([self._stage(c, alone) for c in changes])))

    def _add_bulk(self, number: int, commit: Commit) -> None:
        version = self._bulk_versions[number] = self._next_version()
        bulk = self._bulk[number]
        self.touched.update(bulk.creates, [schema for schema, _ in bulk.counts])
        self.outcomes.append(Committed((version,) * len(commit.writes)))

    def _add_independent(self, number: int, write: IndependentWrite, commit: Commit) -> None:
        version = self._next_version()
        try:
            if isinstance(write, BlindPatch):
                self._patch(number, write, commit, version=version)
            else:
                check_create(write, commit)
                self._create(number, write, version=version)
        except HoldfastError as refusal:
            self.outcomes.append(refusal)
        else:
            self.outcomes.append(Committed((version,)))

    def _make_all(self, permitted: PermittedWrites, commits: Sequence[Commit]) -> None:
        """Add the writes of all commits, which only a taken id or unmet conditions can refuse.

        They are of different documents, and share a version.
        """
        version = self._next_version()
        for number, write in permitted.items():
            if isinstance(write, BlindPatch):
                self._patch(number, write, commits[number], version=version)
            else:
                self._create(number, write, version=version)
        self.outcomes = [Committed((version,))] * len(commits)

    def _create(self, number: int, write: Write, *, version: int) -> None:
        assert write.prepared is not None
        mapping = self._mappings[write.schema]
        change = self._creates.get(write.schema)
        if change is None:
            change = TableChange("try", mapping.table, mapping.names, mapping.arrays)
            self._creates[write.schema] = change
        change.rows.append(mapping.row(write.prepared, version))
        change.owners[write.key] = number
        self.touched.add(write.schema)

    def _create_all(self, new: NewDocuments) -> None:
        """Add the creates of all commits, which only a taken id can refuse; they share a version."""
        mapping, version = self._mappings[new.schema], self._next_version()
        change = TableChange("try", mapping.table, mapping.names, mapping.arrays)
        change.rows = mapping.rows(new.documents, version)
        change.owners = {one.key: number for number, one in enumerate(new.documents)}
        self._creates[new.schema] = change
        self.touched.add(new.schema)
        self.outcomes = [Committed((version,))] * len(new.documents)

    def _patch_all(self, claimed: ClaimedPatches) -> None:
        """Add the patches of all commits, which only unmet conditions can refuse; they share a version."""
        version = self._next_version()
        for group, numbers in claimed.groups().items():
            change, tenant = self._patches_of(group, claimed.tenant)
            patches = [claimed.patches[number] for number in numbers]
            change.rows = [_patch_row(one, version, tenant) for one in patches]
            change.owners = dict(zip([one.key for one in patches], numbers, strict=True))
        self.outcomes = [Committed((version,))] * len(claimed.patches)

    def _patch(self, number: int, one: BlindPatch, commit: Commit, *, version: int) -> None:
        own = self._own_patches.get((one.group, commit.tenant))
        if own is None:
            own = self._own_patches[one.group, commit.tenant] = self._patches_of(one.group, commit.tenant)
        own.change.rows.append(_patch_row(one, version, own.tenant))
        own.change.owners[one.key] = number

    def _patches_of(self, group: PatchGroup, tenant_id: str | None) -> OwnPatches:
        schema, tenant = group.schema, tenant_values(group, tenant_id)
        self.touched.add(schema)
        change = self._patches.get((group, bool(tenant)))
        if change is None:
            change = patch_change(self._mappings[schema], group, tenanted=bool(tenant))
            self._patches[group, bool(tenant)] = change
        return OwnPatches(change, tenant)

    def _has_unread(self, writes: Sequence[Write]) -> bool:
        """Whether one of these creates and counting upserts was decided without reading its id."""
        return any(
            (w.schema, w.key) not in self._states and (w.kind == "create" or (w.schema, w.key) in self.counts)
            for w in writes
        )

    def _now(self, write: Write) -> Current | None:
        state = self._states.get((write.schema, write.key))
        return None if state is None else state.now

    def _stage(self, change: Change | None, alone: bool) -> int:
        if change is None:
            return 0
        self.touched.add(change.schema)
        state = self._states.get((change.schema, change.key))
        if state is None:
            state = self._states[change.schema, change.key] = DocumentState(None)
            if alone and not self._mappings[change.schema].lists:
                state.owner = len(self.outcomes)
            state.blind, state.counted = change.blind, self.counts.get((change.schema, change.key))
        else:
            state.owner = -1
        if change.prepared is None:
            state.now = None
            return 0
        version = self._next_version()
        state.now = StagedDocument(change.schema, change.prepared, version)
        return version

    def changes(self) -> list[TableChange]:
        """One per table and verb, rows in key order so that two processes lock alike."""
        groups: Groups = {}
        for (schema, key), state in sorted(self._states.items(), key=lambda one: one[0][1]):
            if state.now is not state.before:
                self._change(groups, self._mappings[schema], key, state=state)
        for number, version in self._bulk_versions.items():
            self._group_bulk(groups, self._bulk[number], version)
        independent = [*self._creates.values(), *self._patches.values()]
        for change in independent:
            change.rows.sort(key=_KEY_OF_ROW)
        changes = [*(groups[name] for name in sorted(groups)), *independent]
        mappings = self._mappings
        self.unclaimable = {one for one in self.touched if not leaves_claimable(mappings[one], changes)}
        return changes

    def _group_bulk(self, groups: Groups, bulk: BulkWrites, version: int) -> None:
        for schema, counted, writes in bulk.groups():
            mapping = self._mappings[schema]
            change = _group(groups, "insert", mapping, counted=counted)
            change.rows += mapping.rows([w.prepared for w in writes if w.prepared is not None], version)
            change.rows.sort(key=_KEY_OF_ROW)

    def _change(
        self,
        groups: Groups,
        mapping: PostgresTable,
        key: str,
        *,
        state: DocumentState,
    ) -> None:
        now = state.now
        if now is None:
            _group(groups, "delete", mapping).rows.append((key,))
        else:
            assert isinstance(now, StagedDocument)
            change = _group(groups, _verb(state), mapping, counted=state.counted)
            version_read = () if state.before is None else (state.before.version,)
            change.rows.append((*mapping.row(now.prepared, now.version), *version_read))
            if state.owner >= 0:
                change.owners[key] = state.owner
        for items in mapping.lists:
            new = items.rows(key, now.tenant, document=now.document()) if now else []
            old = items.items(state.before.document()) if state.before else []
            if gone := set(old) - {row[1] for row in new}:
                _group(groups, "drop", items).rows += [(key, item) for item in sorted(gone)]
            if new:
                _group(groups, "item", items).rows += new

    def lose(self, change: TableChange, key: str, commits: Sequence[Commit]) -> None:
        """Record that an insert found its id taken, or a patch its conditions unmet."""
        position = change.owners[key]
        if change.verb == "patch":
            self.unpatched.add(position)
            return
        commit = commits[position]
        self.outcomes[position] = taken(commit.writes[0], commit)


def tenant_values(group: PatchGroup, tenant: str | None) -> tuple[str, ...]:
    """Return the tenant whose a document must be for a patch to change it; none where any may be."""
    return () if tenant is None or group.schema.tenant is None else (tenant,)


def independent_row(
    mapping: PostgresTable, write: IndependentWrite, commit: Commit, *, version: int
) -> tuple[Any, ...]:
    """Return the row by which a create or blind patch is made."""
    if isinstance(write, BlindPatch):
        return _patch_row(write, version, tenant_values(write.group, commit.tenant))
    assert write.prepared is not None
    return mapping.row(write.prepared, version)


def _patch_row(one: BlindPatch, version: int, tenant: tuple[str, ...]) -> tuple[Any, ...]:
    return (one.key, version, *one.values, one.body, *one.expected, *tenant)


def leaves_claimable(mapping: PostgresTable, changes: Iterable[TableChange]) -> bool:
    """Whether these changes leave, or may leave, a document of the collection that can be claimed."""
    schema = mapping.schema
    if schema.claim is None:
        return True
    due, owner = mapping.claim_columns[0].stored, schema.claim.owner
    held_by = None if owner is None else schema.fields[owner].encode_name
    return any(c.leaves_claimable(due, held_by) for c in changes if c.table == mapping.table)


def _group(groups: Groups, verb: Verb, mapping: Any, *, counted: Column | None = None) -> TableChange:
    verb = verb if counted is None else "count"
    name = (mapping.table, verb, "" if counted is None else counted.stored)
    change = groups.get(name)
    if change is None:
        change = (
            TableChange(verb, mapping.table, mapping.names, mapping.arrays, guarded=verb == "update")
            if counted is None
            else count_change(mapping, counted)
        )
        groups[name] = change
    return change


def _verb(state: DocumentState) -> Verb:
    if state.before is not None:
        return "update"
    if state.blind:
        return "upsert"
    return "try" if state.owner >= 0 else "insert"


class _Taken:
    """A stored document of which only the id is known."""

    version = 0
    tenant: str | None = None

    def document(self) -> Any:
        raise NotImplementedError("a create never reads the document that has its id")


def taken(write: Write, commit: Commit) -> HoldfastError:
    """Return the error that refuses a create whose id is taken."""
    try:
        decide(write, _TAKEN, commit=commit)
    except HoldfastError as refusal:
        return refusal
    raise AssertionError(f"a create of {write.schema.name} was not made, and no rule refuses it")


_TAKEN: Final = _Taken()
