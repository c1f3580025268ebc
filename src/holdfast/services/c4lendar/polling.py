"""Long polling of updates, for those without a public address; one process polls at a time."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from holdfast.errors import HoldfastError
from holdfast.ids import ulid
from holdfast.kit.inbox import Inbox, Source
from holdfast.kit.leases import Leases
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.services.c4lendar.bot import Bot

POLL_S: Final = 20
LEASE_S: Final = 60.0
PAUSE_S: Final = 5.0
LEASE: Final = "c4lendar-polling"
log = structlog.get_logger("holdfast.c4lendar")


class UpdatePolling:
    """Asks Telegram for updates and puts them into the inbox; an update is confirmed once it is stored."""

    def __init__(self, bot: Bot, inbox: Inbox, source: Source) -> None:
        self._bot, self._inbox, self._source = bot, inbox, source
        self._secret = bot.settings.webhook_secret or bot.settings.bot_token
        self._leases, self._owner = Leases(bot.store), ulid()
        self._offset = 0
        self.last_turn_at: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with self._leases.hold(LEASE, ttl_s=LEASE_S, owner=self._owner):
                    while not stop.is_set():
                        self.last_turn_at = self._bot.clock.now()
                        await self.poll()
            except HoldfastError as fault:
                # Another process polls, or Telegram is unavailable.
                log.debug("updates are not polled here", error=fault.message)
            self.last_turn_at = self._bot.clock.now()
            await wait_for_wake(self._bot.clock, PAUSE_S, stop=stop)

    async def poll(self, *, timeout_s: int = POLL_S) -> int:
        """Store the updates that wait, and return how many."""
        updates = await self._bot.telegram.get_updates(offset=self._offset, timeout_s=timeout_s)
        headers: dict[str, Any] = {"x-telegram-bot-api-secret-token": self._secret}
        for update in updates:
            await self._inbox.receive(self._source, headers, msgspec.json.encode(update))
            self._offset = update.update_id + 1
        return len(updates)
