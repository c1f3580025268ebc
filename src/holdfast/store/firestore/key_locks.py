"""Locks by key inside one process, so that its tasks queue for a document instead of conflicting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable


class KeyLocks:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold these locks; they are acquired in one order everywhere, so there is no deadlock."""
        async with contextlib.AsyncExitStack() as held:
            for name in sorted(set(names)):
                held.callback(self._release, name)
                await held.enter_async_context(self._lock(name))
            yield

    def _lock(self, name: str) -> asyncio.Lock:
        lock, waiting = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, waiting + 1)
        return lock

    def _release(self, name: str) -> None:
        lock, waiting = self._locks[name]
        if waiting == 1:
            del self._locks[name]
        else:
            self._locks[name] = (lock, waiting - 1)
