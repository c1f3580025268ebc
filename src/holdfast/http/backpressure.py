"""Backpressure on webhooks: a bounded number at work, a bounded number waiting, a bounded backlog.

Whatever is past a bound is answered 503 with `Retry-After`, so that handling keeps its share of the process,
and everybody else is answered. Each commit has all that wait for it, so handling would be little among much
that is stored: webhooks are stored as the worker of this process has room for them, and only a few at once
while messages wait to be handled.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.config import RequestLimits
from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.kit.inbox import InboxItem, InboxWorker
from holdfast.store import Store

COUNT_EVERY_S: Final = 1.0
BUSY_AFTER_S: Final = 1.0
BACKLOG_AFTER_S: Final = 10.0
WAIT_S_MAX: Final = 5.0
BEHIND: Final = 500
CONCURRENCY_BEHIND: Final = 4
# Senders that come again at once would take all of the process for refusals.
REFUSALS_PER_S: Final = 250.0
REFUSAL_WAIT_S_MAX: Final = 8.0  # senders give up after 10 s or more


class Backpressure:
    """Admits messages to the inbox within `limits`: each holds one of the places while it is stored.

    Example: `async with backpressure: await inbox.receive(source, headers, body)`
    """

    def __init__(self, store: Store, limits: RequestLimits, *, worker: InboxWorker | None = None) -> None:
        self._store, self._clock, self._limits = store.privileged(), store.clock, limits
        self._worker = worker
        if worker is not None:
            worker.on_room = self._admit
        self._at_work = self._entering = 0
        self._queue = OrderedDict[asyncio.Future[None], None]()
        self._refusal_s = float("-inf")
        self._backlog, self._counted_s = 0, float("-inf")
        self._counting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        """Take one of the places; raises RetryLaterError past a bound."""
        self.raise_if_full()
        if not self.enter_at_once():
            await self._wait_for_place()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def enter_at_once(self) -> bool:
        """Take one of the places, where one is free and nobody waits; whether it did."""
        return self.enter_many(1) == 1

    def enter_many(self, count: int) -> int:
        """Take up to so many of the places, where they are free and nobody waits; return how many."""
        entered = 0 if self._queue else min(count, self._free_places())
        self._at_work += entered
        return entered

    def leave(self, count: int = 1) -> None:
        """Give places back."""
        self._at_work -= count
        if self._queue:
            self._admit()
        self._count_again()

    def raise_if_full(self) -> None:
        """Raise RetryLaterError where a message would be refused, before anything of it is read."""
        if self._backlog >= self._limits.backlog_max:
            self._count_again()
            raise RetryLaterError(
                f"{self._backlog:,} messages wait to be handled already; send it again later",
                after_s=BACKLOG_AFTER_S,
            )
        if len(self._queue) >= self._limits.webhook_waiting_max:
            raise _busy()

    def _free_places(self) -> int:
        """How many more may be stored now; a local worker that runs must have room for them too."""
        free, worker = self._limits.webhook_concurrency - self._at_work, self._worker
        if worker and worker.running:
            room = worker.room - self._entering
        else:
            room = 0 if self._backlog >= BEHIND else free
        return max(0, min(free, max(room, CONCURRENCY_BEHIND - self._at_work)))

    async def _wait_for_place(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
            self._entering -= 1
        except BaseException as fault:
            if turn.done() and not turn.cancelled():
                # It had its place when it was cancelled.
                self._entering -= 1
                self._at_work -= 1
                self._admit()
            else:
                self._queue.pop(turn, None)
            if isinstance(fault, TimeoutError):
                raise _busy() from None
            raise

    def _admit(self) -> None:
        while self._queue and self._free_places():
            turn, _ = self._queue.popitem(last=False)
            if not turn.cancelled():
                self._at_work += 1
                self._entering += 1
                turn.set_result(None)

    async def pace_refusal(self, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Wait before a refusal is answered: not at all, unless there are many a second."""
        now_s = self._clock.monotonic()
        turn_s = max(now_s, self._refusal_s + 1 / REFUSALS_PER_S)
        self._refusal_s = min(turn_s, now_s + REFUSAL_WAIT_S_MAX)
        if self._refusal_s > now_s:
            await wait(self._refusal_s - now_s)

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
            self._admit()


def _busy() -> RetryLaterError:
    return RetryLaterError("more messages come than can be stored; send it again later", after_s=BUSY_AFTER_S)
