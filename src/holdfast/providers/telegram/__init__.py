"""Telegram bot webhooks."""

from holdfast.providers.telegram.verifier import TelegramVerifier

__all__ = ["TelegramVerifier"]
