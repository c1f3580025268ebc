"""Taking turns inside one process, so that its own tasks queue for a document instead of colliding."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable


class KeyLocks:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Have these names alone; all take them in one order, so nobody waits in a circle."""
        async with contextlib.AsyncExitStack() as held:
            for name in sorted(set(names)):
                held.callback(self._leave, name)
                await held.enter_async_context(self._join(name))
            yield

    def _join(self, name: str) -> asyncio.Lock:
        lock, waiting = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, waiting + 1)
        return lock

    def _leave(self, name: str) -> None:
        lock, waiting = self._locks[name]
        if waiting == 1:
            del self._locks[name]
        else:
            self._locks[name] = (lock, waiting - 1)
