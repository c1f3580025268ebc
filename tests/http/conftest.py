"""What the tests over HTTP share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.server_harness import ServerHarness, serving


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with serving(tmp_path) as made:
        yield made
