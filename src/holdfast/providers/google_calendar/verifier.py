"""Google's push notifications."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.errors import InvalidError, UnverifiedError
from holdfast.webhook_verifier import (
    CHANNEL_TOKEN_BYTES,
    Verified,
    channel_token,
    matches_any,
    required_header,
)


class GoogleChannelVerifier:
    """Checks that the channel's token is the MAC of its id; the message id is channel and message number.

    A notification that arrives before its channel is on record can so be judged as well.
    """

    def __init__(self, *keys: bytes) -> None:
        if not keys or any(len(key) < CHANNEL_TOKEN_BYTES for key in keys):
            raise InvalidError(f"channel keys need at least {CHANNEL_TOKEN_BYTES} bytes")
        self._keys = keys

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        channel = required_header(headers, "x-goog-channel-id")
        required_header(headers, "x-goog-resource-id")
        required_header(headers, "x-goog-resource-state")
        number = required_header(headers, "x-goog-message-number")
        expected = [channel_token(key, channel) for key in self._keys]
        if not matches_any(headers.get("x-goog-channel-token", ""), expected):
            raise UnverifiedError("the channel token was not made here")
        return Verified(f"{channel}:{number}", channel)
