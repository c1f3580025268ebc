"""SQLite keeps the contract."""

from __future__ import annotations

import pytest

from holdfast.store import Capabilities
from holdfast.store.contract import Home, StoreContract
from holdfast.store.sqlite import connect


class TestSqlite(StoreContract):
    capabilities = Capabilities(name="sqlite", embedded=True, online_backup=True)

    @pytest.fixture
    def home(self, sqlite_url: str) -> Home:
        return Home(connect, sqlite_url)
