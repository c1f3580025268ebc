"""PostgreSQL keeps the contract."""

from __future__ import annotations

import asyncpg
import pytest

from holdfast.store import Capabilities
from holdfast.store.contract import EngineHarness, StoreContract
from holdfast.store.postgres import connect


class TestPostgres(StoreContract):
    capabilities = Capabilities(name="postgres", row_level_security=True, writes_max=2_500)

    @pytest.fixture
    def harness(self, postgres_url: str) -> EngineHarness:
        return EngineHarness(connect, postgres_url)

    async def visible_ids(self, harness: EngineHarness, tenant: str) -> set[str]:
        connection = await asyncpg.connect(harness.url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL ROLE holdfast_app")
                await connection.execute("SELECT set_config('holdfast.role', 'service', true)")
                await connection.execute("SELECT set_config('holdfast.tenant', $1, true)", tenant)
                return {row["_key"] for row in await connection.fetch("SELECT _key FROM accounts")}
        finally:
            await connection.close()
