"""Backpressure on webhooks: a bounded number at work, a bounded number waiting, a bounded backlog.

Whatever is past a bound is answered 503 with `Retry-After` before it costs anything, so that handling keeps
its share of the process, and everybody else is answered.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.config import RequestLimits
from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.kit.inbox import InboxItem
from holdfast.store import Store

COUNT_EVERY_S: Final = 1.0
BUSY_AFTER_S: Final = 1.0
BACKLOG_AFTER_S: Final = 10.0


class Backpressure:
    """Admits messages to the inbox within `limits`: each holds one of the places while it is stored.

    Example: `async with backpressure: await inbox.receive(source, headers, body)`
    """

    def __init__(self, store: Store, limits: RequestLimits) -> None:
        self._store, self._clock, self._limits = store.privileged(), store.clock, limits
        self._places, self._waiting = asyncio.Semaphore(limits.webhook_concurrency), 0
        self._backlog, self._counted_s = 0, float("-inf")
        self._counting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        """Take one of the places; raises RetryLaterError past a bound."""
        if self._backlog >= self._limits.backlog_max:
            self._count_again()
            raise RetryLaterError(
                f"{self._backlog:,} messages wait to be handled already; send it again later",
                after_s=BACKLOG_AFTER_S,
            )
        if not self._places.locked():
            await self._places.acquire()
            return
        if self._waiting >= self._limits.webhook_waiting_max:
            raise RetryLaterError(
                "more messages come than can be stored; send it again later", after_s=BUSY_AFTER_S
            )
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._places.release()
        self._count_again()

    def _count_again(self) -> None:
        """Count the backlog, in the background and not often."""
        if self._counting is None and self._clock.monotonic() >= self._counted_s + COUNT_EVERY_S:
            self._counting = asyncio.create_task(self._count())

    async def _count(self) -> None:
        try:
            self._backlog = await self._store.count_due(InboxItem, limit=self._limits.backlog_max)
        except HoldfastError:
            pass  # a store that can't count can't store either, and says so itself
        finally:
            self._counted_s, self._counting = self._clock.monotonic(), None
