"""The whole suite as one class to inherit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from holdfast.store.contract.capabilities import Stated
from holdfast.store.contract.claims import Claims
from holdfast.store.contract.commits import Commits
from holdfast.store.contract.concurrency import Concurrency
from holdfast.store.contract.documents import Documents
from holdfast.store.contract.expiry import Expiry
from holdfast.store.contract.harness import Home
from holdfast.store.contract.indexes import Indexing
from holdfast.store.contract.invalid_input import Invalid
from holdfast.store.contract.migrations import Evolving
from holdfast.store.contract.queries import Queries
from holdfast.store.contract.subscriptions import Watching
from holdfast.store.contract.tenancy import Tenancy
from holdfast.store.contract.transactions import Transactions
from holdfast.store.port import Capabilities
from holdfast.store.store import Store
from holdfast.testing import ManualClock


class StoreContract(
    Stated, Documents, Commits, Transactions, Queries, Indexing, Tenancy, Claims, Expiry, Watching,
    Concurrency, Invalid, Evolving,
):  # fmt: skip
    """Inherit it, state `capabilities`, give a `home`."""

    capabilities: ClassVar[Capabilities]

    @pytest.fixture
    def home(self) -> Home:
        raise NotImplementedError("an engine's test gives the home its engine is reached at")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, home: Home, clock: ManualClock) -> AsyncIterator[Store]:
        async with home.open(clock) as store:
            yield store
