"""The suite itself is put to the plainest engine: what it asks for can be read there."""

from __future__ import annotations

import secrets

import pytest

from holdfast.store.contract import EngineHarness, StoreContract
from tests.contract.reference import CAPABILITIES, connect


class TestReference(StoreContract):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self) -> EngineHarness:
        return EngineHarness(connect, f"reference:///{secrets.token_hex(6)}")
