"""Google's notifications: verified without a look-up, stored, then turned into requests for syncs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from holdfast.clock import Clock
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
MESSAGE_NUMBER: Final = "x-goog-message-number"
_CHANNEL_ID: Final = re.compile(r"[A-Za-z0-9\-_+=]{1,64}")


class NotificationVerifier:
    """Verifies a notification by its token, also when its channel is not on record yet.

    Without a token of ours, one that names a channel of ours, opened by any process, is forged; any other is
    meant for somebody else.
    """

    def __init__(self, keys: Iterable[bytes], channels: Channels, *, metrics: CalendarSyncMetrics) -> None:
        self._by_token = GoogleChannelVerifier(*keys)
        self._channels, self._metrics = channels, metrics

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        verified = self._by_token.verify(headers, body, now)
        self._metrics.notifications.labels("verified").inc()
        return verified

    async def is_ours(self, headers: Mapping[str, str]) -> bool:
        channel_id = headers[CHANNEL_ID]
        known = _CHANNEL_ID.fullmatch(channel_id) and await self._channels.find(channel_id) is not None
        self._metrics.notifications.labels("forged" if known else "ignored").inc()
        return bool(known)


class NotificationHandler:
    """Requests a sync of the calendar; many notifications at once request one."""

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
        # Of a half-opened channel the first notification, which names its resource, may have been lost.
        if not self._channels.has_open(channel_id):
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
