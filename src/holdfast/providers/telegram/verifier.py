"""Telegram's webhook secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.errors import InvalidError, UnverifiedError
from holdfast.webhook_verifier import Verified, matches_any, secret_bytes


class _Update(msgspec.Struct):
    update_id: int


class TelegramVerifier:
    """Checks the secret token's header; the message id is the update's `update_id`."""

    def __init__(self, secret: str) -> None:
        secret_bytes([secret])
        self._secret = secret

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        if not matches_any(headers.get("x-telegram-bot-api-secret-token", ""), [self._secret]):
            raise UnverifiedError("the secret token is not ours; set the webhook again")
        try:
            update = msgspec.json.decode(body, type=_Update)
        except msgspec.DecodeError as fault:
            raise InvalidError(f"the body is no Telegram update: {fault}", "update_id") from None
        return Verified(str(update.update_id))
