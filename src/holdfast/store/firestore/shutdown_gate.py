"""Graceful shutdown: calls under way finish, new ones are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from holdfast.errors import StoreUnavailableError


class ShutdownGate:
    def __init__(self) -> None:
        self._closed = False
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()

    async def close(self) -> None:
        self._closed = True
        await self._empty.wait()
