"""An update of Telegram as the conversation takes it: one shape for messages, buttons and memberships."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.providers.telegram import Chat, Message, TelegramUser, Update


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A person did something in a chat.

    The `text` of "connected" is the `google_sub` of an account that was connected to the chat; that of
    "retry" is the uid of an event that is brought into its accounts again.
    """

    kind: Literal["message", "button", "membership", "connected", "retry"]
    chat_id: int
    chat_title: str = ""
    chat_kind: str = "private"
    user_id: int
    user_name: str = ""
    message_id: int | None = None
    text: str = ""
    reply_message_id: int | None = None
    reply_text: str = ""
    query_id: str = ""
    present: bool = True
    update_id: int = 0

    @property
    def tenant_id(self) -> str:
        return str(self.chat_id)

    @property
    def private(self) -> bool:
        return self.chat_kind == "private"


def incoming_of(update: Update) -> Incoming | None:
    """Return what a person did, or None for updates that concern nobody here (channels, edits, bots)."""
    if update.message is not None:
        return _message(update.message, update.update_id)
    query, member = update.callback_query, update.my_chat_member
    if query is not None and query.message is not None:
        return Incoming(
            kind="button", **_where(query.message.chat), **_who(query.sender), text=query.data,
            message_id=query.message.message_id, query_id=query.id, update_id=update.update_id,
        )  # fmt: skip
    if member is not None:
        return Incoming(
            kind="membership", **_where(member.chat), **_who(member.sender),
            present=member.new_chat_member.present, update_id=update.update_id,
        )  # fmt: skip
    return None


def _message(message: Message, update_id: int) -> Incoming | None:
    if message.sender is None or message.sender.is_bot or message.chat.type == "channel":
        return None
    reply = message.reply_to_message
    return Incoming(
        kind="message", **_where(message.chat), **_who(message.sender), text=message.words,
        message_id=message.message_id, reply_message_id=reply.message_id if reply else None,
        reply_text=reply.words if reply else "", update_id=update_id,
    )  # fmt: skip


def _where(chat: Chat) -> dict[str, Any]:
    return {"chat_id": chat.id, "chat_title": chat.title or chat.first_name, "chat_kind": chat.type}


def _who(user: TelegramUser) -> dict[str, Any]:
    return {"user_id": user.id, "user_name": user.first_name or user.username}
