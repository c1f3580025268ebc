"""SQLite keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import Capabilities, Store
from holdfast.store.contract import EngineHarness, StoreContract
from holdfast.store.sqlite import SqliteEngine, connect


class TestSqlite(StoreContract):
    capabilities = Capabilities(name="sqlite", embedded=True, online_backup=True, writes_max=2_500)

    @pytest.fixture
    def harness(self, sqlite_url: str) -> EngineHarness:
        return EngineHarness(connect, sqlite_url)

    async def back_up(self, store: Store, folder: Path) -> EngineHarness:
        assert isinstance(store.engine, SqliteEngine)
        await store.engine.back_up(folder / "copy.db")
        return EngineHarness(connect, f"sqlite:///{folder / 'copy.db'}")
