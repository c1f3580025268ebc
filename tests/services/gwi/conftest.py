"""The service on each engine in turn, or on SQLite alone where the engine makes no difference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.testing import ManualClock
from tests.services.gwi.harness import Harness, gwi_harness


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
def any_url(request: pytest.FixtureRequest) -> str:
    """An empty store on every engine."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def harness(any_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Harness]:
    """On every engine."""
    async with gwi_harness(any_url, clock, tmp_path) as made:
        yield made


@pytest.fixture
async def quick_harness(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Harness]:
    """On SQLite."""
    async with gwi_harness(sqlite_url, clock, tmp_path) as made:
        yield made
