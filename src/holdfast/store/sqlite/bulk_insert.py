"""Bulk insert: the many new documents of one commit, inserted by hundreds without a read.

Each statement releases the GIL and must reacquire it: by hundreds, the rows go in while other threads
work. Where an id turns out to be taken, or a counting upsert finds its conditions unmet, all of it is rolled
back, and the slow path finds which. A commit that is alone in its transaction needs no savepoint for that,
for which SQLite would copy each page before it changes it: the transaction is rolled back and begun again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import apsw

from holdfast.errors import HoldfastError
from holdfast.model.columns import Column
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.sql.write_batch import BulkWrites, bulk_writes, prepared_of
from holdfast.store.sqlite.statements import SqliteTable, statement_slices
from holdfast.store.write_rules import Change, decide

if TYPE_CHECKING:
    from holdfast.store.sqlite.write_transaction import WriteTransaction

# From how many documents on a savepoint pays.
WRITES_MIN: Final = 16


class RefusedInsertError(Exception):
    """A bulk insert that is alone in its transaction was refused: roll back and decide its commit."""


def insert_unread(transaction: WriteTransaction, commit: Commit) -> Outcome | None:
    """Make a commit of many creates and counting upserts alone, which need no read; otherwise None."""
    bulk = _bulk(transaction, commit)
    return None if bulk is None or bulk.others else _insert_bulk(transaction, commit, bulk)


def insert_writes(transaction: WriteTransaction, commit: Commit) -> Outcome | None:
    """Make a commit that creates many documents, where it succeeds; otherwise None."""
    bulk = _bulk(transaction, commit)
    return None if bulk is None else _insert_bulk(transaction, commit, bulk)


def _bulk(transaction: WriteTransaction, commit: Commit) -> BulkWrites | None:
    if len(commit.writes) < WRITES_MIN:
        return None
    bulk = bulk_writes(commit, transaction.listed)
    return bulk if bulk.creates else None


def _insert_bulk(transaction: WriteTransaction, commit: Commit, bulk: BulkWrites) -> Outcome | None:
    new = {transaction.mappings[schema]: prepared_of(writes) for schema, writes in bulk.creates.items()}
    try:
        changes = [decide(write, transaction.current(write), commit=commit) for write in bulk.others]
    except HoldfastError:
        return None
    version = transaction.next_version()
    if not _insert_all(transaction, new, changes, counts=bulk.counts, version=version):
        return None
    return Committed(tuple([0 if w.kind in ("delete", "check") else version for w in commit.writes]))


def _insert_all(
    transaction: WriteTransaction,
    new: Mapping[SqliteTable, Sequence[Prepared]],
    changes: Iterable[Change | None],
    *,
    counts: Mapping[tuple[Schema[Any], Column], list[Write]] = MappingProxyType({}),
    version: int,
) -> bool:
    if transaction.lone:
        if not _execute_all(transaction, new, changes, counts=counts, version=version):
            raise RefusedInsertError
        return True
    touched = set(transaction.touched)
    transaction.connection.execute("SAVEPOINT bulk_insert")
    made = _execute_all(transaction, new, changes, counts=counts, version=version)
    if not made:
        transaction.connection.execute("ROLLBACK TO bulk_insert")
        transaction.touched = touched
    transaction.connection.execute("RELEASE bulk_insert")
    return made


def _execute_all(
    transaction: WriteTransaction,
    new: Mapping[SqliteTable, Sequence[Prepared]],
    changes: Iterable[Change | None],
    *,
    counts: Mapping[tuple[Schema[Any], Column], list[Write]],
    version: int,
) -> bool:
    """Execute the statements; whether all rows were made. Where not, some may have been."""
    try:
        for change in changes:
            transaction.apply(change, version)
        for mapping, documents in new.items():
            _insert(transaction, mapping, documents, version=version)
        return all(
            _insert(
                transaction,
                transaction.mappings[schema],
                prepared_of(writes),
                counted=column,
                version=version,
            )
            for (schema, column), writes in counts.items()
        )
    except apsw.ConstraintError:
        return False


def _insert(
    transaction: WriteTransaction,
    mapping: SqliteTable,
    documents: Sequence[Prepared],
    *,
    counted: Column | None = None,
    version: int,
) -> bool:
    """Insert new documents or, with a column, make counting upserts; whether all were made."""
    transaction.touched.add(mapping.schema)
    connection, made, lone = transaction.connection, 0, transaction.lone
    for some in statement_slices(documents, mapping.rows_per_statement):
        count = len(some)
        sql = (
            mapping.insert_many_sql(count, on_conflict="ROLLBACK" if lone else "ABORT")
            if counted is None
            else mapping.count_many_sql(counted, count, rolls_back=lone)
        )
        connection.execute(sql, mapping.inserted(*some, version=version))
        made += connection.changes()
    return made == len(documents)
