"""A sender for each test, closed after it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.net import RawSender
from tests.kit.sender.sender_fixture import local


@pytest.fixture
async def sender() -> AsyncIterator[RawSender]:
    made = local()
    yield made
    await made.close()
