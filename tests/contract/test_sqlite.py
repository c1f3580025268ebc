"""SQLite keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import Capabilities, Store
from holdfast.store.contract import Home, StoreContract
from holdfast.store.sqlite import SqliteEngine, connect


class TestSqlite(StoreContract):
    capabilities = Capabilities(name="sqlite", embedded=True, online_backup=True, writes_max=2_500)

    @pytest.fixture
    def home(self, sqlite_url: str) -> Home:
        return Home(connect, sqlite_url)

    async def back_up(self, store: Store, folder: Path) -> Home:
        assert isinstance(store.engine, SqliteEngine)
        await store.engine.back_up(folder / "copy.db")
        return Home(connect, f"sqlite:///{folder / 'copy.db'}")
