"""The contract suite as one class to inherit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from holdfast.store.contract.capabilities import CapabilityContract
from holdfast.store.contract.claims import ClaimContract
from holdfast.store.contract.commits import CommitContract
from holdfast.store.contract.concurrency import ConcurrencyContract
from holdfast.store.contract.documents import DocumentContract
from holdfast.store.contract.expiry import ExpiryContract
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.indexes import IndexContract
from holdfast.store.contract.invalid_input import InvalidInputContract
from holdfast.store.contract.migrations import MigrationContract
from holdfast.store.contract.queries import QueryContract
from holdfast.store.contract.subscriptions import SubscriptionContract
from holdfast.store.contract.tenancy import TenancyContract
from holdfast.store.contract.transactions import TransactionContract
from holdfast.store.port import Capabilities
from holdfast.store.store import Store
from holdfast.testing import ManualClock


class StoreContract(
    CapabilityContract, DocumentContract, CommitContract, TransactionContract, QueryContract, IndexContract,
    TenancyContract, ClaimContract, ExpiryContract, SubscriptionContract,
    ConcurrencyContract, InvalidInputContract, MigrationContract,
):  # fmt: skip
    """Inherit it, state `capabilities`, override `harness`."""

    capabilities: ClassVar[Capabilities]

    @pytest.fixture
    def harness(self) -> EngineHarness:
        raise NotImplementedError("override `harness` with the engine under test")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, harness: EngineHarness, clock: ManualClock) -> AsyncIterator[Store]:
        async with harness.open(clock) as store:
            yield store
