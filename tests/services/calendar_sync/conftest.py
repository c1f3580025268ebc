"""The service on each engine in turn, or on SQLite alone where the engine makes no difference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.testing import ManualClock
from tests.services.calendar_sync.bed import Bed, calendar_bed


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
async def bed(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Bed]:
    """On every engine."""
    async with calendar_bed(request.getfixturevalue(f"{request.param}_url"), clock, tmp_path) as made:
        yield made


@pytest.fixture
async def quick_bed(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Bed]:
    """On SQLite."""
    async with calendar_bed(sqlite_url, clock, tmp_path) as made:
        yield made
