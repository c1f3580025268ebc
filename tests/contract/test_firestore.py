"""Firestore keeps the contract, on Google's own emulator."""

from __future__ import annotations

import pytest

from holdfast.store import Capabilities
from holdfast.store.contract import EngineHarness, StoreContract
from holdfast.store.firestore import connect


class TestFirestore(StoreContract):
    capabilities = Capabilities(name="firestore", counter_shards=10)

    @pytest.fixture
    def harness(self, firestore_url: str) -> EngineHarness:
        return EngineHarness(connect, firestore_url)
