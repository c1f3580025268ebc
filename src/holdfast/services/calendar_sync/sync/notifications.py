"""Google's notifications: judged without a look-up, kept, then turned into a look at a calendar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import NotOursError, UnverifiedError
from holdfast.kit.channels import Channels
from holdfast.kit.inbox import InboxItem, Verified
from holdfast.providers.google_calendar import GoogleChannelVerifier
from holdfast.services.calendar_sync.domain.sync_state import record_notification
from holdfast.services.calendar_sync.metrics import CalendarSyncMetrics
from holdfast.services.calendar_sync.models import CalendarState
from holdfast.store import Transaction, put

SOURCE: Final = "calendar-sync"
CHANNEL_ID: Final = "x-goog-channel-id"
RESOURCE_ID: Final = "x-goog-resource-id"
RESOURCE_STATE: Final = "x-goog-resource-state"
MESSAGE_NUMBER: Final = "x-goog-message-number"


class NotificationVerifier:
    """A token made here lets a notification in, also when its channel is not on record yet.

    Without one, a notification that names a channel of ours is forged; any other is meant for somebody else.
    """

    def __init__(
        self, keys: list[bytes], *, is_ours: Callable[[str], bool], metrics: CalendarSyncMetrics
    ) -> None:
        self._by_token = GoogleChannelVerifier(*keys)
        self._is_ours, self._metrics = is_ours, metrics

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        try:
            verified = self._by_token.verify(headers, body, now)
        except UnverifiedError:
            ours = self._is_ours(headers[CHANNEL_ID])
            self._metrics.notifications.labels("forged" if ours else "ignored").inc()
            if ours:
                raise
            raise NotOursError("a channel that was not opened here") from None
        self._metrics.notifications.labels("verified").inc()
        return verified


class NotificationHandler:
    """Notes on the calendar's state that it is to be looked at; many notes at once ask for one look."""

    def __init__(
        self, channels: Channels, *, clock: Clock, gap_s: float, metrics: CalendarSyncMetrics
    ) -> None:
        self._channels, self._clock, self._gap_s, self._metrics = channels, clock, gap_s, metrics

    async def __call__(self, item: InboxItem, tx: Transaction) -> None:
        channel_id = item.headers[CHANNEL_ID]
        calendar_id = await self._channels.find(channel_id)
        if calendar_id is None:
            self._metrics.notifications.labels("unresolved").inc()
            return
        if item.headers[RESOURCE_STATE] == "sync":
            await self._channels.record_resource(channel_id, item.headers[RESOURCE_ID])
        found = await tx.get(CalendarState, calendar_id)
        if found is None:
            return
        after = record_notification(
            found.doc, self._clock.now(), received_at=item.received_at, gap_s=self._gap_s,
            number=_number(item.headers[MESSAGE_NUMBER]),
        )  # fmt: skip
        if after is not found.doc:
            tx.write(put(after))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
