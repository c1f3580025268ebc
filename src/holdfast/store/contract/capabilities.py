"""An engine has the capabilities it states.

Two of them go beyond the port, so an engine that has them implements a hook: `back_up` for an online backup,
`visible_ids` for row-level security. Others are tested with subscriptions and commits.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from holdfast.store.commit import create
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.models import Account, Note
from holdfast.store.counter import Counter, CounterShard
from holdfast.store.port import Capabilities
from holdfast.store.query import Query
from holdfast.store.store import Store


class CapabilityContract:
    capabilities: ClassVar[Capabilities]

    async def back_up(self, store: Store, folder: Path) -> EngineHarness | None:
        """Return the harness of a copy of the store, made while it is in use."""
        return None

    async def visible_ids(self, harness: EngineHarness, tenant: str) -> set[str] | None:
        """Return the ids of the accounts that the engine's own query language reaches for a tenant."""
        return None

    async def test_the_engine_is_what_its_test_says(self, store: Store) -> None:
        assert store.capabilities == self.capabilities

    async def test_what_a_killed_process_had_committed_is_kept_where_stated(
        self, harness: EngineHarness, store: Store
    ) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.store.contract.other_process",
            *harness.address,
            "before-death",
            "killed",
        )
        assert await process.wait() < 0
        assert (await store.get(Note, "before-death") is not None) == self.capabilities.durable

    def test_a_server_is_named_unless_the_engine_is_embedded(self, harness: EngineHarness) -> None:
        assert (urlsplit(harness.url).hostname is None) == self.capabilities.embedded

    async def test_a_backup_made_in_use_holds_what_was_kept(self, store: Store, tmp_path: Path) -> None:
        await store.commit(create(Note(id="before")))
        copied = await self.back_up(store, tmp_path)
        assert (copied is not None) == self.capabilities.online_backup
        await store.commit(create(Note(id="after")))
        if copied is not None:
            async with copied.open(migrate=False) as copy:
                found = await copy.get_many(Note, ["before", "after"])
            assert [bool(one) for one in found] == [True, False]

    async def test_the_database_itself_keeps_tenants_apart_where_stated(
        self, harness: EngineHarness, store: Store
    ) -> None:
        for tenant in "tu":
            await store.tenant(tenant).commit(create(Account(id=f"of-{tenant}", tenant_id=tenant)))
        seen = [await self.visible_ids(harness, tenant) for tenant in "tu"]
        apart = self.capabilities.row_level_security
        assert seen == ([{"of-t"}, {"of-u"}] if apart else [None, None])

    async def test_a_hot_count_is_spread_as_stated_and_exact(self, harness: EngineHarness) -> None:
        spread = self.capabilities.counter_shards
        async with harness.open(classes=[CounterShard]) as store:
            count = Counter(store, "runs")
            await asyncio.gather(*(store.commit(*count.writes(2)) for _ in range(12 * spread)))
            parts = (await store.query(Query(CounterShard))).docs
            assert await count.value() == sum(part.value for part in parts) == 24 * spread
        assert {part.shard for part in parts} <= set(range(spread))
        assert len(parts) > spread // 2
