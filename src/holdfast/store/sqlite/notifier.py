"""Notifies of other processes' commits: by a board in shared memory, and by SQLite's own change counter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.store.notifier import CommitNotifier, CommitSubscription
from holdfast.store.sqlite.commit_board import CommitBoard

POLL_S: Final = 0.01
BUSY_POLL_S: Final = 0.001
BUSY_S: Final = 1.0  # how long it is polled often after another process's commit


class SqliteNotifier(CommitNotifier):
    """Polls the board and `PRAGMA data_version` while there are subscriptions.

    The board says which collections other processes have committed to, at the price of a comparison in
    memory, so it is polled often while they commit. The counter also moves with this process's commits,
    which have notified already: `by_others` tells.
    """

    def __init__(self, data_version: Callable[[], int], by_others: Callable[[], bool]) -> None:
        super().__init__()
        self._data_version, self._by_others = data_version, by_others
        self.board: CommitBoard | None = None
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
        loop = asyncio.get_running_loop()
        seen, busy_until_s, counter_at_s = self._data_version(), 0.0, 0.0
        while True:
            now_s = loop.time()
            await asyncio.sleep(BUSY_POLL_S if now_s < busy_until_s else POLL_S)
            if self.board is not None and (changes := self.board.changes()):
                busy_until_s = now_s + BUSY_S
                self.notify(changes)
            if now_s < counter_at_s:
                continue
            counter_at_s, version = now_s + POLL_S, self._data_version()
            if version != seen:
                seen = version
                if self._by_others():
                    self.notify_all()
