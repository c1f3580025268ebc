from __future__ import annotations
import pytest
from holdfast.store import postgres
from holdfast.store.contract import Home, StoreContract
from holdfast.store.port import Capabilities


class TestPostgres(StoreContract):
    capabilities = Capabilities(name="postgres", row_level_security=True)

    @pytest.fixture
    def home(self, postgres_url: str) -> Home:
        return Home(postgres.connect, postgres_url)
