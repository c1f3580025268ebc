"""A source with residents, and a store of the test's choice that mirrors it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.store import Store
from tests.services.renewals.adjustable_clock import AdjustableClock
from tests.services.renewals.platform_schema import Platform, kept_in, platform
from tests.services.renewals.source.mirror import RESIDENTS


@pytest.fixture
async def source(postgres_url: str) -> AsyncIterator[Platform]:
    async with platform(postgres_url) as made:
        await made.fill(RESIDENTS)
        yield made


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """Where the mirror is kept; on PostgreSQL beside the source, in the same database."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def hands() -> AdjustableClock:
    """The clock of the mirror's store."""
    return AdjustableClock()


@pytest.fixture
async def whole(store_url: str, hands: AdjustableClock) -> AsyncIterator[Store]:
    async with kept_in(store_url, hands) as store:
        yield store


@pytest.fixture
def store(whole: Store) -> Store:
    return whole.tenant("-")
