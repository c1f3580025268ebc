"""The handle people hold: typed reads and commits over an engine, inside one tenant's walls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.clock import Clock, SharedClock, SystemClock, from_us, to_us
from holdfast.errors import (
    BadQueryError,
    ConflictError,
    DeclarationError,
    HoldfastError,
    RetryLaterError,
    WrongTenantError,
)
from holdfast.model.document import Document, schema_of
from holdfast.model.identity import check_id
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.model.path import join_key, split_key
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Commit, Committed, Outcome, Snapshot, Write, check_commit, delete
from holdfast.store.io_counters import TALLY
from holdfast.store.plan import Aggregate, QueryPlan, resolve, selectable
from holdfast.store.port import Capabilities, ClaimRequest, Engine, Subscription
from holdfast.store.query import Query, QueryPage
from holdfast.store.transaction import Transaction

D = TypeVar("D", bound=Document)
T = TypeVar("T")


class Store:
    """A store, or one tenant's part of it.

    The root handle reaches collections without tenants; `tenant(id)` one tenant's documents and
    nothing else; `privileged()` crosses tenants and says so in the code that uses it.

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

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    @property
    def catalog(self) -> Catalog:
        return self.engine.catalog

    def tenant(self, tenant_id: str) -> Store:
        """A handle that can't reach any other tenant's documents."""
        check_id(tenant_id, "tenant", bytes_max=ID_BYTES_MAX)
        if self.tenant_id not in (None, tenant_id):
            raise WrongTenantError("a tenant's handle can't be turned into another's")
        return Store(self.engine, clock=self.clock, tenant=tenant_id)

    def privileged(self) -> Store:
        """A handle that crosses tenants: for workers and administration."""
        if self.tenant_id is not None:
            raise WrongTenantError("a tenant's handle can't be turned into a privileged one")
        return Store(self.engine, clock=self.clock, privileged=True)

    # -- reading ----------------------------------------------------------------------------------

    async def get(self, cls: type[D], *ids: str) -> Snapshot[D] | None:
        """The document with this id, or None; another tenant's is not there."""
        schema = self._reach(cls)
        (found,) = await self.engine.fetch(schema, (join_key(ids, schema.path.parameters),))
        TALLY.reads += 1
        return found if found is None or self._mine(schema, found.doc) else None

    async def get_many(self, cls: type[D], ids: Iterable[str | tuple[str, ...]]) -> list[Snapshot[D] | None]:
        """The documents with these ids, None where there is none, in the order asked."""
        schema = self._reach(cls)
        whole = [(one,) if isinstance(one, str) else one for one in ids]
        keys = [join_key(one, schema.path.parameters) for one in whole]
        found = await self.engine.fetch(schema, keys)
        TALLY.reads += len(keys)
        return [one if one is not None and self._mine(schema, one.doc) else None for one in found]

    async def query(self, query: Query[D]) -> QueryPage[D]:
        """One page. Refused, with the index to declare, when no declared index serves it."""
        plan = self._plan(query)
        items = await self.engine.find(plan)
        TALLY.reads += len(items)
        full = len(items) == plan.limit
        return QueryPage(items, plan.cursor_at(items[-1].doc, items[-1].key) if full else None)

    async def scan(self, query: Query[D]) -> AsyncIterator[Snapshot[D]]:
        """All that the query finds, page by page; `query.size` is the page."""
        cursor = query.cursor
        while True:
            page = await self.query(query.after(cursor))
            for item in page.items:
                yield item
            cursor = page.cursor
            if cursor is None:
                return
            # An engine may answer a small page without a pause; others must get their turn.
            await asyncio.sleep(0)

    async def select(self, query: Query[Any], *fields: str) -> AsyncGenerator[list[tuple[Any, ...]], None]:
        """Keys and some fields of all that the query finds, in lists of up to `query.size`, many times faster
        than the documents: for work that goes through whole collections.

        Only fields that a declared index holds; dates come as text, as filters take them.

        Example: `async for rows in store.select(Query(Unit), "number"): numbers.update(rows)`
        """
        plan = self._plan(query)
        # What the order needs to go on from a page's last row is read too, where it is not asked for.
        paths = list(dict.fromkeys([*fields, *(term.column.path for term in plan.order)]))
        columns = [selectable(plan.schema, path) for path in paths]
        places = [paths.index(term.column.path) + 1 for term in plan.order]
        width = len(fields) + 1
        while True:
            rows = await self.engine.select(plan, columns)
            TALLY.reads += len(rows)
            yield rows if len(columns) < width else [row[:width] for row in rows]
            if len(rows) < plan.limit:
                return
            last = rows[-1]
            plan = msgspec.structs.replace(plan, after=(tuple([last[n] for n in places]), last[0]))

    async def count(self, query: Query[Any]) -> int:
        return int(await self._aggregate(query, "count", None) or 0)

    async def totals(self, query: Query[Any], *by: str, of: str | None = None) -> list[tuple[Any, ...]]:
        """What the query finds, counted and added up by some fields' values: no document is read.

        Gives a row for each combination, in no order: its values, how many there are, the sum of `of`.
        Only fields that a declared index holds; dates come as text, as filters take them.

        Example: `for account, count, cents in await store.totals(Query(Entry), "account", of="cents"): ...`
        """
        plan = self._plan(query)
        columns = [selectable(plan.schema, path) for path in by]
        summed = None if of is None else selectable(plan.schema, of)
        if summed is not None and summed.kind not in ("integer", "number"):
            raise BadQueryError("only a number can be added up", of)
        rows = await self.engine.totals(plan, columns, summed)
        TALLY.reads += len(rows)
        return rows

    async def sum(self, query: Query[Any], field: str) -> int | float:
        """The field's sum over what the query finds; 0 over nothing."""
        return await self._aggregate(query, "sum", field) or 0

    async def avg(self, query: Query[Any], field: str) -> float | None:
        """The field's average; None over nothing."""
        value = await self._aggregate(query, "avg", field)
        return None if value is None else float(value)

    async def _aggregate(
        self, query: Query[Any], function: Literal["count", "sum", "avg"], field: str | None
    ) -> int | float | None:
        TALLY.reads += 1
        return await self.engine.aggregate(self._plan(query, Aggregate(function, field)))

    # -- writing ----------------------------------------------------------------------------------

    async def commit(self, *writes: Write) -> Committed:
        """Write all or nothing. When this returns, it is kept."""
        (outcome,) = await self.engine.commit((self._commit(writes),))
        if isinstance(outcome, HoldfastError):
            raise outcome
        return outcome

    async def settle(self, commits: Iterable[Sequence[Write]]) -> list[Outcome]:
        """Many commits in one go, each whole or not at all by itself; gives a result or an error for each."""
        return await self.engine.commit([self._commit(writes) for writes in commits])

    async def transact(
        self, act: Callable[[Transaction], Awaitable[T]], *, attempts: int = 10, back_off_s: float = 0.01
    ) -> T:
        """Read, decide, commit; again from the start when somebody wrote in between.

        `act` may run several times, so it must do nothing but read and write through its transaction.
        """
        for attempt in range(1, attempts + 1):
            transaction = Transaction(self)
            answer = await act(transaction)
            try:
                await transaction.commit()
            except (ConflictError, RetryLaterError) as conflict:
                if attempt == attempts or not transaction.may_repeat(conflict):
                    raise
                # Short and alike for all: whoever waits longer for having lost loses again, and starves.
                await asyncio.sleep(random.uniform(0, back_off_s * min(3, attempt)))
            else:
                return answer
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
    ) -> list[Snapshot[D]]:
        """Take up to `limit` due documents for `lease_s`; nobody else gets them until it ends.

        With `per_lane`, at most so many from one lane, lanes taken in turn from `after_lane` on; `skip_lanes`
        are left alone and `only_lanes`, where given, are the only ones asked.
        """
        schema = self._reach(cls)
        if schema.claim is None:
            raise BadQueryError(f"{schema.name} declares no claim=Claim(...)")
        if limit < 1 or lease_s <= 0 or (per_lane is not None and per_lane < 1):
            raise BadQueryError("claim_due needs limit >= 1, lease_s > 0 and, where given, per_lane >= 1")
        skip_lanes, only_lanes = tuple(skip_lanes), None if only_lanes is None else tuple(only_lanes)
        if schema.claim.lane is None and (per_lane or after_lane or skip_lanes or only_lanes is not None):
            raise BadQueryError(f"{schema.name} declares a claim without a lane, so it has none to choose")
        if isinstance(self.clock, SharedClock) and self.clock.stale:
            await self.clock.sync(self.engine.now_us)
        taken = await self.engine.claim(ClaimRequest(
            schema=schema, now_us=self.clock.now_us(), lease_us=round(lease_s * 1e6),
            limit=limit, owner=owner,
            tenant=self.tenant_id if schema.tenant else None, per_lane=per_lane, after_lane=after_lane,
            skip_lanes=frozenset(skip_lanes),
            only_lanes=None if only_lanes is None else frozenset(only_lanes),
        ))  # fmt: skip
        TALLY.reads += len(taken)
        TALLY.writes += len(taken)
        return taken

    async def next_due(self, cls: type[D]) -> datetime | None:
        """When the next document comes due, so that a worker can sleep until then; it may be past."""
        schema = self._reach(cls)
        if schema.claim is None:
            raise BadQueryError(f"{schema.name} declares no claim=Claim(...)")
        due_us = await self.engine.next_due(schema, self.tenant_id if schema.tenant else None)
        return None if due_us is None else from_us(due_us)

    async def count_due(self, cls: type[D], *, limit: int = 1_000) -> int:
        """How many documents of all tenants wait to be claimed, counting no further than `limit`."""
        schema = self._reach(cls)
        if schema.claim is None or not self._privileged:
            raise BadQueryError(f"count_due needs a privileged handle, and {schema.name} a claim=Claim(...)")
        return await self.engine.count_due(schema, now_us=self.clock.now_us(), limit=limit)

    async def expire(self, cls: type[D], *, limit: int = 500) -> int:
        """Delete up to `limit` documents that have been kept long enough; says how many went."""
        schema = self._reach(cls)
        if schema.retention is None:
            raise BadQueryError(f"{schema.name} declares no retention=Retention(...)")
        query = self._past_retention(cls, schema, self.clock.now()).limit(limit)
        found = await self.engine.find(self._plan(query))
        writes = [delete(cls, *split_key(item.key), expect=item.unchanged) for item in found]
        outcomes = await self.engine.commit(
            [Commit((w,), self._tenant_for_writes(), expiring=True) for w in writes]
        )
        return sum(isinstance(outcome, Committed) for outcome in outcomes)

    def _past_retention(self, cls: type[D], schema: Schema[D], now: datetime) -> Query[D]:
        assert schema.retention is not None
        query = Query(cls)
        for field, value in schema.retention.when.items():
            query = query.where(field, "==", value)
        cutoff: Any = schema.retention.cutoff(now)
        column = schema.column(schema.retention.field)
        if column is not None and column.kind == "integer":
            cutoff = to_us(cutoff) // 1000
        query = query.where(schema.retention.field, "<", cutoff)
        if schema.path.nested and not (schema.tenant_is_parent and self.tenant_id):
            query = query.across_parents()
        return query

    # -- the rest ---------------------------------------------------------------------------------

    def watch(self, *classes: type[Document]) -> Subscription:
        """A bell that rings after commits to these collections: wait on it instead of polling."""
        return self.engine.watch([self._reach(cls, read=False) for cls in classes])

    async def migrate(self) -> list[str]:
        """Bring the store to what the classes declare; says what was done."""
        return await self.engine.migrate()

    async def diff(self) -> list[str]:
        """What `migrate` would do."""
        return await self.engine.diff()

    async def close(self) -> None:
        await self.engine.close()

    def _reach(self, cls: type[D], *, read: bool = True) -> Schema[D]:
        schema = schema_of(cls)
        if schema not in self.engine.catalog:
            raise DeclarationError(f"{schema.name} is not among the classes this store was opened with")
        if read and schema.tenant is not None and self.tenant_id is None and not self._privileged:
            raise WrongTenantError(
                f"{schema.name} belongs to tenants: use store.tenant(...) or store.privileged()"
            )
        return schema

    def _mine(self, schema: Schema[D], document: D) -> bool:
        if schema.tenant is None or self.tenant_id is None:
            return True
        return bool(schema.tenant.read(document) == self.tenant_id)

    def _plan(self, query: Query[Any], aggregate: Aggregate | None = None) -> QueryPlan:
        self._reach(query.cls)
        return resolve(query, tenant=self.tenant_id, privileged=self._privileged, aggregate=aggregate)

    def _commit(self, writes: Sequence[Write]) -> Commit:
        for schema in {write.schema for write in writes}:
            self._reach(schema.cls)
        TALLY.writes += len(writes)
        return Commit(check_commit(writes, self.capabilities.writes_max), self._tenant_for_writes())

    def _tenant_for_writes(self) -> str | None:
        return self.tenant_id
