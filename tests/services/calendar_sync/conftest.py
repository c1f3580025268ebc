"""The service on each engine in turn, or on one alone where the engine makes no difference.

That one is SQLite; `HOLDFAST_ONE_ENGINE=firestore` (or `postgres`) runs all of those tests there.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.testing import ManualClock
from tests.services.calendar_sync.harness import Harness, calendar_harness


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
async def harness(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Harness]:
    """On every engine."""
    async with calendar_harness(request.getfixturevalue(f"{request.param}_url"), clock, tmp_path) as made:
        yield made


@pytest.fixture
def one_url(request: pytest.FixtureRequest) -> str:
    """An empty store of the one engine."""
    url: str = request.getfixturevalue(f"{os.environ.get('HOLDFAST_ONE_ENGINE', 'sqlite')}_url")
    return url


@pytest.fixture
async def quick_harness(one_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Harness]:
    """On the one engine."""
    async with calendar_harness(one_url, clock, tmp_path) as made:
        yield made
