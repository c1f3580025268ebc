"""The store handle: typed reads and commits over an engine, for one tenant or for all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

from holdfast.clock import Clock, SharedClock, SystemClock, from_us, to_us
from holdfast.errors import (
    BadQueryError,
    ConflictError,
    DeclarationError,
    HoldfastError,
    InvalidError,
    RetryLaterError,
    WrongTenantError,
)
from holdfast.model.access import ALL_TENANTS
from holdfast.model.document import Document, schema_of
from holdfast.model.identity import check_id
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.model.path import join_key, join_keys, split_key
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import (
    Commit,
    Committed,
    Outcome,
    Snapshot,
    Write,
    check_commit,
    create,
    create_or_refusal,
    explain_no_writes,
    patch,
)
from holdfast.store.commit_batch import CommitBatch, CreateBatch, claimed_patches, create_batch, new_documents
from holdfast.store.io_counters import IO_COUNTERS
from holdfast.store.plan import Aggregate, QueryPlan, resolve, selectable
from holdfast.store.port import (
    MIGRATE_ALL,
    Capabilities,
    ClaimRequest,
    Engine,
    MigrationRequest,
    Subscription,
    UnstartedCommit,
)
from holdfast.store.query import Query, QueryPage
from holdfast.store.retention import deletion, past_retention
from holdfast.store.transaction import Transaction

D = TypeVar("D", bound=Document)
T = TypeVar("T")
B = TypeVar("B", bound=CommitBatch)
# Longer than any lease of a claim: what is due later than that is not claimed, but waits.
LEASE_US_MAX: Final = 300_000_000
RELEASE_BATCH: Final = 200
# A scan by prefix reads past its end, so it begins with a short page.
PREFIX_PAGE_FIRST: Final = 8


class Store:
    """A store, or one tenant's part of it.

    The root handle reaches collections without tenants; `tenant(id)` only one tenant's documents;
    `privileged()` crosses tenants, visibly in the code that uses it.

    Example:
        acme = store.tenant("acme")
        run = await acme.get(Run, "run-1")
        await acme.commit(patch(Run, "run-1", changes={"status": "running"}, expect=run.unchanged))
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        tenant: str | None = None,
        privileged: bool = False,
    ) -> None:
        self.engine = engine
        self.clock: Clock = clock or SystemClock()
        self.tenant_id = tenant
        self._privileged = privileged
        self._readable: dict[type[Any], Schema[Any]] = {}  # the classes that this handle was found to reach
        self._writable: set[Schema[Any]] = set()

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    @property
    def catalog(self) -> Catalog:
        return self.engine.catalog

    def tenant(self, tenant_id: str) -> Store:
        """Return a handle that can't reach any other tenant's documents."""
        check_id(tenant_id, "tenant", bytes_max=ID_BYTES_MAX)
        if tenant_id == ALL_TENANTS:
            raise WrongTenantError(f"{ALL_TENANTS} stands for all tenants; name one")
        if self.tenant_id not in (None, tenant_id):
            raise WrongTenantError("a tenant's handle can't become another tenant's; use the root handle")
        return Store(self.engine, clock=self.clock, tenant=tenant_id)

    @property
    def crosses_tenants(self) -> bool:
        """Whether this is a privileged handle."""
        return self._privileged

    def privileged(self) -> Store:
        """Return a handle that crosses tenants: for workers and administration."""
        if self.tenant_id is not None:
            raise WrongTenantError("a tenant's handle can't become privileged; use the root handle")
        return Store(self.engine, clock=self.clock, privileged=True)

    async def get(self, cls: type[D], *ids: str) -> Snapshot[D] | None:
        """Return the document with this id, or None; another tenant's counts as missing."""
        schema = self._readable.get(cls) or self._schema(cls)
        (found,) = await self.engine.fetch(schema, (join_key(ids, schema.path.parameters),))
        IO_COUNTERS.reads += 1
        if found is None or self.tenant_id is None or self._is_visible(schema, found.doc):
            return found
        return None

    async def get_many(self, cls: type[D], ids: Iterable[str | tuple[str, ...]]) -> list[Snapshot[D] | None]:
        """Return the documents with these ids in that order, None for missing ones."""
        schema = self._schema(cls)
        keys = join_keys(ids, schema.path.parameters)
        found = await self.engine.fetch(schema, keys)
        IO_COUNTERS.reads += len(keys)
        return [one if one is not None and self._is_visible(schema, one.doc) else None for one in found]

    async def query(self, query: Query[D]) -> QueryPage[D]:
        """Return one page; refused, with the index to declare, when no declared index serves the query."""
        plan = self._plan(query)
        items = await self.engine.find(plan)
        IO_COUNTERS.reads += len(items)
        full = len(items) == plan.limit
        return QueryPage(items, plan.cursor_at(items[-1].doc, items[-1].key) if full else None)

    async def find_by_prefix(self, cls: type[D], *ids: str, limit: int) -> list[Snapshot[D]]:
        """Return the first documents whose last id begins with the last of `ids`, in the order of their ids.

        An id that is the prefix itself is not among them. Of a top-level collection of tenants only a
        privileged handle can ask this: ids are in one order over all tenants.
        """
        query = Query(cls).limit(limit)
        plan = self._plan(query.under(*ids[:-1]) if len(ids) > 1 else query)
        key = join_key(ids, plan.schema.path.parameters)
        found = await self.engine.find(msgspec.structs.replace(plan, after=((), key)))
        IO_COUNTERS.reads += len(found)
        return [one for one in found if one.key.startswith(key)]

    async def scan_by_prefix(self, cls: type[D], *ids: str) -> AsyncIterator[Snapshot[D]]:
        """Yield all documents whose last id begins with the last of `ids`, in the order of their ids.

        For a prefix that few documents share: a tenant's handle reads other tenants' too, and leaves them
        out. An id that is the prefix itself is not among them.
        """
        query: Query[D] = Query(cls).under(*ids[:-1]) if len(ids) > 1 else Query(cls)
        privileged = self._privileged or self.tenant_id is not None
        plan, size = resolve(query, tenant=None, privileged=privileged), PREFIX_PAGE_FIRST
        key = prefix = join_key(ids, plan.schema.path.parameters)
        while True:
            found = await self.engine.find(msgspec.structs.replace(plan, after=((), key), limit=size))
            IO_COUNTERS.reads += len(found)
            for one in found:
                if one.key.startswith(prefix) and self._is_visible(plan.schema, one.doc):
                    yield one
            if len(found) < size or not found[-1].key.startswith(prefix):
                return
            key, size = found[-1].key, query.size
            await asyncio.sleep(0)  # as in `scan`

    async def scan(self, query: Query[D]) -> AsyncIterator[Snapshot[D]]:
        """Yield all that the query finds, read in pages of `query.size`."""
        cursor = query.cursor
        while True:
            page = await self.query(query.after(cursor))
            for item in page.items:
                yield item
            cursor = page.cursor
            if cursor is None:
                return
            # An engine may return a small page without suspending; other tasks must run, too.
            await asyncio.sleep(0)

    async def select(self, query: Query[Any], *fields: str) -> AsyncGenerator[list[tuple[Any, ...]], None]:
        """Yield the keys and some fields of all that the query finds, in lists of up to `query.size`.

        Many times faster than documents, for work over entire collections.

        Only fields of declared indexes; dates are text, as in filters.

        Example: `async for rows in store.select(Query(Unit), "number"): numbers.update(rows)`
        """
        plan = self._plan(query)
        # The order's fields are read too: they are the position of the next page.
        paths = list(dict.fromkeys([*fields, *(term.column.path for term in plan.order)]))
        columns = [selectable(plan.schema, path) for path in paths]
        positions = [paths.index(term.column.path) + 1 for term in plan.order]
        width = len(fields) + 1
        while True:
            rows = await self.engine.select(plan, columns)
            IO_COUNTERS.reads += len(rows)
            yield rows if len(columns) < width else [row[:width] for row in rows]
            if len(rows) < plan.limit:
                return
            last = rows[-1]
            plan = msgspec.structs.replace(plan, after=(tuple([last[n] for n in positions]), last[0]))

    async def count(self, query: Query[Any]) -> int:
        return int(await self._aggregate(query, "count", None) or 0)

    async def totals(self, query: Query[Any], *by: str, of: str | None = None) -> list[tuple[Any, ...]]:
        """Count and sum what the query finds, grouped by some fields, without reading documents.

        Returns a row per group, unordered: the fields' values, the count, the sum of `of`. Only fields of
        declared indexes; dates are text, as in filters.

        Example: `for account, count, cents in await store.totals(Query(Entry), "account", of="cents"): ...`
        """
        plan = self._plan(query)
        columns = [selectable(plan.schema, path) for path in by]
        summed = None if of is None else selectable(plan.schema, of)
        if summed is not None and summed.kind not in ("integer", "number"):
            raise BadQueryError("only a number can be summed", of)
        rows = await self.engine.totals(plan, columns, summed)
        IO_COUNTERS.reads += len(rows)
        return rows

    async def sum(self, query: Query[Any], field: str) -> int | float:
        """Return the sum of a field over what the query finds; 0 over nothing."""
        return await self._aggregate(query, "sum", field) or 0

    async def avg(self, query: Query[Any], field: str) -> float | None:
        """Return the average of a field; None over nothing."""
        value = await self._aggregate(query, "avg", field)
        return None if value is None else float(value)

    async def _aggregate(
        self, query: Query[Any], function: Literal["count", "sum", "avg"], field: str | None
    ) -> int | float | None:
        IO_COUNTERS.reads += 1
        return await self.engine.aggregate(self._plan(query, Aggregate(function, field)))

    async def commit(self, *writes: Write) -> Committed:
        """Make all writes or none; durable when this returns."""
        (outcome,) = await self.engine.commit(self._commits((writes,)))
        if isinstance(outcome, HoldfastError):
            raise outcome
        return outcome

    def start_commit(self, *writes: Write) -> asyncio.Future[list[Outcome]]:
        """Start a commit for a caller that is no coroutine; the result has its one outcome.

        Cancelled, the future tells nothing more, and the commit is made or not.
        """
        return self.start_settle((writes,))

    def start_settle(self, commits: Iterable[Sequence[Write]]) -> asyncio.Future[list[Outcome]]:
        """Start many commits as `settle` makes them, for a caller that is no coroutine."""
        checked = self._commits(commits)
        if type(checked) is CreateBatch:
            checked.shared = True
        return _as_future(self.engine.commit(checked))

    def start_creates(self, documents: Sequence[Document]) -> asyncio.Future[list[Outcome]]:
        """Start to create documents, each by a commit of its own, as `start_settle` does.

        Faster where all are of one class. Raises where one of them is invalid, and then creates none.
        """
        batch = new_documents(documents, tenant=self.tenant_id, shared=True)
        if batch is None:
            return self.start_settle([(create(document),) for document in documents])
        return _as_future(self.engine.commit(self._counted(batch)))

    async def settle_creates(self, documents: Sequence[Document]) -> list[Outcome]:
        """Create documents, each by a commit of its own; return a result or an error for each.

        Faster than `settle` with a `create` for each where all are of one class.
        """
        batch = new_documents(documents, tenant=self.tenant_id)
        if batch is not None:
            return await self.engine.commit(self._counted(batch))
        writes = [create_or_refusal(document) for document in documents]
        made = iter(await self.settle([[one] for one in writes if isinstance(one, Write)]))
        return [next(made) if isinstance(one, Write) else one for one in writes]

    async def settle(self, commits: Iterable[Sequence[Write]]) -> list[Outcome]:
        """Make many commits at once, each atomic by itself; return a result or an error for each."""
        return await self.engine.commit(self._commits(commits))

    async def settle_claimed(self, documents: Sequence[D], *fields: str) -> list[Outcome]:
        """Store these fields of claimed documents as they are now; return a result or an error for each.

        Each is a commit of its own under the document's fencing number, as a `patch` that expects
        `snapshot.fenced`; all are of one class. Faster than `settle` with a patch for each.

        Example: `await store.settle_claimed(jobs, "status", "due_at", "owner")`
        """
        if not documents:
            return []
        batch = claimed_patches(documents, fields, tenant=self.tenant_id)
        return await self.engine.commit(self._counted(batch))

    async def transact(
        self, act: Callable[[Transaction], Awaitable[T]], *, attempts: int = 10, back_off_s: float = 0.01
    ) -> T:
        """Run a transaction; repeat it from the start when a document it read was written meanwhile.

        `act` may run several times, so it must only read and write through its transaction.
        """
        for attempt in range(1, attempts + 1):
            transaction, committed = Transaction(self), False
            try:
                result = await act(transaction)
                try:
                    await transaction.commit()
                    committed = True
                    return result
                except (ConflictError, RetryLaterError) as conflict:
                    if attempt == attempts or not transaction.may_retry(conflict):
                        raise
            finally:
                transaction.end(committed=committed)
            # Short and the same for all: a back-off that grows with each conflict would starve the loser.
            await asyncio.sleep(random.uniform(0, back_off_s * min(3, attempt)))
        raise BadQueryError("a transaction needs at least one attempt")

    async def claim_due(
        self,
        cls: type[D],
        *,
        limit: int,
        lease_s: float,
        owner: str = "",
        per_lane: int | None = None,
        after_lane: str | None = None,
        skip_lanes: Iterable[str] = (),
        only_lanes: Iterable[str] | None = None,
        lane_prefix: str = "",
    ) -> list[Snapshot[D]]:
        """Claim up to `limit` due documents for `lease_s`; nobody else gets them until the lease ends.

        With `per_lane`, at most so many of each lane, in round-robin order from `after_lane` on; `skip_lanes`
        are excluded, and `only_lanes`, or those that begin with `lane_prefix` and go on, are the only ones.
        """
        schema = self._schema(cls)
        if schema.claim is None:
            raise BadQueryError(f"{schema.name} declares no claim=Claim(...)")
        if limit < 1 or lease_s <= 0 or (per_lane is not None and per_lane < 1):
            raise BadQueryError("claim_due needs limit >= 1, lease_s > 0 and, where given, per_lane >= 1")
        skip_lanes, only_lanes = tuple(skip_lanes), None if only_lanes is None else tuple(only_lanes)
        chosen = per_lane or after_lane or skip_lanes or lane_prefix or only_lanes is not None
        if schema.claim.lane is None and chosen:
            raise BadQueryError(f"{schema.name} declares its claim without a lane, so lanes can't be chosen")
        if isinstance(self.clock, SharedClock) and self.clock.stale:
            await self.clock.sync(self.engine.now_us)
        claimed = await self.engine.claim(ClaimRequest(
            schema=schema, now_us=self.clock.now_us(), lease_us=round(lease_s * 1e6),
            limit=limit, owner=owner,
            tenant=self.tenant_id if schema.tenant else None, per_lane=per_lane, after_lane=after_lane,
            skip_lanes=frozenset(skip_lanes),
            only_lanes=None if only_lanes is None else frozenset(only_lanes), lane_prefix=lane_prefix,
        ))  # fmt: skip
        IO_COUNTERS.reads += len(claimed)
        IO_COUNTERS.writes += len(claimed)
        return claimed

    async def release_claims(self, cls: type[D], owner_prefix: str) -> int:
        """Make what owners with this prefix have claimed due at once; return how many documents.

        For the claims of a process that is gone: their fencing numbers stay, so where it was only paused,
        what it then writes is refused as soon as another has claimed the document.
        """
        schema = self._schema(cls)
        if not (self._privileged and owner_prefix and schema.claim is not None and schema.claim.owner):
            raise BadQueryError(
                f"release_claims needs a privileged handle, a prefix, and {schema.name} a claim with an owner"
            )
        released, more = 0, True
        while more:
            now_us = self.clock.now_us()
            found = await self.engine.leased(
                schema, owner_prefix, now_us=now_us, until_us=now_us + LEASE_US_MAX, limit=RELEASE_BATCH
            )
            outcomes = await self.settle(
                [_release(item, schema.claim.due, from_us(now_us))] for item in found
            )
            count = sum(isinstance(outcome, Committed) for outcome in outcomes)
            released, more = released + count, count > 0 and len(found) == RELEASE_BATCH
        return released

    async def next_due(self, cls: type[D], *, after: datetime | None = None) -> datetime | None:
        """Return when the next document is due, or None: a worker can sleep until then.

        That may be past, unless `after` leaves out those that are due by then.
        """
        schema = self._schema(cls)
        if schema.claim is None:
            raise BadQueryError(f"{schema.name} declares no claim=Claim(...)")
        tenant, after_us = self.tenant_id if schema.tenant else None, None if after is None else to_us(after)
        due_us = await self.engine.next_due(schema, tenant, after_us=after_us)
        return None if due_us is None else from_us(due_us)

    async def count_due(self, cls: type[D], *, limit: int = 1_000) -> int:
        """Count the due documents of all tenants, up to `limit`."""
        schema = self._schema(cls)
        if schema.claim is None or not self._privileged:
            raise BadQueryError(f"count_due needs a privileged handle, and {schema.name} a claim=Claim(...)")
        return await self.engine.count_due(schema, now_us=self.clock.now_us(), limit=limit)

    async def expire(self, cls: type[D], *, limit: int = 500) -> int:
        """Delete up to `limit` documents past their retention, with their dependents; return how many."""
        schema = self._schema(cls)
        if schema.retention is None:
            raise BadQueryError(f"{schema.name} declares no retention=Retention(...)")
        query = past_retention(cls, schema, schema.retention, now=self.clock.now(), tenant=self.tenant_id)
        found = await self.engine.find(self._plan(query.limit(limit)))
        deletions = [deletion(item, schema.retention) for item in found]
        # Those with dependents one by one: together they could make a transaction that others wait for.
        groups: list[list[tuple[Write, ...]]] = [[one for one in deletions if len(one) == 1]]
        groups += [[one] for one in deletions if len(one) > 1]
        outcomes: list[Outcome] = []
        for group in groups:
            outcomes += await self.engine.commit([Commit(w, self.tenant_id, expiring=True) for w in group])
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    def watch(self, *classes: type[Document], claims: bool = False) -> Subscription:
        """Subscribe to commits to these collections: wait on it instead of polling.

        `claims` is for those who wait for something to claim: other commits need not wake them.
        """
        return self.engine.watch([self._schema(cls, read=False) for cls in classes], claims=claims)

    async def migrate(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        """Bring the store to what the classes declare; return the steps. What is not declared stays."""
        return await self.engine.migrate(request)

    async def diff(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        """Return the steps that `migrate` would take."""
        return await self.engine.diff(request)

    async def undeployed(self, *, confirm: bool = False) -> list[str]:
        """Return the declared indexes and rules that can't be confirmed as deployed.

        With `confirm`, record that they are: Firestore itself does not tell a service.
        """
        return await self.engine.undeployed(confirm=confirm)

    async def close(self) -> None:
        await self.engine.close()

    def _schema(self, cls: type[D], *, read: bool = True) -> Schema[D]:
        schema = schema_of(cls)
        if schema not in self.engine.catalog:
            raise DeclarationError(f"{schema.name} is not among the classes this store was opened with")
        if read and schema.tenant is not None and self.tenant_id is None and not self._privileged:
            raise WrongTenantError(
                f"{schema.name} belongs to tenants; use store.tenant(...) or store.privileged()"
            )
        if read:
            self._readable[cls] = schema
        return schema

    def _is_visible(self, schema: Schema[D], document: D) -> bool:
        if schema.tenant is None or self.tenant_id is None:
            return True
        return bool(schema.tenant.read(document) == self.tenant_id)

    def _plan(self, query: Query[Any], aggregate: Aggregate | None = None) -> QueryPlan:
        if query.cls not in self._readable:
            self._schema(query.cls)
        return resolve(query, tenant=self.tenant_id, privileged=self._privileged, aggregate=aggregate)

    def _commits(self, commits: Iterable[Sequence[Write]]) -> Sequence[Commit]:
        """Check the commits of one call; each collection once, as a handle has many writes to it."""
        given = commits if isinstance(commits, (list, tuple)) else list(commits)
        batch = create_batch(given, self.tenant_id) if len(given) > 1 else None
        if batch is not None:
            return self._counted(batch)
        writes_max = self.engine.capabilities.writes_max
        known, tenant, checked = self._writable, self.tenant_id, []
        for writes in given:
            try:
                schemas = [write.schema for write in writes]
            except (AttributeError, TypeError):
                raise InvalidError(explain_no_writes(writes)) from None
            for schema in schemas:
                if schema not in known:
                    self._check_writable(schema)
            checked.append(Commit(check_commit(writes, writes_max), tenant))
            IO_COUNTERS.writes += len(schemas)
        return checked

    def _counted(self, batch: B) -> B:
        """Count the writes of a batch whose collection this handle may write to."""
        self._check_writable(batch.schema)
        IO_COUNTERS.writes += len(batch)
        return batch

    def _check_writable(self, schema: Schema[Any]) -> None:
        if schema not in self._writable:
            self._schema(schema.cls)
            self._writable.add(schema)


def _as_future(committing: Awaitable[list[Outcome]]) -> asyncio.Future[list[Outcome]]:
    if isinstance(committing, asyncio.Future):
        return committing
    return (
        committing.start() if isinstance(committing, UnstartedCommit) else asyncio.ensure_future(committing)
    )


def _release(item: Snapshot[Any], due: str, now: datetime) -> Write:
    return patch(type(item.doc), *split_key(item.key), changes={due: now}, expect=item.unchanged)
