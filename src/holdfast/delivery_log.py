"""The port of a provider's delivery log, seen by the inbox that asks and the providers that answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

import msgspec


class MissedDelivery(msgspec.Struct, frozen=True):
    """An attempt that failed: the message's id, and the provider's own reference to the attempt."""

    message_id: str
    reference: str


class DeliveryLog(Protocol):
    """A provider's list of its deliveries, and the request to make one again."""

    def missed(self, since: datetime) -> AsyncIterator[MissedDelivery]:
        """Yield the attempts since then that failed, newest first; a message may have several."""

    async def redeliver(self, missed: MissedDelivery) -> None:
        """Ask for another attempt; raise RetryLaterError when the provider takes no more requests now."""
