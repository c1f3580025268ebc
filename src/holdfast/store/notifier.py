"""Subscriptions to commits, in one process; an engine's notifier adds those of other processes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Set
from typing import Any

from holdfast.model.schema import Schema


class CommitSubscription:
    """Wakes one waiting task after commits to its collections. A hint: it may wake it once too often.

    With `claims`, a commit that is known to leave nothing to claim does not wake it.
    """

    def __init__(
        self, schemas: frozenset[Schema[Any]], notifier: CommitNotifier, *, claims: bool = False
    ) -> None:
        self.schemas, self.claims = schemas, claims
        self._notifier = notifier
        self._notified = asyncio.Event()

    def notify(self) -> None:
        self._notified.set()

    async def wait(self, timeout_s: float) -> bool:
        self._notifier.listen()
        # Not wait_for: before Python 3.12 it loses a cancellation that arrives with the notification.
        try:
            async with asyncio.timeout(timeout_s):
                await self._notified.wait()
        except TimeoutError:
            return False
        self._notified.clear()
        return True

    def close(self) -> None:
        self._notifier.unsubscribe(self)


class CommitNotifier(ABC):
    """The subscriptions of one engine. `listen` reports the commits of other processes."""

    def __init__(self) -> None:
        self._subscriptions: set[CommitSubscription] = set()

    def subscribe(self, schemas: Iterable[Schema[Any]], *, claims: bool = False) -> CommitSubscription:
        subscription = CommitSubscription(frozenset(schemas), self, claims=claims)
        self._subscriptions.add(subscription)
        self.listen()
        return subscription

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    @property
    def claims_awaited(self) -> frozenset[Schema[Any]]:
        """The collections in which somebody waits for something to claim."""
        waiting = [one.schemas for one in self._subscriptions if one.claims]
        return frozenset().union(*waiting) if waiting else frozenset()

    def unsubscribe(self, subscription: CommitSubscription) -> None:
        self._subscriptions.discard(subscription)

    def notify(self, schemas: Set[Schema[Any]], *, unclaimable: Set[Schema[Any]] = frozenset()) -> None:
        """Wake the subscriptions to any of these collections; nothing is to be claimed in `unclaimable`."""
        for subscription in self._subscriptions:
            touched = schemas - unclaimable if subscription.claims else schemas
            if not subscription.schemas.isdisjoint(touched):
                subscription.notify()

    def notify_all(self) -> None:
        for subscription in self._subscriptions:
            subscription.notify()

    @abstractmethod
    def listen(self) -> None:
        """Start listening for other processes' commits, unless that is under way."""
