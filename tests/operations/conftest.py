"""The setting of the operations' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.operations.outboxes import Setting, opened


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with opened(tmp_path) as made:
        yield made
