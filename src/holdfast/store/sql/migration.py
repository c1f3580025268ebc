"""The migration plan: the steps from what a database holds to the declared tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from holdfast.errors import IncompatibleReleaseError
from holdfast.store.port import MIGRATE_ALL, MigrationRequest
from holdfast.store.sql.backfill import Backfill, backfill_note
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.table_mapping import TableMapping
from holdfast.store.sql.tables import PATCH, Table, TableColumn, create_index, create_table
from holdfast.store.sql.views import InspectedView


class InspectedIndex(msgspec.Struct, frozen=True):
    """An index of the database: its columns, whether it is as declared, and whether it was built entirely.

    One that is `mirrored` has the opposite order, and serves the same queries.
    """

    columns: tuple[str, ...]
    as_declared: bool
    usable: bool = True
    mirrored: bool = False


class InspectedSchema(msgspec.Struct, kw_only=True):
    """What a database holds: tables with their columns and indexes, views, and what migrations noted."""

    columns: dict[str, dict[str, str]] = {}
    views: dict[str, InspectedView] | None = {}  # None where the server can't keep them as declared
    indexes: dict[str, dict[str, InspectedIndex]] = {}
    notes: dict[str, str] = {}


# What a step means to processes of other releases: nothing; a policy they declare otherwise; the loss of
# something they use; the loss of something that only other releases use.
Effect = Literal["add", "align", "replace", "drop"]
_REPLACE: Final[Effect] = "replace"
_DROP: Final[Effect] = "drop"
NOT_MIGRATED: Final = "the store is not migrated: `await store.migrate()`, or run `holdfast schema migrate`"
VIEW_WAITS_S_MAX: Final = 5.0  # somebody's long query of a view must not keep a release from starting
DERIVED: Final = " DERIVED"  # follows the type of a column that the database computes


class MigrationStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step: its label for people, its statements, and what to note in the same transaction.

    `concurrent` statements run outside a transaction; `unused` ones touch only tables nobody uses yet;
    `backfill` is the table whose rows are to be filled, in place of statements. A step with `waits_s_max`
    is left to the next migration when somebody's lock holds it up for so long.
    """

    label: str
    statements: tuple[str, ...] = ()
    notes: dict[str, str] = {}
    forget: str = ""
    concurrent: bool = False
    unused: bool = False
    backfill: str = ""
    waits_s_max: float = 0
    effect: Effect = "add"


def select_steps(steps: list[MigrationStep], request: MigrationRequest) -> list[MigrationStep]:
    """Return the steps that a request asks for; refuses what would break processes of other releases."""
    if request.drop:
        return [step for step in steps if step.effect == "drop"]
    breaking = [step.label for step in steps if step.effect == "replace"]
    if breaking and request.other_releases:
        raise IncompatibleReleaseError(
            "processes of another release work on this store, and this would break them: "
            f"{', '.join(breaking)}; stop them, then start again"
        )
    wanted = ("add",) if request.other_releases else ("add", "align", "replace")
    return [step for step in steps if step.effect in wanted]


def create_statements(tables: Iterable[Table]) -> list[str]:
    """Return every statement that makes these tables in an empty database."""
    return [text for t in tables for text in (create_table(t), *(create_index(i) for i in t.indexes))]


def column_type(column: TableColumn) -> str:
    """Return the type as inspected; a column added later can't be NOT NULL."""
    return column.type.removesuffix(" NOT NULL") + (DERIVED if column.derived else "")


def plan_table(
    mapping: TableMapping, found: InspectedSchema, request: MigrationRequest = MIGRATE_ALL
) -> list[MigrationStep]:
    """Return the steps that bring a collection's tables to their declaration, and those that drop more."""
    return list(_TablePlan(mapping, found, request.refill.get(mapping.schema, frozenset())).steps())


class _TablePlan:
    def __init__(self, mapping: TableMapping, found: InspectedSchema, refill: frozenset[str]) -> None:
        self._mapping, self._found, self._dialect = mapping, found, mapping.dialect
        self._refill, self._version_notes = refill, dict[str, str]()
        self._tables = mapping.tables
        self._is_new = mapping.table not in found.columns
        self._note = backfill_note(mapping.table)
        note = found.notes.get(self._note)
        self._backfill = Backfill() if note is None else msgspec.json.decode(note, type=Backfill)
        self._dropped: set[str] = set()  # indexes that go with a replaced column
        self._view = (found.views or {}).get(mapping.view.name)
        self._detached: Effect | None = None  # that of the step which detached the view from the table
        self._refill_upgraded()

    def _refill_upgraded(self) -> None:
        """Documents of an older version are upgraded when they are read; their columns must be, too."""
        note, version = f"version {self._mapping.table}", self._mapping.schema.version
        if version > int(self._found.notes.get(note, 1)):
            self._version_notes = {note: str(version)}
            if not self._is_new:
                lists = {f"{table.items_of}[]" for table in self._tables if table.items_of}
                self._refill = frozenset({*(c.stored for c in self._mapping.columns), *lists})
                self._backfill = Backfill(self._backfill.columns, self._backfill.lists, documents=True)

    def steps(self) -> Iterator[MigrationStep]:
        for table in self._tables:
            yield from self._table_steps(table)
        yield from self._undeclared_lists()
        yield from self._refill_steps()
        to_fill = self._backfill.known_to(self._mapping)
        if to_fill.columns or to_fill.lists or to_fill.documents:
            yield MigrationStep(label=f"fill {self._mapping.table}", backfill=self._mapping.table)
        for table in self._tables:
            yield from self._index_steps(table)
        if self._found.views is not None and not self._is_new:
            yield from self._view_steps()

    def _view_steps(self) -> Iterator[MigrationStep]:
        """Create or replace the view; beside other releases only one that lacks columns."""
        view, existing = self._mapping.view, self._view
        if existing is not None and existing.as_declared and not self._detached:
            return
        declared = {(column.name, self._dialect.view_type(column)) for column in view.columns}
        only_adds = existing is None or set(existing.columns) < declared
        label = f"{'replace' if existing else 'create'} view {view.name}"
        if existing and existing.users and not set(existing.columns) <= declared:
            label += f", with empty columns for {', '.join(existing.users)}: drop those, then migrate again"
        yield MigrationStep(
            label=label,
            statements=tuple(self._dialect.create_view(view, existing)),
            waits_s_max=VIEW_WAITS_S_MAX, effect=self._detached or ("add" if only_adds else "align"),
        )  # fmt: skip

    def _table_steps(self, table: Table) -> Iterator[MigrationStep]:
        existing = self._found.columns.get(table.name)
        if existing is None:
            yield self._create(table)
            return
        for column in table.columns:
            if existing.get(column.name) == column_type(column):
                continue
            replaced = column.name in existing
            statements = self._replace(table, column.name) if replaced else []
            effect = _effect_of_replacing(existing.get(column.name), column)
            if replaced and (detach := self._detach_view(table, existing[column.name])):
                statements, self._detached = [*detach, *statements], effect
            definition = column.definition.removesuffix(" NOT NULL")
            statements.append(f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(column.name)} {definition}")
            notes = {}
            if column.name != PATCH and not column.derived:
                self._backfill = self._backfill.with_column(table, column.name)
                notes = self._backfill_note()
            yield MigrationStep(
                label=f"{'replace' if replaced else 'add'} column {table.name}.{column.name}",
                statements=tuple(statements), notes=notes, effect=effect,
            )  # fmt: skip
        for name in sorted(existing.keys() - {c.name for c in table.columns}):
            # Columns of a list's table are never null, so that with one too many no row could be inserted.
            drop, effect = (self._replace, _REPLACE) if table.items_of else (self._drop, _DROP)
            statements = drop(table, name)
            if detach := self._detach_view(table, existing[name]):
                again = self._dialect.create_view(self._mapping.view, self._view)
                statements = [*detach, *statements, *again]
            yield MigrationStep(
                label=f"drop column {table.name}.{name}", statements=tuple(statements), effect=effect
            )

    def _detach_view(self, table: Table, existing: str) -> list[str]:
        """Return what lets a column go that the view may use, which is not a derived one."""
        if self._view is None or table is not self._tables[0] or existing.endswith(DERIVED):
            return []
        return self._dialect.detach_view(self._mapping.view, self._view)

    def _create(self, table: Table) -> MigrationStep:
        """Create a table; a list's table is noted as ours, so that it can go when its index goes."""
        notes, statements = dict[str, str](), [create_table(table)]
        if table.items_of:
            notes[f"list {table.name}"] = self._mapping.table
            if not self._is_new:
                self._backfill = self._backfill.with_list(table.name)
                notes |= self._backfill_note()
        else:
            notes |= self._version_notes
            if self._found.views is not None:
                statements += self._dialect.create_view(self._mapping.view)
        return MigrationStep(
            label=f"create table {table.name}", statements=tuple(statements), notes=notes, unused=True
        )

    def _backfill_note(self) -> dict[str, str]:
        return {self._note: msgspec.json.encode(self._backfill).decode()}

    def _refill_steps(self) -> Iterator[MigrationStep]:
        """Note what other releases left out, to be written by the backfill that follows."""
        existing = self._found.columns.get(self._mapping.table, {})
        columns = [c.stored for c in self._mapping.columns if c.stored in self._refill & existing.keys()]
        lists = [t for t in self._tables if t.items_of and f"{t.items_of}[]" in self._refill]
        for name in columns:
            self._backfill = self._backfill.with_column(self._tables[0], name)
        for table in lists:
            self._backfill = self._backfill.with_list(table.name)
        if columns or lists or (self._version_notes and not self._is_new):
            notes = {**self._backfill_note(), **self._version_notes}
            yield MigrationStep(label=f"fill {self._mapping.table} again", notes=notes)

    def _replace(self, table: Table, column: str) -> list[str]:
        """Drop a column whose indexes are then created again."""
        indexes = self._found.indexes.get(table.name, {})
        self._dropped.update(name for name, index in indexes.items() if column in index.columns)
        return self._drop(table, column)

    def _drop(self, table: Table, column: str) -> list[str]:
        """Drop a column, and first the indexes on it, which SQLite does not drop with it."""
        indexes = self._found.indexes.get(table.name, {})
        dropped = [name for name, index in indexes.items() if column in index.columns]
        statements = [f"DROP INDEX IF EXISTS {quote(name)}" for name in dropped]
        return [*statements, f"ALTER TABLE {quote(table.name)} DROP COLUMN {quote(column)}"]

    def _undeclared_lists(self) -> Iterator[MigrationStep]:
        declared = {table.name for table in self._tables}
        for note, owner in sorted(self._found.notes.items()):
            table = note.removeprefix("list ")
            if table != note and owner == self._mapping.table and table not in declared:
                yield MigrationStep(
                    label=f"drop table {table}",
                    statements=(f"DROP TABLE IF EXISTS {quote(table)}",),
                    forget=note,
                    effect="drop",
                )

    def _index_steps(self, table: Table) -> Iterator[MigrationStep]:
        """Rebuild indexes; on a table in use without blocking writers, which would slow down a new one."""
        existing = self._found.indexes.get(table.name, {})
        wanted = {index.name: index for index in table.indexes}
        how = self._dialect.concurrently if table.name in self._found.columns else ""
        usable = {name: index for name, index in existing.items() if index.usable and name in wanted}
        current = {name for name, index in usable.items() if index.as_declared or index.mirrored}
        for name in sorted(name for name in current - self._dropped if usable[name].mirrored):
            yield MigrationStep(
                label=f"rebuild index {name}", concurrent=bool(how), effect="align",
                statements=(f"DROP INDEX {how}IF EXISTS {quote(name)}", create_index(wanted[name], how)),
            )  # fmt: skip
        for name in sorted(existing.keys() - current - self._dropped):
            drop = f"DROP INDEX {self._dialect.concurrently}IF EXISTS {quote(name)}"
            yield MigrationStep(
                label=f"drop index {name}", statements=(drop,), concurrent=bool(self._dialect.concurrently),
                effect=_effect_of_drop(existing[name], declared=name in wanted),
            )  # fmt: skip
        for name, index in wanted.items():
            if name not in current or name in self._dropped:
                yield MigrationStep(
                    label=f"create index {name}", statements=(create_index(index, how),),
                    concurrent=bool(how), unused=not how,
                )  # fmt: skip


def _effect_of_replacing(existing: str | None, column: TableColumn) -> Effect:
    """Nobody writes a derived column; one that only becomes derived may wait until nobody else fills it."""
    if existing is None or existing.endswith(DERIVED):
        return "add"
    return "align" if column.derived and existing == column.type else "replace"


def _effect_of_drop(index: InspectedIndex, *, declared: bool) -> Effect:
    """An index that was never built to the end serves nobody; one that is not declared may serve others."""
    if not declared:
        return "drop"
    return "replace" if index.usable else "add"
