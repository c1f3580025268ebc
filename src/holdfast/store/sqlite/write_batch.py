"""New documents and amendments, many to a statement.

Each statement lets the other threads run and must wait for its turn to go on, which takes longer than
the statement itself: so what needs no look at other rows goes in by dozens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw
import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.fenced_patch import UNDER_BYTES_MAX, FencedPatch, Group, fenced_patch, uncontended
from holdfast.store.sql.tables import AMENDED, BODY, KEY, VERSION
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.sqlite.table_mapping import SqliteTableMapping
from holdfast.store.write_rules import decide

if TYPE_CHECKING:
    from holdfast.store.sqlite.write_transaction import WriteTransaction

T = TypeVar("T")
Numbered = tuple[int, T]
# A statement takes a multiple of the step, or what is left over: few statements to keep prepared, and
# few to make for any number.
_MOST: Final = 64
_STEP: Final = 16


class WriteBatch:
    """The part of a batch that can go in by dozens: `answers` gives the outcomes by position."""

    def __init__(self, transaction: WriteTransaction, commits: Sequence[Commit]) -> None:
        self._transaction, self._commits = transaction, commits
        self._creates: dict[Schema[Any], list[Numbered[Write]]] = {}
        self._amendments: dict[tuple[Group, str | None], list[Numbered[FencedPatch]]] = {}
        self.answers: dict[int, Outcome] = {}
        alone = uncontended(commits)
        for number, commit in enumerate(commits):
            write = commit.writes[0] if len(commit.writes) == 1 else None
            if write is not None and (write.schema, write.key) in alone:
                self._sort_in(number, write, commit)

    def _sort_in(self, number: int, write: Write, commit: Commit) -> None:
        if write.kind == "create":
            if not self._transaction.mappings[write.schema].lists:
                self._creates.setdefault(write.schema, []).append((number, write))
        elif (amended := fenced_patch(write)) is not None:
            tenant = commit.tenant if write.schema.tenant else None
            self._amendments.setdefault((amended.group, tenant), []).append((number, amended))

    def land(self) -> None:
        """Make the changes. Where one of a statement's is refused, they are left to be made one by one."""
        for schema, creates in self._creates.items():
            for some in _cut(self._judged(creates)):
                self._insert(self._transaction.mappings[schema], some)
        for (group, tenant), amendments in self._amendments.items():
            for part in _cut(amendments):
                self._amend(self._transaction.mappings[group.schema], part, tenant=tenant)

    def _judged(self, creates: list[Numbered[Write]]) -> list[Numbered[Write]]:
        passed = []
        for number, write in creates:
            try:
                decide(write, None, commit=self._commits[number])
            except HoldfastError as refusal:
                self.answers[number] = refusal
            else:
                passed.append((number, write))
        return passed

    def _insert(self, mapping: SqliteTableMapping, some: list[Numbered[Write]]) -> None:
        version = self._transaction.next_version()
        made = [write.prepared for _, write in some if write.prepared is not None]
        try:
            self._transaction.connection.execute(
                mapping.insert_many_sql(len(some)), mapping.inserted(*made, version=version)
            )
        except apsw.ConstraintError:
            return
        self._landed(mapping, some, version)

    def _amend(
        self, mapping: SqliteTableMapping, some: list[Numbered[FencedPatch]], *, tenant: str | None
    ) -> None:
        connection, version = self._transaction.connection, self._transaction.next_version()
        values: list[Any] = []
        for _, one in some:
            bound = [DIALECT.bind(value) for value in one.values]
            values += (one.key, one.fence, one.body.decode(), *bound)
        if tenant is not None:
            values.append(tenant)
        group = some[0][1].group
        connection.execute(
            _amend_sql(mapping, group, size=len(some), mine=tenant is not None), (version, *values)
        )
        if connection.changes() < len(some):
            some = _with_version(self._transaction, mapping, some, version=version)
        self._landed(mapping, some, version)

    def _landed(self, mapping: SqliteTableMapping, some: Sequence[Numbered[Any]], version: int) -> None:
        if some:
            self._transaction.touched.add(mapping.schema)
        done = Committed((version,))
        for number, _ in some:
            self.answers[number] = done


def _cut(items: list[T]) -> Iterator[list[T]]:
    start = 0
    while (left := len(items) - start) > 0:
        size = min(_MOST, left - left % _STEP or left)
        yield items[start : start + size]
        start += size


def _with_version(
    transaction: WriteTransaction,
    mapping: SqliteTableMapping,
    some: list[Numbered[FencedPatch]],
    *,
    version: int,
) -> list[Numbered[FencedPatch]]:
    """Those whose conditions held: no other row has this version."""
    sql = (
        f"SELECT {quote(KEY)} FROM {quote(mapping.table)} WHERE {quote(VERSION)} = ?"
        f" AND {quote(KEY)} IN (SELECT value FROM json_each(?))"
    )
    keys = msgspec.json.encode([one.key for _, one in some]).decode()
    landed: set[Any] = {row[0] for row in transaction.connection.execute(sql, (version, keys))}
    return [item for item in some if item[1].key in landed]


def _amend_sql(mapping: SqliteTableMapping, group: Group, *, size: int, mine: bool) -> str:
    known = mapping.amend_sqls.get((group, size, mine))
    if known is None:
        known = mapping.amend_sqls[group, size, mine] = _write_amend_sql(mapping, group, size=size, mine=mine)
    return known


def _write_amend_sql(mapping: SqliteTableMapping, group: Group, *, size: int, mine: bool) -> str:
    schema, table = mapping.schema, quote(mapping.table)
    names = [AMENDED, *(column.stored for column in group.columns)]
    row = f"({', '.join('?' * (len(names) + 2))})"
    sets = [f"{quote(VERSION)} = ?", *(f"{quote(n)} = u.column{i}" for i, n in enumerate(names, 3))]
    where = [
        f"{table}.{quote(KEY)} = u.column1",
        f"{table}.{quote(mapping.claim_columns[1].stored)} = u.column2",
        f"{table}.{quote(AMENDED)} IS NULL",
        f"octet_length({table}.{quote(BODY)}) <= {UNDER_BYTES_MAX}",
    ]
    if group.states is not None and schema.state is not None:
        states = ", ".join("'" + state.replace("'", "''") + "'" for state in group.states)
        where.append(f"{table}.{quote(schema.state.stored)} IN ({states})")
    if mine and schema.tenant is not None:
        where.append(f"{table}.{quote(schema.tenant.stored)} = ?")
    return (
        f"UPDATE {table} SET {', '.join(sets)} FROM (VALUES {', '.join([row] * size)}) AS u"
        f" WHERE {' AND '.join(where)}"
    )
