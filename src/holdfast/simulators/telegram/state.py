"""The state of the simulated Telegram: chats with their messages, updates for the bot, and send limits."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any, Final

from holdfast.clock import Clock

TOKEN: Final = "42:simulated-bot-token"
BOT: Final = {"id": 42, "is_bot": True, "first_name": "c4lendar", "username": "c4lendar_bot"}
GLOBAL_PER_S: Final = 30
CHAT_PER_S: Final = 1
SECOND_US: Final = 1_000_000


class BotApiError(Exception):
    """A refusal as the Bot API words it."""

    def __init__(self, status: int, description: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(description)
        self.status, self.description, self.retry_after_s = status, description, retry_after_s


class SimulatedChat:
    """A chat: its members' statuses and its messages, oldest first."""

    def __init__(self, chat: dict[str, Any]) -> None:
        self.chat = chat
        self.members: dict[int, str] = {}
        self.messages: dict[int, dict[str, Any]] = {}

    def next_message_id(self) -> int:
        return max(self.messages, default=0) + 1


class TelegramState:
    """People, chats, pending updates and the times of sent messages."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.arrived = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        self.people: dict[int, dict[str, Any]] = {}
        self.chats: dict[int, SimulatedChat] = {}
        self.updates: deque[dict[str, Any]] = deque()
        self.webhook_url = self.webhook_secret = self.last_error = ""
        self.answered: list[str] = []
        self.limited = True
        self.refused = 0
        # Not from one at each start: a bot that was told of an update before ignores its number.
        self._next_update = self.now_s()
        self._sent_us: deque[int] = deque()
        self._chat_sent_us: dict[int, deque[int]] = {}

    def now_s(self) -> int:
        return self.clock.now_us() // SECOND_US

    def chat(self, chat_id: object) -> SimulatedChat:
        """The chat with the bot in it."""
        found = self.chats.get(chat_id) if isinstance(chat_id, int) else None
        if found is None:
            raise BotApiError(400, "Bad Request: chat not found")
        if found.members.get(BOT["id"]) in ("left", "kicked"):  # type: ignore[call-overload]
            raise BotApiError(403, "Forbidden: bot was kicked from the group chat")
        return found

    def add_update(self, **content: Any) -> dict[str, Any]:
        """Queue an update for the bot."""
        update = {"update_id": self._next_update, **content}
        self._next_update += 1
        self.updates.append(update)
        self.arrived.set()
        return update

    def add_message(
        self, chat: SimulatedChat, sender: dict[str, Any], text: str, **more: Any
    ) -> dict[str, Any]:
        message = {
            "message_id": chat.next_message_id(), "from": sender, "chat": chat.chat, "date": self.now_s(),
            "text": text, **more,
        }  # fmt: skip
        chat.messages[message["message_id"]] = message
        return message

    def count_send(self, chat_id: int) -> None:
        """Refuse a message above 30 in a second, or one in a second of this chat."""
        if not self.limited:
            return
        now_us = self.clock.now_us()
        own = self._chat_sent_us.setdefault(chat_id, deque())
        for sent, count in ((self._sent_us, GLOBAL_PER_S), (own, CHAT_PER_S)):
            while sent and sent[0] <= now_us - SECOND_US:
                sent.popleft()
            if len(sent) >= count:
                self.refused += 1
                wait_s = math.ceil((sent[0] + SECOND_US - now_us) / SECOND_US)
                text = f"Too Many Requests: retry after {wait_s}"
                raise BotApiError(429, text, retry_after_s=wait_s)
        self._sent_us.append(now_us)
        own.append(now_us)
