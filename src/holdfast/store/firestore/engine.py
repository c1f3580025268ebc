"""Firestore behind the port: a few round trips for everything, and no transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Commit, Committed, Outcome, Snapshot
from holdfast.store.firestore.claims import Claimer
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.deployed_schema import DeployedSchema
from holdfast.store.firestore.document_names import DocumentNames, FirestoreDocument
from holdfast.store.firestore.finder import Finder
from holdfast.store.firestore.notifier import SnapshotNotifier
from holdfast.store.firestore.shutdown_gate import ShutdownGate
from holdfast.store.firestore.writes import FirestoreWriter
from holdfast.store.notifier import CommitSubscription
from holdfast.store.plan import QueryPlan
from holdfast.store.port import MIGRATE_ALL, Capabilities, ClaimRequest, MigrationRequest
from holdfast.store.query import rows_of

CAPABILITIES: Final = Capabilities(name="firestore", counter_shards=10, writes_max=500)


class FirestoreEngine:
    def __init__(self, client: FirestoreClient, catalog: Catalog) -> None:
        self._client = client
        self._gate = ShutdownGate()
        self._catalog = catalog
        self._names = DocumentNames(client.address.root, catalog.env)
        self._finder = Finder(client, self._names)
        self._writer = FirestoreWriter(client, self._names)
        self._claimer = Claimer(client, self._names)
        self._notifier = SnapshotNotifier(client, catalog)
        self._deployed = DeployedSchema(client, catalog)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    async def fetch(self, schema: Schema[Any], keys: Sequence[str]) -> list[Snapshot[Any] | None]:
        names = [self._names.name(schema, key) for key in keys]
        with self._gate.entered():
            found = await self._client.read(list(dict.fromkeys(names)))
        return [
            FirestoreDocument(schema, key, found[name]).snapshot() if name in found else None
            for key, name in zip(keys, names, strict=True)
        ]

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        with self._gate.entered():
            return await self._finder.find(plan)

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        return rows_of(await self.find(plan), columns)

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        with self._gate.entered():
            return await self._finder.aggregate(plan)

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        with self._gate.entered():
            return await self._finder.totals(plan, by, of)

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        with self._gate.entered():
            outcomes = await self._writer.commit(commits)
            made = [c for c, o in zip(commits, outcomes, strict=True) if isinstance(o, Committed)]
            self._notifier.publish({w.schema for c in made for w in c.writes if w.kind != "check"})
            return outcomes

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        with self._gate.entered():
            return await self._claimer.claim(request)

    async def next_due(
        self, schema: Schema[Any], tenant: str | None, *, after_us: int | None = None
    ) -> int | None:
        with self._gate.entered():
            return await self._claimer.next_due(schema, tenant, after_us)

    async def leased(
        self, schema: Schema[Any], owner_prefix: str, *, now_us: int, until_us: int, limit: int
    ) -> list[Snapshot[Any]]:
        with self._gate.entered():
            return await self._claimer.leased(
                schema, owner_prefix, now_us=now_us, until_us=until_us, limit=limit
            )

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        with self._gate.entered():
            return await self._claimer.count_due(schema, now_us=now_us, limit=limit)

    def watch(self, schemas: Sequence[Schema[Any]], *, claims: bool = False) -> CommitSubscription:
        return self._notifier.subscribe(schemas, claims=claims)

    @property
    def problem(self) -> str | None:
        return None

    async def now_us(self, local_us: int) -> int:
        with self._gate.entered():
            return await self._client.now_us()

    async def migrate(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        with self._gate.entered():
            return await self._deployed.migrate(request)

    async def diff(self, request: MigrationRequest = MIGRATE_ALL) -> list[str]:
        with self._gate.entered():
            return await self._deployed.diff(request)

    async def undeployed(self, *, confirm: bool = False) -> list[str]:
        with self._gate.entered():
            return await self._deployed.undeployed(confirm=confirm)

    async def close(self) -> None:
        await self._gate.close()
        await self._notifier.close()
        await self._client.close()
