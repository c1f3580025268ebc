"""What may be done while the write transaction is open: commits decided one by one, changes applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from holdfast.errors import AlreadyExistsError, HoldfastError
from holdfast.model.schema import Schema
from holdfast.store.commit import Commit, Committed, Outcome, Write
from holdfast.store.sqlite.bulk_insert import fill, fill_one
from holdfast.store.sqlite.table_mapping import Row, SqliteStoredRow, SqliteTableMapping
from holdfast.store.sqlite.write_batch import WriteBatch
from holdfast.store.write_rules import Change, decide, needs_current

LOOK_AHEAD_MIN: Final = 4
_JSON: Final = msgspec.json.Encoder()


class WriteTransaction:
    """What work may use while the write transaction is open."""

    def __init__(self, connection: apsw.Connection, mappings: dict[Schema[Any], SqliteTableMapping]) -> None:
        self.connection, self.mappings = connection, mappings
        self.version = 0
        self.touched: set[Schema[Any]] = set()
        self.deleted = 0
        self._seen: dict[tuple[Schema[Any], str], Row] = {}

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def read(self, write: Write) -> SqliteStoredRow | None:
        mapping, key = self.mappings[write.schema], write.key
        row = (
            self._seen.get((write.schema, key))
            or self.connection.execute(mapping.select_sql, (key,)).fetchone()
        )
        return None if row is None else SqliteStoredRow(mapping, row)

    def commits(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Each by itself, in their order wherever that can be told."""
        if len(commits) == 1 and len(commits[0].writes) > 1:
            return [self.commit(commits[0])]
        filled = fill(self, commits)
        if filled is not None:
            return filled
        bulk = WriteBatch(self, commits)
        bulk.land()
        done = bulk.answers
        left = [commit for number, commit in enumerate(commits) if number not in done]
        if len(left) >= LOOK_AHEAD_MIN:
            self._look_ahead(left)
        try:
            return [done.get(n) or self.commit(commit) for n, commit in enumerate(commits)]
        finally:
            self._seen.clear()

    def _look_ahead(self, commits: Sequence[Commit]) -> None:
        """Read at once what the commits will look at; a row is forgotten as soon as one changes it."""
        wanted: dict[Schema[Any], list[str]] = {}
        for commit in commits:
            for write in commit.writes:
                if needs_current(write):
                    wanted.setdefault(write.schema, []).append(write.key)
        for schema, keys in wanted.items():
            rows = self.connection.execute(
                self.mappings[schema].select_many_sql, (_JSON.encode(keys).decode(),)
            )
            self._seen.update({(schema, row[0]): row for row in rows})

    def commit(self, commit: Commit) -> Outcome:
        """Decide all writes first, so that a refused commit has written nothing."""
        try:
            if len(commit.writes) == 1:
                return self._alone(commit.writes[0], commit)
            if (filled := fill_one(self, commit)) is not None:
                return filled
            changes = [decide(w, self.current(w), commit=commit) for w in commit.writes]
        except HoldfastError as refusal:
            return refusal
        version = self.next_version()
        return Committed(tuple([self.apply(change, version) for change in changes]))

    def _alone(self, write: Write, commit: Commit) -> Outcome:
        """A create by itself need not look: the table knows whether the id is taken."""
        change = decide(write, self.read(write) if needs_current(write) else None, commit=commit)
        try:
            return Committed((self.apply(change, self.next_version()),))
        except apsw.ConstraintError:
            return AlreadyExistsError(f"{write.schema.name} {write.key!r} is there already")

    def current(self, write: Write) -> SqliteStoredRow | None:
        """What a write must see to be decided."""
        if needs_current(write) or write.kind == "create":
            return self.read(write)
        return None

    def apply(self, change: Change | None, version: int) -> int:
        if change is None:
            return 0
        mapping = self.mappings[change.schema]
        self.touched.add(change.schema)
        if self._seen:
            self._seen.pop((change.schema, change.key), None)
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

    def _rewrite_items(self, mapping: SqliteTableMapping, change: Change) -> None:
        for items in mapping.lists:
            rows = [] if change.prepared is None else items.rows(change.prepared)
            if change.kind != "insert" or change.blind:
                self.connection.execute(items.delete_sql, (change.key,))
            if rows:
                self.connection.executemany(items.insert_sql, rows)
