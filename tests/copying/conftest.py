"""Stores of several engines side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import pytest

from holdfast.app import open_store
from holdfast.model import Document
from holdfast.store import Store
from holdfast.store_copy import Copy
from holdfast.testing import ManualClock

Open = Callable[[str, Sequence[type[Document]]], Awaitable[Store]]


@pytest.fixture
async def opened(clock: ManualClock) -> AsyncIterator[Open]:
    """Opens migrated stores that also know `Copy`, and closes them."""
    async with AsyncExitStack() as stack:

        async def make(url: str, classes: Sequence[type[Document]]) -> Store:
            store = await open_store(url, [*classes, Copy], clock=clock)
            stack.push_async_callback(store.close)
            await store.migrate()
            return store

        yield make
