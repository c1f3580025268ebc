"""Telegram's webhook secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.errors import InvalidError, UnverifiedError
from holdfast.webhook_verifier import Verified, matches_any, secret_bytes


class _Chat(msgspec.Struct):
    id: int


class _ChatEvent(msgspec.Struct):
    chat: _Chat | None = None


class _Callback(msgspec.Struct):
    message: _ChatEvent | None = None


class _Update(msgspec.Struct):
    update_id: int
    message: _ChatEvent | None = None
    edited_message: _ChatEvent | None = None
    channel_post: _ChatEvent | None = None
    edited_channel_post: _ChatEvent | None = None
    my_chat_member: _ChatEvent | None = None
    chat_member: _ChatEvent | None = None
    callback_query: _Callback | None = None

    @property
    def chat_id(self) -> str:
        """The chat that the update is about; empty where it is about none, such as an inline query."""
        callback = self.callback_query
        events = (
            self.message, self.edited_message, self.channel_post, self.edited_channel_post,
            self.my_chat_member, self.chat_member, callback.message if callback else None,
        )  # fmt: skip
        return next((str(one.chat.id) for one in events if one is not None and one.chat is not None), "")


class TelegramVerifier:
    """Checks the secret token's header; the message id is the update's `update_id`, the account its chat.

    The updates of a chat are in order.
    """

    def __init__(self, secret: str) -> None:
        secret_bytes([secret])
        self._secret = secret

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        if not matches_any(headers.get("x-telegram-bot-api-secret-token", ""), [self._secret]):
            raise UnverifiedError("the secret token is not ours; set the webhook again")
        try:
            update = msgspec.json.decode(body, type=_Update)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            raise InvalidError(f"the body is no Telegram update: {fault}", "update_id") from None
        return Verified(str(update.update_id), order_key=update.chat_id, account=update.chat_id)
