"""Which commits of a batch can be made by dozens in one statement, on either SQL engine."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Write
from holdfast.store.sql.counting_upsert import counting_column
from holdfast.store.sql.fenced_patch import FencedPatch, fenced_patch

IndependentWrite = Write | FencedPatch


def independent_writes(
    commits: Sequence[Commit], listed: Container[Schema[Any]]
) -> dict[int, IndependentWrite]:
    """Return, by position, the commits that can be made without a read and in any order.

    These are creates and fenced patches, alone in their commit, of documents that no other commit
    touches; collections with list indexes (`listed`) need their items written one by one.
    """
    uncontended = uncontended_documents(commits)
    independent: dict[int, IndependentWrite] = {}
    for number, commit in enumerate(commits):
        if len(commit.writes) != 1:
            continue
        write = commit.writes[0]
        if write.schema in listed or (write.schema, write.key) not in uncontended:
            continue
        made = write if write.kind == "create" else fenced_patch(write)
        if made is not None:
            independent[number] = made
    return independent


def counting_upserts(commits: Sequence[Commit]) -> dict[tuple[Schema[Any], str], Column]:
    """Return the documents that only a counting upsert of these commits touches, with what it counts."""
    found = {
        (write.schema, write.key): column
        for commit in commits
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
