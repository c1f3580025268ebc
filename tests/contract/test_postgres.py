"""PostgreSQL keeps the contract."""

from __future__ import annotations

import pytest

from holdfast.store import Capabilities
from holdfast.store.contract import Home, StoreContract
from holdfast.store.postgres import connect


class TestPostgres(StoreContract):
    capabilities = Capabilities(name="postgres", row_level_security=True)

    @pytest.fixture
    def home(self, postgres_url: str) -> Home:
        return Home(connect, postgres_url)
