"""What a batch must read before it is decided. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit
from holdfast.store.postgres.batch import DocumentKey
from holdfast.store.postgres.statement import PostgresTable
from holdfast.store.write_rules import needs_current


def needs_locks(commits: Sequence[Commit], unread: Container[int]) -> bool:
    """Whether a commit depends on documents that it may leave as they are: no write would notice a change."""
    return any(
        write.kind in ("check", "delete")
        for number, commit in enumerate(commits)
        if number not in unread
        for write in commit.writes
    )


def keys_to_read(
    commits: Sequence[Commit],
    mappings: Mapping[Schema[Any], PostgresTable],
    *,
    unread: Container[int],
    counts: Mapping[DocumentKey, Column],
    careful: bool,
) -> dict[Schema[Any], list[str]]:
    """Return the keys to read before deciding, by collection; `careful` reads everything."""
    wanted: dict[Schema[Any], set[str]] = {}
    for number, commit in enumerate(commits):
        for write in commit.writes if number not in unread else ():
            if (write.schema, write.key) in counts:
                continue
            if careful or needs_current(write) or (write.kind == "put" and mappings[write.schema].lists):
                wanted.setdefault(write.schema, set()).add(write.key)
    ordered = sorted(wanted, key=lambda schema: mappings[schema].table)
    return {schema: sorted(wanted[schema]) for schema in ordered}
