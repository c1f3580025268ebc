"""Telegram's Bot API and its webhooks."""

from holdfast.providers.telegram.client import TELEGRAM_URL, TEXT_CHARACTERS_MAX, SendLimit, TelegramBot
from holdfast.providers.telegram.types import (
    CallbackQuery,
    Chat,
    ChatMember,
    ChatMemberUpdated,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    Message,
    TelegramUser,
    Update,
    WebhookInfo,
)
from holdfast.providers.telegram.verifier import TelegramVerifier

__all__ = [
    "TELEGRAM_URL",
    "TEXT_CHARACTERS_MAX",
    "CallbackQuery",
    "Chat",
    "ChatMember",
    "ChatMemberUpdated",
    "InlineKeyboardButton",
    "InlineKeyboardMarkup",
    "Message",
    "SendLimit",
    "TelegramBot",
    "TelegramUser",
    "TelegramVerifier",
    "Update",
    "WebhookInfo",
]
