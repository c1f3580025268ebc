"""Hundreds of new documents of one collection: row after row with one prepared statement.

That costs half of what dozens to a statement do, where there are enough of them to pay for a savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import apsw

from holdfast.store.commit import Commit, Committed, Outcome
from holdfast.store.sqlite.shelf import Shelf

if TYPE_CHECKING:
    from holdfast.store.sqlite.desk import Desk

MANY: Final = 256


def fill(desk: Desk, commits: Sequence[Commit]) -> list[Outcome] | None:
    """The outcomes, where all commits are such and all succeed; otherwise None, and nothing has happened."""
    if len(commits) < MANY or not commits[0].writes:
        return None
    shelf = desk.shelves[commits[0].writes[0].schema]
    version = desk.version + 1
    rows = _rows(shelf, commits, version)
    if rows is None or not _insert(desk.link, shelf, rows):
        return None
    desk.version = version
    desk.touched.add(shelf.schema)
    return [Committed((version,))] * len(commits)


def _rows(shelf: Shelf, commits: Sequence[Commit], version: int) -> list[tuple[Any, ...]] | None:
    schema = shelf.schema
    if shelf.lists or schema.lifecycle:
        return None
    rows, tenants = [], {commit.tenant for commit in commits}
    if len(tenants) > 1:
        return None
    tenants.add(None)
    for commit in commits:
        if len(commit.writes) != 1:
            return None
        write = commit.writes[0]
        prepared = write.prepared
        if write.kind != "create" or write.schema is not schema or prepared is None:
            return None
        # A privileged handle names no tenant and may write for any.
        if commit.tenant is not None and prepared.tenant not in tenants:
            return None
        rows.append(shelf.insert_row(prepared, version))
    return rows


def _insert(link: apsw.Connection, shelf: Shelf, rows: list[tuple[Any, ...]]) -> bool:
    link.execute("SAVEPOINT filling")
    try:
        link.executemany(shelf.insert_sql, rows)
    except apsw.ConstraintError:
        link.execute("ROLLBACK TO filling")
        return False
    finally:
        link.execute("RELEASE filling")
    return True
