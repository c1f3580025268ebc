"""Which commits of a batch can be made by dozens in one statement, on either SQL engine."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Write
from holdfast.store.sql.blind_patch import BlindPatch, blind_patch
from holdfast.store.sql.counting_upsert import counting_column

IndependentWrite = Write | BlindPatch


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


def independent_writes(
    commits: Sequence[Commit], listed: Container[Schema[Any]]
) -> dict[int, IndependentWrite]:
    """Return, by position, the commits that can be made without a read and in any order.

    These are creates and blind patches, alone in their commit, of documents that no other commit
    touches; collections with list indexes (`listed`) need their items written one by one.
    """
    independent: dict[int, IndependentWrite] = {}
    if all(len(commit.writes) != 1 for commit in commits):
        return independent
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
        if not insertable(schema, writes, tenant=commit.tenant, listed=listed):
            others += creates.pop(schema)
    for group, writes in list(counts.items()):
        if not _own(writes, commit.tenant):
            others += counts.pop(group)
    return BulkWrites(creates, counts, others)


def insertable(
    schema: Schema[Any], writes: Sequence[Write], *, tenant: str | None, listed: Container[Schema[Any]]
) -> bool:
    """Whether the primary key is the only rule left that can refuse these creates."""
    return schema not in listed and not schema.lifecycle and _own(writes, tenant)


def _own(writes: Sequence[Write], tenant: str | None) -> bool:
    """Whether all documents are the tenant's; a privileged handle names none and may write for any."""
    return tenant is None or {w.prepared.tenant for w in writes if w.prepared} <= {None, tenant}


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
