from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.renewals.bed import Bed, serving, settle_in


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    """The reference residents, served."""
    async with serving(tmp_path) as made:
        await settle_in(made.store)
        yield made
