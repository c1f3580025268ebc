"""Which commits of a batch can be made by dozens in one statement, on either SQL engine."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.columns import Column
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Write
from holdfast.store.commit_batch import CreateBatch, PatchBatch, create_batch
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup, blind_batch, blind_patch, blind_patches
from holdfast.store.sql.counting_upsert import counting_column

IndependentWrite = Write | BlindPatch


class PermittedWrites(dict[int, IndependentWrite]):
    """All commits of a batch: creates that only a taken id can refuse, and blind patches."""


class NewDocuments:
    """What all commits of a batch create: documents of one collection, which only a taken id can refuse.

    They are in the order of the commits.
    """

    __slots__ = ("documents", "schema")

    def __init__(self, schema: Schema[Any], documents: Sequence[Prepared]) -> None:
        self.schema, self.documents = schema, documents

    def __len__(self) -> int:
        return len(self.documents)


class ClaimedPatches:
    """What all commits of a batch do: patch documents of one collection, each another, under its fence.

    They are in the order of the commits.
    """

    __slots__ = ("patches", "tenant")

    def __init__(self, patches: Sequence[BlindPatch], *, tenant: str | None) -> None:
        self.patches, self.tenant = patches, tenant

    def groups(self) -> dict[PatchGroup, Sequence[int]]:
        """Return the positions of the patches that one statement makes; most batches have one group."""
        found = dict.fromkeys([one.group for one in self.patches])
        if len(found) == 1:
            return dict.fromkeys(found, range(len(self.patches)))
        return {group: [n for n, one in enumerate(self.patches) if one.group is group] for group in found}

    def __len__(self) -> int:
        return len(self.patches)


IndependentWrites = dict[int, IndependentWrite] | NewDocuments | ClaimedPatches
# Those that are all of their batch, and that only the stored rows can refuse.
COMPLETE: Final = (NewDocuments, ClaimedPatches, PermittedWrites)


class BulkWrites(NamedTuple):
    """A commit's writes by the statement that makes them, and the `others`, which must be decided."""

    creates: dict[Schema[Any], list[Write]]
    counts: dict[tuple[Schema[Any], Column], list[Write]]
    others: list[Write]

    def groups(self) -> Iterator[tuple[Schema[Any], Column | None, list[Write]]]:
        """Yield the writes of one statement together, with the column that they count in."""
        for schema, writes in self.creates.items():
            yield schema, None, writes
        for (schema, column), writes in self.counts.items():
            yield schema, column, writes


def independent_writes(commits: Sequence[Commit], listed: Container[Schema[Any]]) -> IndependentWrites:
    """Return, by position, the commits that can be made without a read and in any order.

    These are creates and blind patches, alone in their commit, of documents that no other commit
    touches; collections with list indexes (`listed`) need their items written one by one.
    Where they are all commits of the batch, they are returned as `NewDocuments`, `ClaimedPatches` or
    `PermittedWrites`.
    """
    independent: dict[int, IndependentWrite] = {}
    if type(commits) is PatchBatch and (claimed := _claimed_patches(commits, listed)) is not None:
        return claimed
    if len(commits) > 1:
        new = new_documents(commits, listed)
        if new is not None:
            return new
    if all(len(commit.writes) != 1 for commit in commits):
        return independent
    if len(commits) > 1:
        permitted = _permitted_writes(commits, listed)
        if permitted is not None:
            return permitted
    uncontended = uncontended_documents(commits)
    for number, commit in enumerate(commits):
        if len(commit.writes) != 1:
            continue
        write = commit.writes[0]
        if write.schema in listed or (write.schema, write.key) not in uncontended:
            continue
        made = write if write.kind == "create" else blind_patch(write)
        if made is not None:
            independent[number] = made
    return independent


def _claimed_patches(batch: PatchBatch, listed: Container[Schema[Any]]) -> ClaimedPatches | None:
    """Return a batch's patches; None where a document has two, or where one of them has to be looked at."""
    if batch.schema in listed or len(set(batch.keys)) < len(batch):
        return None
    patches = blind_batch(batch)
    return None if patches is None else ClaimedPatches(patches, tenant=batch.tenant)


def _permitted_writes(commits: Sequence[Commit], listed: Container[Schema[Any]]) -> PermittedWrites | None:
    """Return the writes of a batch as a dispatcher makes it: new documents and patches of the same fields.

    None where one is something else, or where a document has two: those are looked at one by one.
    """
    creates: list[Commit] = []
    patches: list[tuple[int, Write]] = []
    found = PermittedWrites()
    for number, commit in enumerate(commits):
        if len(commit.writes) != 1:
            return None
        write = commit.writes[0]
        if write.kind == "create":
            found[number] = write
            creates.append(commit)
        else:
            patches.append((number, write))
    written = [write for _, write in patches]
    keys = {(write.schema, write.key) for write in written}
    if not written or written[0].schema in listed or len(keys) < len(written):
        return None
    if creates:
        new = new_documents(creates, listed)
        if new is None or not keys.isdisjoint([(new.schema, one.key) for one in new.documents]):
            return None
    made = blind_patches(written)
    if made is None:
        return None
    found.update(zip([number for number, _ in patches], made, strict=True))
    return found


def bulk_commits(commits: Sequence[Commit], listed: Container[Schema[Any]]) -> dict[int, BulkWrites]:
    """Return, by position, the commits of many writes that need no decision and touch nothing of others."""
    found: dict[int, BulkWrites] = {}
    for number, commit in enumerate(commits):
        if len(commit.writes) > 1:
            bulk = bulk_writes(commit, listed)
            if not bulk.others:
                found[number] = bulk
    if not found or len(commits) == 1:
        return found
    uncontended = uncontended_documents(commits)
    return {
        number: bulk
        for number, bulk in found.items()
        if all((write.schema, write.key) in uncontended for write in commits[number].writes)
    }


def bulk_writes(commit: Commit, listed: Container[Schema[Any]]) -> BulkWrites:
    """Sort a commit's writes: creates and counting upserts that only the stored row can refuse, others."""
    creates: dict[Schema[Any], list[Write]] = {}
    counts: dict[tuple[Schema[Any], Column], list[Write]] = {}
    others: list[Write] = []
    for write in commit.writes:
        schema = write.schema
        if write.kind == "create":
            same = creates.get(schema)
            if same is None:
                same = creates[schema] = []
            same.append(write)
        elif (column := counting_column(write, commit)) is not None:
            counts.setdefault((schema, column), []).append(write)
        else:
            others.append(write)
    for schema, writes in list(creates.items()):
        if not insertable(schema, prepared_of(writes), tenant=commit.tenant, listed=listed):
            others += creates.pop(schema)
    for group, writes in list(counts.items()):
        if not _own(prepared_of(writes), commit.tenant):
            others += counts.pop(group)
    return BulkWrites(creates, counts, others)


def new_documents(commits: Sequence[Commit], listed: Container[Schema[Any]]) -> NewDocuments | None:
    """Return what commits create that each add one document of the same collection for the same tenant.

    None where one does something else, where two add the same document, or where something else than its key
    can refuse one: those have to be decided one by one.
    """
    batch = commits if type(commits) is CreateBatch else _as_batch(commits)
    if batch is None or len({one.key for one in batch.documents}) < len(batch):
        return None
    permitted = insertable(batch.schema, batch.documents, tenant=batch.tenant, listed=listed)
    return NewDocuments(batch.schema, batch.documents) if permitted else None


def _as_batch(commits: Sequence[Commit]) -> CreateBatch | None:
    if len({commit.tenant for commit in commits}) > 1:
        return None
    return create_batch([commit.writes for commit in commits], commits[0].tenant)


def prepared_of(writes: Iterable[Write]) -> list[Prepared]:
    return [write.prepared for write in writes if write.prepared is not None]


def insertable(
    schema: Schema[Any], documents: Sequence[Prepared], *, tenant: str | None, listed: Container[Schema[Any]]
) -> bool:
    """Whether the primary key is the only rule left that can refuse to create these documents."""
    return schema not in listed and _own(documents, tenant) and _may_start(schema, documents)


def _may_start(schema: Schema[Any], documents: Iterable[Prepared]) -> bool:
    """Whether all documents begin in a state that new ones may have."""
    if not (schema.lifecycle and schema.state):
        return True
    try:
        for state in schema.states_of(documents):
            schema.lifecycle.check_start(state, schema.state.stored)
    except HoldfastError:
        return False
    return True


def _own(documents: Iterable[Prepared], tenant: str | None) -> bool:
    """Whether all documents are the tenant's; a privileged handle names none and may write for any."""
    return tenant is None or {one.tenant for one in documents} <= {None, tenant}


def counting_upserts(
    commits: Sequence[Commit], bulk: Container[int] = ()
) -> dict[tuple[Schema[Any], str], Column]:
    """Return the documents that only a counting upsert of these commits touches, with what it counts.

    Commits that are made in bulk are left out.
    """
    found = {
        (write.schema, write.key): column
        for number, commit in enumerate(commits)
        if number not in bulk
        for write in commit.writes
        if (column := counting_column(write, commit)) is not None
    }
    uncontended = uncontended_documents(commits) if found else set()
    return {document: column for document, column in found.items() if document in uncontended}


def uncontended_documents(commits: Iterable[Commit]) -> set[tuple[Schema[Any], str]]:
    """Return the documents that only one write of these commits touches."""
    once: set[tuple[Schema[Any], str]] = set()
    seen: set[tuple[Schema[Any], str]] = set()
    for commit in commits:
        for write in commit.writes:
            document = (write.schema, write.key)
            (once.discard if document in seen else once.add)(document)
            seen.add(document)
    return once
