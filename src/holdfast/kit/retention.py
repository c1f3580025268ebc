"""Retention: expired documents are deleted in small batches, so that writers never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from holdfast.kit.worker_loop import wait_for_wake
from holdfast.model import Document, schema_of
from holdfast.store import Store

BATCH: Final = 200
BETWEEN_BATCHES_S: Final = 0.05
BETWEEN_SWEEPS_S: Final = 300.0


class Sweeper:
    """Deletes documents whose retention is over. Any number of processes may run it.

    Example: `await Sweeper(store, [Session, Delivery]).run(stop)`
    """

    def __init__(self, store: Store, kinds: Iterable[type[Document]]) -> None:
        self._store, self._clock = store.privileged(), store.clock
        self._kinds = [kind for kind in kinds if schema_of(kind).retention is not None]

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep every few minutes until `stop` is set."""
        while not stop.is_set():
            await self.sweep(stop)
            await wait_for_wake(self._clock, BETWEEN_SWEEPS_S, stop=stop)

    async def sweep(self, stop: asyncio.Event | None = None) -> int:
        """Delete everything that is expired; return how many documents that was."""
        deleted = 0
        for kind in self._kinds:
            while stop is None or not stop.is_set():
                count = await self._store.expire(kind, limit=BATCH)
                deleted += count
                if count < BATCH:
                    break
                await wait_for_wake(self._clock, BETWEEN_BATCHES_S, stop=stop)
        return deleted
