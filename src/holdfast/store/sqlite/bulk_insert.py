"""Many new documents of one collection, in many commits or in one: put in by hundreds, without a look.

Each statement lets the other threads run and must wait for its turn to go on: by hundreds, the rows go in
while others work. Where an id turns out to be taken, nothing has happened, and the slow way says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import apsw

from holdfast.errors import HoldfastError
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.sqlite.table_mapping import SqliteTableMapping
from holdfast.store.write_rules import Change, decide

if TYPE_CHECKING:
    from holdfast.store.sqlite.write_transaction import WriteTransaction

# From how many documents on a savepoint is paid for.
MANY: Final = 256
MANY_IN_ONE: Final = 16


def fill(transaction: WriteTransaction, commits: Sequence[Commit]) -> list[Outcome] | None:
    """The outcomes, where all commits make one document each and all succeed; otherwise None."""
    if len(commits) < MANY or any(len(commit.writes) != 1 for commit in commits):
        return None
    tenant, writes = commits[0].tenant, [commit.writes[0] for commit in commits]
    alike = all(commit.tenant == tenant for commit in commits) and len({w.schema for w in writes}) == 1
    mapping = transaction.mappings[writes[0].schema]
    if not alike or any(w.kind != "create" for w in writes) or not _may_fill(mapping, writes, tenant):
        return None
    version = transaction.version + 1
    if not _land(transaction, {mapping: writes}, (), version=version):
        return None
    return [Committed((version,))] * len(commits)


def fill_one(transaction: WriteTransaction, commit: Commit) -> Outcome | None:
    """The outcome of a commit that makes many documents, where it succeeds; otherwise None."""
    if len(commit.writes) < MANY_IN_ONE:
        return None
    made: dict[Schema[Any], list[Write]] = {}
    others: list[Write] = []
    for write in commit.writes:
        if write.kind == "create":
            made.setdefault(write.schema, []).append(write)
        else:
            others.append(write)
    new: dict[SqliteTableMapping, list[Write]] = {}
    for schema, writes in made.items():
        mapping = transaction.mappings[schema]
        if _may_fill(mapping, writes, commit.tenant):
            new[mapping] = writes
        else:
            others += writes
    try:
        changes = [decide(write, transaction.current(write), commit=commit) for write in others]
    except HoldfastError:
        return None
    version = transaction.version + 1
    if not new or not _land(transaction, new, changes, version=version):
        return None
    return Committed(tuple([0 if w.kind in ("delete", "check") else version for w in commit.writes]))


def _may_fill(mapping: SqliteTableMapping, writes: Sequence[Write], tenant: str | None) -> bool:
    """Whether the table's own uniqueness is all there is to ask."""
    if mapping.lists or mapping.schema.lifecycle:
        return False
    # A privileged handle names no tenant and may write for any.
    return tenant is None or {w.prepared.tenant for w in writes if w.prepared} <= {None, tenant}


def _land(
    transaction: WriteTransaction,
    new: dict[SqliteTableMapping, list[Write]],
    changes: Iterable[Change | None],
    *,
    version: int,
) -> bool:
    before, touched = transaction.version, set(transaction.touched)
    transaction.version = version
    transaction.connection.execute("SAVEPOINT filling")
    try:
        for change in changes:
            transaction.apply(change, version)
        for mapping, writes in new.items():
            _insert(
                transaction.connection, mapping, [w.prepared for w in writes if w.prepared], version=version
            )
            transaction.touched.add(mapping.schema)
    except apsw.ConstraintError:
        transaction.connection.execute("ROLLBACK TO filling")
        transaction.version, transaction.touched = before, touched
        return False
    finally:
        transaction.connection.execute("RELEASE filling")
    return True


def _insert(
    connection: apsw.Connection, mapping: SqliteTableMapping, new: list[Prepared], *, version: int
) -> None:
    start = 0
    while (left := len(new) - start) > 0:
        # Powers of two: few statements for any number, and few to keep prepared.
        size = 1 << (min(mapping.rows_a_statement, left).bit_length() - 1)
        bound = mapping.inserted(*new[start : start + size], version=version)
        connection.execute(mapping.insert_many_sql(size), bound)
        start += size
