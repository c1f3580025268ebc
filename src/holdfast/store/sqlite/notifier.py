"""Bells: rung at once by this process's commits, and within milliseconds by another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.model.schema import Schema

LISTEN_EVERY_S = 0.01


class SqliteSubscription:
    """Rings after commits to its collections; a hint, so a ring too many is fine."""

    def __init__(self, schemas: frozenset[Schema[Any]], subscriptions: SqliteNotifier) -> None:
        self.schemas = schemas
        self._notifier = subscriptions
        self._rung = asyncio.Event()

    def notify(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        self._notifier.listen()
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def close(self) -> None:
        self._notifier.unsubscribe(self)


class SqliteNotifier:
    """All bells of one engine. Other processes are noticed by SQLite's own change counter.

    That counter also moves with this process's commits, which have rung already: `by_others` tells.
    """

    def __init__(self, data_version: Callable[[], int], by_others: Callable[[], bool]) -> None:
        self._data_version, self._by_others = data_version, by_others
        self._hung: set[SqliteSubscription] = set()
        self._listener: asyncio.Task[None] | None = None

    def subscribe(self, schemas: Sequence[Schema[Any]]) -> SqliteSubscription:
        subscription = SqliteSubscription(frozenset(schemas), self)
        self._hung.add(subscription)
        self.listen()
        return subscription

    def unsubscribe(self, subscription: SqliteSubscription) -> None:
        self._hung.discard(subscription)
        if not self._hung:
            self.close()

    def notify(self, touched: set[Schema[Any]]) -> None:
        for subscription in self._hung:
            if not subscription.schemas.isdisjoint(touched):
                subscription.notify()

    def listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None

    async def _listen(self) -> None:
        seen = self._data_version()
        while True:
            await asyncio.sleep(LISTEN_EVERY_S)
            now = self._data_version()
            if now == seen:
                continue
            seen = now
            if self._by_others():
                for subscription in self._hung:
                    subscription.notify()
