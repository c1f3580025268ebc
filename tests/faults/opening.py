"""A store for one kind of workers and for the test that watches them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from holdfast.app import open_store
from holdfast.model import Document
from holdfast.store import Store


def opener(
    classes: Sequence[type[Document]],
) -> Callable[[str], contextlib.AbstractAsyncContextManager[Store]]:
    """Opens stores of these classes by their URL, and closes them."""

    @contextlib.asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Store]:
        store = await open_store(url, classes)
        try:
            yield store
        finally:
            await store.close()

    return opened
