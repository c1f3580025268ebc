"""A store for one kind of workers and for the test that watches them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from holdfast.app import open_store
from holdfast.clock import Clock
from holdfast.model import Document
from holdfast.store import Store


class Opened(Protocol):
    def __call__(
        self, url: str, clock: Clock | None = None
    ) -> contextlib.AbstractAsyncContextManager[Store]: ...


def opener(classes: Sequence[type[Document]], *, migrate: bool = False) -> Opened:
    """Opens stores of these classes by their URL, migrated where that is wanted, and closes them."""

    @contextlib.asynccontextmanager
    async def opened(url: str, clock: Clock | None = None) -> AsyncIterator[Store]:
        store = await open_store(url, classes, clock=clock)
        try:
            if migrate:
                await store.migrate()
            yield store
        finally:
            await store.close()

    return opened
