"""Telegram's Bot API and its webhooks."""

from holdfast.providers.telegram.client import TELEGRAM_URL, TelegramBot
from holdfast.providers.telegram.types import (
    Chat,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    Message,
    TelegramUser,
    Update,
)
from holdfast.providers.telegram.verifier import TelegramVerifier

__all__ = [
    "TELEGRAM_URL",
    "Chat",
    "InlineKeyboardButton",
    "InlineKeyboardMarkup",
    "Message",
    "TelegramBot",
    "TelegramUser",
    "TelegramVerifier",
    "Update",
]
