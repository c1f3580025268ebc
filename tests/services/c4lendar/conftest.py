"""The bot on each engine in turn, or on SQLite alone where the engine makes no difference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.c4lendar.harness import Harness, chat_harness


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    async with chat_harness(request.getfixturevalue(f"{request.param}_url"), tmp_path) as made:
        yield made


@pytest.fixture
async def quick(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Harness]:
    async with chat_harness(sqlite_url, tmp_path) as made:
        yield made
