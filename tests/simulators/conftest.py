"""A simulated Google whose own waits the test sees."""

from collections.abc import AsyncIterator

import pytest

from tests.providers.conftest import hasty
from tests.providers.provider_fixture import HastyClock, Setting, a_setting

__all__ = ["hasty"]


@pytest.fixture
async def setting(hasty: HastyClock) -> AsyncIterator[Setting]:
    async with a_setting(hasty) as made:
        yield made
