"""Notifies of other processes' commits by polling SQLite's own change counter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.store.notifier import CommitNotifier, CommitSubscription

POLL_S = 0.01


class DataVersionNotifier(CommitNotifier):
    """Polls `PRAGMA data_version` while there are subscriptions.

    The counter also moves with this process's commits, which have notified already: `by_others` tells.
    """

    def __init__(self, data_version: Callable[[], int], by_others: Callable[[], bool]) -> None:
        super().__init__()
        self._data_version, self._by_others = data_version, by_others
        self._listener: asyncio.Task[None] | None = None

    def unsubscribe(self, subscription: CommitSubscription) -> None:
        super().unsubscribe(subscription)
        if not self._subscriptions:
            self.close()

    def listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._poll())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None

    async def _poll(self) -> None:
        seen = self._data_version()
        while True:
            await asyncio.sleep(POLL_S)
            now = self._data_version()
            if now != seen:
                seen = now
                if self._by_others():
                    self.notify_all()
