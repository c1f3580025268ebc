"""The open write transaction: commits decided one by one, changes applied."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from holdfast.errors import AlreadyExistsError, HoldfastError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.sql.counting_upsert import counting_column
from holdfast.store.sql.table_mapping import Row, StoredRow
from holdfast.store.sqlite.batch_view import BatchStatement, BatchView
from holdfast.store.sqlite.bulk_insert import insert_unread, insert_writes
from holdfast.store.sqlite.connections import one
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.write_batch import WriteBatch, patch_alone
from holdfast.store.write_rules import Change, check_create, decide, needs_current

PREFETCH_MIN: Final = 4
VERSIONS_PER_BLOCK: Final = 4_096
_JSON: Final = msgspec.json.Encoder()


def create_meta(connection: apsw.Connection) -> None:
    """Create the table of what a file says of itself, where there is none."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS _holdfast_meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID"
    )
    values = (("version", 0), ("store_id", secrets.token_hex(8)))
    connection.executemany("INSERT OR IGNORE INTO _holdfast_meta VALUES (?, ?)", values)


class WriteTransaction:
    """What work may use while the write transaction is open."""

    def __init__(self, connection: apsw.Connection, mappings: dict[Schema[Any], SqliteTable]) -> None:
        self.connection, self.mappings = connection, mappings
        self.listed = frozenset(schema for schema, mapping in mappings.items() if mapping.lists)
        self.version = 0  # the newest that this process has given out
        self._reserved = -1
        self.touched: set[Schema[Any]] = set()
        self.lone = False  # whether it is one commit's, which may then be undone with the transaction
        self.deleted = 0
        self._prefetched: dict[tuple[Schema[Any], str], Row] = {}
        self._views: dict[Schema[Any], BatchView] = {}

    @property
    def has_version(self) -> bool:
        """Whether a version is left of those that were reserved."""
        return self.version < self._reserved

    def next_version(self) -> int:
        if not self.has_version:
            self.reserve_versions()
        self.version += 1
        return self.version

    def reserve_versions(self) -> int:
        """Reserve the next versions for this process; return the newest that was reserved before, by any.

        A page of the file that would be written by each commit is so written by one of thousands.
        """
        before: int = one(self.connection, "SELECT value FROM _holdfast_meta WHERE name = 'version'")[0]
        if before != self._reserved:
            self.version = before  # those up to it are other processes'
        self._reserved = self.version + VERSIONS_PER_BLOCK
        self.connection.execute(
            "UPDATE _holdfast_meta SET value = ? WHERE name = 'version'", (self._reserved,)
        )
        return before

    def forget_versions(self) -> None:
        """Forget what was reserved; to be called after a rollback, with which the reservation may be gone."""
        self._reserved = -1

    def read(self, write: Write) -> StoredRow | None:
        mapping, key = self.mappings[write.schema], write.key
        row = (
            self._prefetched.get((write.schema, key))
            or self.connection.execute(mapping.select_sql, (key,)).fetchone()
        )
        return None if row is None else StoredRow(mapping, row)

    def commits(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Make each commit by itself; those that touch the same document in their order."""
        outcomes: dict[int, Outcome] = {}
        if len(commits) == 1:
            if len(commits[0].writes) == 1:
                return [patch_alone(self, commits[0]) or self.commit(commits[0])]
            if self.lone and (made := insert_unread(self, commits[0])) is not None:
                return [made]
        else:
            batch = WriteBatch(self, commits)
            batch.execute()
            outcomes = batch.outcomes
            if len(outcomes) == len(commits):
                return [outcomes[number] for number in range(len(commits))]
        rest = [commit for number, commit in enumerate(commits) if number not in outcomes]
        if sum(len(commit.writes) for commit in rest) >= PREFETCH_MIN:
            self._prefetch(rest)
        try:
            return [outcomes.get(n) or self.commit(commit) for n, commit in enumerate(commits)]
        finally:
            self._prefetched.clear()

    def _prefetch(self, commits: Sequence[Commit]) -> None:
        """Read at once what the commits will look at; a row is forgotten as soon as one changes it."""
        keys_by_schema: dict[Schema[Any], list[str]] = {}
        for commit in commits:
            for write in commit.writes:
                if needs_current(write) and not counting_column(write, commit):
                    keys_by_schema.setdefault(write.schema, []).append(write.key)
        for schema, keys in keys_by_schema.items():
            sql = self.mappings[schema].select_many_sql
            rows = self.connection.execute(sql, (_JSON.encode(keys).decode(),))
            self._prefetched.update({(schema, row[0]): row for row in rows})

    def commit(self, commit: Commit) -> Outcome:
        """Decide all writes first, so that a refused commit has written nothing."""
        try:
            if len(commit.writes) == 1:
                return self._commit_single(commit.writes[0], commit)
            if (inserted := insert_writes(self, commit)) is not None:
                return inserted
            changes = [decide(w, self.current(w), commit=commit) for w in commit.writes]
        except HoldfastError as refusal:
            return refusal
        version = self.next_version()
        return Committed(tuple([self.apply(change, version) for change in changes]))

    def commit_alone(self, commit: Commit) -> Outcome | None:
        """Make a commit that is one statement, outside a transaction; None where it is more."""
        if len(commit.writes) != 1 or not self.has_version:
            return None
        write = commit.writes[0]
        if write.schema in self.listed:
            return None
        self.touched = set()
        return self._commit_create(write, commit) if write.kind == "create" else patch_alone(self, commit)

    def batch_statement(self, parts: Sequence[Sequence[Commit]]) -> BatchStatement | None:
        """Return the statement that makes all commits, the parts in their order; None where there is none.

        To be called where a version is left.
        """
        batches = [WriteBatch(self, commits) for commits in parts]
        schemas = {schema for batch in batches for schema in batch.schemas}
        tenants = {tenant for batch in batches for tenant in batch.tenants}
        if len(schemas) > 1 or len(tenants) > 1 or not all(batch.is_complete for batch in batches):
            return None
        (schema,), tenant = schemas, next(iter(tenants), None)
        statement = BatchStatement(self._view(schema), version=self.next_version(), tenant=tenant)
        return statement if all(batch.add_to(statement) for batch in batches) else None

    def _view(self, schema: Schema[Any]) -> BatchView:
        view = self._views.get(schema)
        if view is None:
            view = self._views[schema] = BatchView(self.connection, self.mappings[schema])
        return view

    def _commit_create(self, write: Write, commit: Commit) -> Outcome:
        """Create a document without list items; the primary key is relied on instead of a read."""
        try:
            check_create(write, commit)
        except HoldfastError as refusal:
            return refusal
        assert write.prepared is not None
        mapping, version = self.mappings[write.schema], self.next_version()
        try:
            self.connection.execute(mapping.insert_sql, mapping.inserted(write.prepared, version=version))
        except apsw.ConstraintError:
            return _taken(write)
        self.touched.add(write.schema)
        return Committed((version,))

    def _commit_single(self, write: Write, commit: Commit) -> Outcome:
        """Make a commit of one write; a create relies on the primary key instead of a read."""
        change = decide(write, self.read(write) if needs_current(write) else None, commit=commit)
        try:
            return Committed((self.apply(change, self.next_version()),))
        except apsw.ConstraintError:
            return _taken(write)

    def current(self, write: Write) -> StoredRow | None:
        """Return what a write must see to be decided."""
        if needs_current(write) or write.kind == "create":
            return self.read(write)
        return None

    def apply(self, change: Change | None, version: int) -> int:
        if change is None:
            return 0
        mapping = self.mappings[change.schema]
        self.touched.add(change.schema)
        if self._prefetched:
            self._prefetched.pop((change.schema, change.key), None)
        if change.kind == "delete" or change.prepared is None:
            self.connection.execute(mapping.delete_sql, (change.key,))
            self.deleted += 1
        elif change.kind == "update":
            self.connection.execute(*mapping.update(change.prepared, version, before=change.before))
        elif change.blind:
            self.connection.execute(mapping.upsert_sql, mapping.inserted(change.prepared, version=version))
        else:
            self.connection.execute(mapping.insert_sql, mapping.inserted(change.prepared, version=version))
        if mapping.lists:
            self._rewrite_items(mapping, change)
        return 0 if change.kind == "delete" else version

    def _rewrite_items(self, mapping: SqliteTable, change: Change) -> None:
        prepared = change.prepared
        document = None if prepared is None else mapping.schema.document_of(prepared)
        for items in mapping.lists:
            if change.kind != "insert" or change.blind:
                self.connection.execute(items.delete_sql, (change.key,))
            if prepared is not None and (rows := items.rows(change.key, prepared.tenant, document=document)):
                self.connection.executemany(items.insert_sql, rows)


def _taken(write: Write) -> AlreadyExistsError:
    return AlreadyExistsError(f"{write.schema.name} {write.key!r} already exists")
