from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.providers.provider_fixture import HastyClock, Setting, SimulatorClock, a_setting


@pytest.fixture
def hasty() -> HastyClock:
    return HastyClock()


@pytest.fixture
async def setting(hasty: HastyClock) -> AsyncIterator[Setting]:
    async with a_setting(hasty, simulator_clock=SimulatorClock(hasty)) as made:
        yield made
