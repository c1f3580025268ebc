"""The Bot API's objects, with the fields that are used here."""

from __future__ import annotations

from typing import Literal

import msgspec

ChatType = Literal["private", "group", "supergroup", "channel"]


class _BotType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class TelegramUser(_BotType, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""


class Chat(_BotType, frozen=True):
    id: int
    type: ChatType
    title: str = ""
    username: str = ""
    first_name: str = ""


class Message(_BotType, frozen=True):
    """A message; `sender` is absent on messages of channels."""

    message_id: int
    chat: Chat
    date: int = 0
    sender: TelegramUser | None = msgspec.field(name="from", default=None)
    text: str = ""
    caption: str = ""
    reply_to_message: Message | None = None
    migrate_to_chat_id: int | None = None

    @property
    def words(self) -> str:
        """The text, or the caption of a picture."""
        return self.text or self.caption


class CallbackQuery(_BotType, frozen=True):
    """A person pressed a button below a message."""

    id: str
    sender: TelegramUser = msgspec.field(name="from")
    message: Message | None = None
    data: str = ""


class ChatMember(_BotType, frozen=True):
    user: TelegramUser
    status: str = "member"

    @property
    def present(self) -> bool:
        """Whether the user is in the chat."""
        return self.status not in ("left", "kicked")

    @property
    def administers(self) -> bool:
        """Whether the user may administer the chat."""
        return self.status in ("creator", "administrator")


class ChatMemberUpdated(_BotType, frozen=True):
    """The bot was added to a chat, removed, or given other rights."""

    chat: Chat
    sender: TelegramUser = msgspec.field(name="from")
    new_chat_member: ChatMember


class Update(_BotType, frozen=True):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: CallbackQuery | None = None
    my_chat_member: ChatMemberUpdated | None = None


class InlineKeyboardButton(_BotType, frozen=True):
    """A button that sends `callback_data` (64 bytes at most) back, or opens a URL."""

    text: str
    callback_data: str = ""
    url: str = ""


class InlineKeyboardMarkup(_BotType, frozen=True):
    inline_keyboard: list[list[InlineKeyboardButton]]


class WebhookInfo(_BotType, frozen=True):
    url: str = ""
    pending_update_count: int = 0
    last_error_message: str = ""


class ResponseParameters(_BotType, frozen=True):
    retry_after: float = 0.0
    migrate_to_chat_id: int | None = None


class BotRefusal(_BotType, frozen=True):
    """The body of a refused call."""

    error_code: int = 0
    description: str = ""
    parameters: ResponseParameters = ResponseParameters()
