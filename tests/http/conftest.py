"""What the tests over HTTP share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.bed import Bed, serving


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with serving(tmp_path) as made:
        yield made
