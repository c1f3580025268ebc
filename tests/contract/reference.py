"""The simplest engine: a dictionary, scanned for every query.

It is neither durable nor fast, but its results can be checked by reading it. The random histories compare
the real engines with it as well as with one another, so that they can't all be wrong in the same way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.clock import from_us, to_us
from holdfast.errors import AlreadyExistsError, HoldfastError
from holdfast.model import Document, Schema
from holdfast.model.columns import Column
from holdfast.model.path import split_key
from holdfast.store import Capabilities, Catalog, Committed, Snapshot, Subscription
from holdfast.store.commit import Commit, Outcome, Write
from holdfast.store.plan import QueryPlan
from holdfast.store.port import MIGRATE_ALL, ClaimRequest, MigrationRequest
from holdfast.store.query import fitting, rows_of, totals_of
from holdfast.store.write_rules import Change, decide
from tests.contract.query_matcher import Position, column_of, matches, position

T = TypeVar("T")
CAPABILITIES = Capabilities(name="reference", durable=False, embedded=True, wakes_processes=False)


_DATABASES: dict[str, MemoryDatabase] = {}


async def connect(url: str, catalog: Catalog) -> Reference:
    return Reference(_DATABASES.setdefault(url, MemoryDatabase()), catalog)


class Row(msgspec.Struct):
    """One stored document, as `decide` sees it."""

    schema: Schema[Any]
    version: int
    tenant: str | None
    stored: Document

    def document(self) -> Document:
        return self.stored

    def seen_as(self, schema: Schema[Any], key: str) -> Row:
        """Return the row under another declaration of its collection."""
        if schema is self.schema:
            return self
        stored = schema.from_fields(self.schema.to_fields(self.stored), split_key(key))
        return Row(schema, self.version, self.tenant, stored)


class MemoryDatabase:
    """What outlives an engine: rows by collection, and subscriptions."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Row]] = {}
        self.subscriptions: list[tuple[set[str], ReferenceSubscription]] = []
        self.versions = itertools.count(1)


class Reference:
    def __init__(self, database: MemoryDatabase, catalog: Catalog) -> None:
        self.catalog = catalog
        self.capabilities = CAPABILITIES
        self._place = database

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        await asyncio.sleep(0)
        rows = self._rows(schema)
        return [_snapshot(key, rows[key]) if key in rows else None for key in keys]

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        await asyncio.sleep(0)
        found = self._matching(plan)
        last = None if plan.after is None else Position(plan, *plan.after)
        later = [s for s in found if last is None or last < position(plan, s)]
        return later[: plan.limit]

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        return rows_of(await self.find(plan), columns)

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        assert plan.aggregate is not None
        found = self._matching(plan)
        if plan.aggregate.field is None:
            return len(found)
        column = column_of(plan, plan.aggregate.field)
        numbers = [v for s in found if (v := column.read(s.doc)) is not None]
        if plan.aggregate.function == "sum":
            total: int | float = sum(numbers)
            return total
        return sum(numbers) / len(numbers) if numbers else None

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        found = totals_of(self._matching(plan), by, of)
        return [(*values, count, fitting(total)) for values, (count, total) in found.items()]

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes = [self._commit(commit) for commit in commits]
        await asyncio.sleep(0)
        return outcomes

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        await asyncio.sleep(0)
        claim = request.schema.claim
        assert claim is not None
        rows = self._rows(request.schema)
        due = [(key, row) for key, row in rows.items() if _may_claim(request, row)]
        due.sort(key=lambda one: (getattr(one[1].stored, claim.due), one[0].encode()))
        chosen = {key for key, _ in _round_robin(request, due)[: request.limit]}
        taken = [(key, row) for key, row in due if key in chosen]
        for _, row in taken:
            _lease(request, row, next(self._place.versions))
        self._notify({request.schema} if taken else set())
        return [_snapshot(key, row) for key, row in taken]

    async def next_due(
        self, schema: Schema[Any], tenant: str | None, *, after_us: int | None = None
    ) -> int | None:
        assert schema.claim is not None
        mine = [row.stored for row in self._rows(schema).values() if tenant in (None, row.tenant)]
        times = [due for document in mine if (due := getattr(document, schema.claim.due)) is not None]
        later = [due for due in times if after_us is None or to_us(due) > after_us]
        return to_us(min(later)) if later else None

    async def leased(
        self, schema: Schema[Any], owner_prefix: str, *, now_us: int, until_us: int, limit: int
    ) -> list[Snapshot[Any]]:
        claim = schema.claim
        assert claim is not None
        assert claim.owner is not None
        found = []
        for key, row in self._rows(schema).items():
            due, owner = getattr(row.stored, claim.due), getattr(row.stored, claim.owner)
            held = claim.state is None or getattr(row.stored, claim.state[0]) == claim.state[1]
            if held and (owner or "").startswith(owner_prefix) and due and now_us < to_us(due) <= until_us:
                found.append((due, key, row))
        found.sort(key=lambda one: (one[0], one[1].encode()))
        return [_snapshot(key, row) for _, key, row in found[:limit]]

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        assert schema.claim is not None
        times = [getattr(row.stored, schema.claim.due) for row in self._rows(schema).values()]
        return min(limit, sum(at is not None and to_us(at) <= now_us for at in times))

    def watch(self, schemas: Sequence[Schema[Any]], *, claims: bool = False) -> Subscription:
        subscription = ReferenceSubscription()
        self._place.subscriptions.append(({self.catalog.table(schema) for schema in schemas}, subscription))
        return subscription

    def peek(self, cls: type, prefix: str) -> list[Document]:
        """Return the documents whose keys have this prefix."""
        schema = next(schema for schema in self.catalog.schemas if schema.cls is cls)
        return [row.stored for key, row in sorted(self._rows(schema).items()) if key.startswith(prefix)]

    @property
    def problem(self) -> str | None:
        return None

    async def now_us(self, local_us: int) -> int:
        return local_us

    async def migrate(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        return []

    async def diff(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        return []

    async def undeployed(self, *, confirm: bool = False) -> list[str]:
        return []

    async def close(self) -> None:
        return None

    def _rows(self, schema: Schema[Any]) -> dict[str, Row]:
        table = self.catalog.table(schema)
        rows = {key: row.seen_as(schema, key) for key, row in self._place.rows.get(table, {}).items()}
        self._place.rows[table] = rows
        return rows

    def _matching(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        rows = self._rows(plan.schema)
        found = [_snapshot(key, row) for key, row in rows.items() if matches(plan, key, row)]
        return sorted(found, key=lambda snapshot: position(plan, snapshot))

    def _commit(self, commit: Commit) -> Outcome:
        try:
            changes = [self._decide(write, commit) for write in commit.writes]
        except HoldfastError as refused:
            return refused
        versions = tuple(self._apply(change) for change in changes)
        self._notify({change.schema for change in changes if change is not None})
        return Committed(versions)

    def _decide(self, write: Write, commit: Commit) -> Change | None:
        current = self._rows(write.schema).get(write.key)
        change = decide(write, current, commit=commit)
        if change is not None and change.kind == "insert" and not change.blind and current is not None:
            raise AlreadyExistsError(f"{write.schema.name} {write.key!r} already exists")
        return change

    def _apply(self, change: Change | None) -> int:
        if change is None:
            return 0
        rows = self._rows(change.schema)
        if change.prepared is None:
            del rows[change.key]
            return 0
        version = next(self._place.versions)
        stored = change.schema.document_of(change.prepared)
        rows[change.key] = Row(change.schema, version, change.prepared.tenant, stored)
        return version

    def _notify(self, schemas: set[Schema[Any]]) -> None:
        changed = {self.catalog.table(schema) for schema in schemas}
        for watched, subscription in self._place.subscriptions:
            if changed & watched:
                subscription.notified.set()


class ReferenceSubscription:
    def __init__(self) -> None:
        self.notified = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self.notified.wait(), timeout_s)
        except TimeoutError:
            return False
        self.notified.clear()
        return True

    def close(self) -> None:
        self.notified = asyncio.Event()


def _snapshot(key: str, row: Row) -> Snapshot[Any]:
    return Snapshot(row.schema.copy(row.stored), row.version, key)


def _may_claim(request: ClaimRequest, row: Row) -> bool:
    claim = request.schema.claim
    assert claim is not None
    due = getattr(row.stored, claim.due)
    if due is None or to_us(due) > request.now_us:
        return False
    if request.tenant is not None and row.tenant != request.tenant:
        return False
    lane = getattr(row.stored, claim.lane) if claim.lane else None
    if request.lane_prefix and not (
        str(lane).startswith(request.lane_prefix) and lane != request.lane_prefix
    ):
        return False
    return lane not in request.skip_lanes and (request.only_lanes is None or lane in request.only_lanes)


def _round_robin(request: ClaimRequest, due: list[tuple[str, Row]]) -> list[tuple[str, Row]]:
    """At most `per_lane` of each lane, lanes in their order, beginning after `after_lane`."""
    chosen = request.only_lanes is not None or request.skip_lanes or request.lane_prefix
    if request.per_lane is None and not chosen:
        return due
    assert request.schema.claim is not None
    assert request.schema.claim.lane is not None
    lanes: dict[str, list[tuple[str, Row]]] = {}
    for key, row in due:
        lanes.setdefault(getattr(row.stored, request.schema.claim.lane), []).append((key, row))
    turn = sorted(lanes, key=str.encode)
    if request.after_lane is not None:
        last = request.after_lane.encode()
        turn.sort(key=lambda lane: lane.encode() <= last)
    return [one for lane in turn for one in lanes[lane][: request.per_lane]]


def _lease(request: ClaimRequest, row: Row, version: int) -> None:
    claim = request.schema.claim
    assert claim is not None
    row.version = version
    setattr(row.stored, claim.due, from_us(request.now_us + request.lease_us))
    setattr(row.stored, claim.fence, getattr(row.stored, claim.fence) + 1)
    if claim.owner:
        setattr(row.stored, claim.owner, request.owner)
    if claim.state:
        setattr(row.stored, claim.state[0], claim.state[1])
