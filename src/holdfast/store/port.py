"""The port: what an engine promises. A method here costs three engines, so there are few.

An engine gets everything resolved: schemas compiled, documents validated and encoded, queries planned,
tenants named. It stores, queries, claims and notifies; the write rules are not its own.
"""

from __future__ import annotations

from abc import abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.plan import QueryPlan


class UnstartedCommit(Awaitable[list[Outcome]]):
    """Commits that are made when this is awaited or started, whichever it is."""

    __slots__ = ()

    @abstractmethod
    def start(self) -> Future[list[Outcome]]:
        """Have the commits made without a task; return the future of their outcomes."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine offers; the contract suite asserts each of these."""

    name: str
    durable: bool = True  # an acknowledged commit survives a killed process
    embedded: bool = False  # no server to reach
    wakes_processes: bool = True  # a commit in one process wakes watchers in another
    row_level_security: bool = False  # the database itself keeps tenants apart
    online_backup: bool = False
    counter_shards: int = 1  # over how many documents a hot counter is spread
    writes_max: int = 500


class StorageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a store's file, what of it is free for new documents, and faults that a check found."""

    path: str
    bytes: int
    free_bytes: int
    faults: list[str] = []


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Take up to `limit` due documents; see `Store.claim_due`."""

    schema: Schema[Any]
    now_us: int
    lease_us: int
    limit: int
    owner: str
    tenant: str | None
    per_lane: int | None = None
    after_lane: str | None = None
    skip_lanes: frozenset[str] = frozenset()
    only_lanes: frozenset[str] | None = None
    lane_prefix: str = ""

    @property
    def lanes_below(self) -> str | None:
        """The first text that sorts after every lane with the prefix; None without one."""
        prefix = self.lane_prefix
        return f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}" if prefix else None


class MigrationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps of a migration to take.

    Beside processes of `other_releases` it only adds: what would take something from them waits, or is
    refused where the declared schema can't do without. `drop` asks for the opposite: only to drop what is no
    longer declared. `only` restricts it to some collections; `refill` names columns and list indexes
    (`labels[]`) to be rewritten from the documents.
    """

    only: tuple[Schema[Any], ...] | None = None
    other_releases: bool = False
    drop: bool = False
    refill: Mapping[Schema[Any], frozenset[str]] = {}

    def covers(self, schema: Schema[Any]) -> bool:
        return self.only is None or schema in self.only


MIGRATE_ALL: Final = MigrationRequest()


class Subscription(Protocol):
    """Notified after commits to the watched collections. A hint, never a promise."""

    async def wait(self, timeout_s: float) -> bool:
        """Return True once notified since the last wait, False when the time is up."""

    def close(self) -> None: ...


class Engine(Protocol):
    """Stores documents. All methods may be called from many tasks at once."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def catalog(self) -> Catalog: ...

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        """Return the documents with these keys in that order, None for missing ones."""

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        """Return up to `plan.limit` documents, in order, by a scan of the plan's index."""

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        """Return the keys and these columns' plain values instead of the documents."""

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        """Return the count, sum (0 of nothing) or average (None of nothing) of what the plan finds.

        A sum of integers is an integer while it fits 64 bits, and a float beyond.
        """

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        """Group what the plan finds, whatever its limit, by these columns.

        A row has the values, the number of documents, and the sum of `of` (0 of nothing).
        """

    def commit(self, commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
        """Make each commit, atomically and by itself, in the order given; durable when it was awaited.

        An engine that returns a future has begun, and what is an `UnstartedCommit` can be started: a caller
        without a coroutine then needs none for this.
        """

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        """Lease and fence due documents, each to one caller at a time, earliest first."""

    async def next_due(
        self, schema: Schema[Any], tenant: str | None, *, after_us: int | None = None
    ) -> int | None:
        """Return when the earliest claimable document is due, in microseconds since 1970, or None.

        With `after_us`, those that are due by then are left out.
        """

    async def leased(
        self, schema: Schema[Any], owner_prefix: str, *, now_us: int, until_us: int, limit: int
    ) -> list[Snapshot[Any]]:
        """Return claimed documents of all tenants whose owner has this prefix, by the end of their lease.

        Only those whose lease ends after `now_us` and by `until_us`.
        """

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        """Count the documents of all tenants that are due by then, up to `limit`."""

    def watch(self, schemas: Sequence[Schema[Any]], *, claims: bool = False) -> Subscription:
        """Subscribe to commits to these collections, in this process and, where able, in others.

        With `claims`, an engine may leave out commits after which nothing is to be claimed.
        """

    async def now_us(self, local_us: int) -> int:
        """The engine's own time, in microseconds since 1970: the same for every process that asks.

        An engine without a server agrees on one by the processes' local times.
        """

    @property
    def problem(self) -> str | None:
        """Why commits can't be made at this moment, as far as this process knows; None where they can."""

    async def migrate(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        """Bring the store to what the catalog declares; return the steps. Safe to repeat and to resume.

        Drops nothing, unless the request asks for that.
        """

    async def diff(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        """Return the steps that `migrate` would take."""

    async def undeployed(self, *, confirm: bool = False) -> list[str]:
        """Return what people deploy and nobody has confirmed; `confirm` records that it is deployed."""

    async def close(self) -> None:
        """Finish what is under way, then release all resources."""
