"""Creates and blind patches, many to a statement.

Each statement releases the GIL, and reacquiring it costs more than the statement, so what needs no look at
other rows is batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw
import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.schema import Prepared, Schema
from holdfast.store.commit import Commit, Committed, Outcome
from holdfast.store.sql.blind_patch import BlindPatch, PatchGroup, blind_patch
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import KEY, VERSION
from holdfast.store.sql.write_batch import COMPLETE, ClaimedPatches, NewDocuments, independent_writes
from holdfast.store.sqlite.batch_view import BatchStatement
from holdfast.store.sqlite.statements import SqliteTable, statement_slices
from holdfast.store.write_rules import check_create

if TYPE_CHECKING:
    from holdfast.store.sqlite.write_transaction import WriteTransaction

T = TypeVar("T")
W = TypeVar("W", Prepared, BlindPatch)
Numbered = tuple[int, T]
_ROWS_MAX: Final = 128


class WriteBatch:
    """The commits of a batch that need no read; `outcomes` has those that were made, by position."""

    def __init__(self, transaction: WriteTransaction, commits: Sequence[Commit]) -> None:
        self._transaction, self._commits = transaction, commits
        self._creates: dict[Schema[Any], list[Numbered[Prepared]]] = {}
        self._patches: dict[tuple[PatchGroup, str | None], list[Numbered[BlindPatch]]] = {}
        self.outcomes: dict[int, Outcome] = {}
        independent = independent_writes(commits, transaction.listed)
        self._is_permitted = isinstance(independent, COMPLETE)
        if isinstance(independent, NewDocuments):
            self._creates[independent.schema] = list(enumerate(independent.documents))
            return
        if isinstance(independent, ClaimedPatches):
            for group, numbers in independent.groups().items():
                tenant = independent.tenant if group.schema.tenant else None
                self._patches[group, tenant] = [(number, independent.patches[number]) for number in numbers]
            return
        for number, write in independent.items():
            if isinstance(write, BlindPatch):
                tenant = commits[number].tenant if write.group.schema.tenant else None
                self._patches.setdefault((write.group, tenant), []).append((number, write))
            elif write.prepared is not None:
                self._creates.setdefault(write.schema, []).append((number, write.prepared))

    @property
    def is_complete(self) -> bool:
        """Whether it makes all commits, and only the stored rows can refuse one."""
        groups: list[list[Any]] = [*self._creates.values(), *self._patches.values()]
        if sum(map(len, groups)) < len(self._commits):
            return False
        return self._is_permitted or all(len(self._permitted(c)) == len(c) for c in self._creates.values())

    @property
    def schemas(self) -> set[Schema[Any]]:
        return {*self._creates, *[group.schema for group, _ in self._patches]}

    @property
    def tenants(self) -> set[str | None]:
        """Return whose documents the patches may change; None for any."""
        return {tenant for _, tenant in self._patches}

    def add_to(self, statement: BatchStatement) -> bool:
        """Add the changes to a statement that makes all of them or none; False where it can't."""
        for creates in self._creates.values():
            statement.create([one for _, one in creates])
        return all(
            statement.patch(group, [one for _, one in patches])
            for (group, _), patches in self._patches.items()
        )

    def execute(self) -> None:
        """Make the changes; those that are refused are left to be decided singly, which says why."""
        for schema, creates in self._creates.items():
            mapping = self._transaction.mappings[schema]
            permitted = creates if self._is_permitted else self._permitted(creates)
            for some in statement_slices(permitted, mapping.rows_per_statement):
                self._insert(mapping, some)
        for (group, tenant), patches in self._patches.items():
            for part in statement_slices(patches, _ROWS_MAX):
                self._patch(self._transaction.mappings[group.schema], part, tenant=tenant)

    def _permitted(self, creates: list[Numbered[Prepared]]) -> list[Numbered[Prepared]]:
        permitted = []
        for number, prepared in creates:
            commit = self._commits[number]
            try:
                check_create(commit.writes[0], commit)
            except HoldfastError as refusal:
                self.outcomes[number] = refusal
            else:
                permitted.append((number, prepared))
        return permitted

    def _insert(self, mapping: SqliteTable, some: Sequence[Numbered[Prepared]]) -> None:
        connection, version = self._transaction.connection, self._transaction.next_version()
        sql = mapping.insert_many_sql(len(some), on_conflict="IGNORE")
        connection.execute(sql, mapping.inserted(*[one for _, one in some], version=version))
        if connection.changes() < len(some):
            some = _with_version(connection, mapping, some, version=version)
        self._record(mapping, some, version)

    def _patch(
        self, mapping: SqliteTable, some: Sequence[Numbered[BlindPatch]], *, tenant: str | None
    ) -> None:
        connection, version = self._transaction.connection, self._transaction.next_version()
        connection.execute(*mapping.patch([one for _, one in some], version, tenant=tenant))
        if connection.changes() < len(some):
            some = _with_version(connection, mapping, some, version=version)
        self._record(mapping, some, version)

    def _record(self, mapping: SqliteTable, some: Sequence[Numbered[Any]], version: int) -> None:
        if some:
            self._transaction.touched.add(mapping.schema)
        committed = Committed((version,))
        for number, _ in some:
            self.outcomes[number] = committed


def patch_alone(transaction: WriteTransaction, commit: Commit) -> Committed | None:
    """Make a commit of one blind patch; None, with nothing done, where it must be decided."""
    one = blind_patch(commit.writes[0]) if len(commit.writes) == 1 else None
    if one is None:
        return None
    schema, version = one.group.schema, transaction.next_version()
    statement = transaction.mappings[schema].patch([one], version, tenant=commit.tenant)
    transaction.connection.execute(*statement)
    if not transaction.connection.changes():
        return None
    transaction.touched.add(schema)
    return Committed((version,))


def _with_version(
    connection: apsw.Connection, mapping: SqliteTable, some: Sequence[Numbered[W]], *, version: int
) -> list[Numbered[W]]:
    """Return the new documents, or the patches whose conditions held: no other row has this version."""
    sql = (
        f"SELECT {quote(KEY)} FROM {quote(mapping.table)} WHERE {quote(VERSION)} = ?"
        f" AND {quote(KEY)} IN (SELECT value FROM json_each(?))"
    )
    keys = msgspec.json.encode([one.key for _, one in some]).decode()
    written: set[Any] = {row[0] for row in connection.execute(sql, (version, keys))}
    return [item for item in some if item[1].key in written]
