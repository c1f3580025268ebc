"""Is this really from them? One verifier per way of signing.

A verifier looks at the raw headers and body and says what the message is called, or refuses it. It never
parses more than it must, and compares secrets in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec

from holdfast.errors import InvalidError, UnverifiedError
from holdfast.kit.outbox.signing import SignatureVerifier as SignatureVerifier


class Verified(msgspec.Struct, frozen=True):
    """A message's name at its source, and the key whose messages must be worked on in order."""

    message_id: str
    order_key: str = ""


class Verifier(Protocol):
    """Header names come in lower case."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        """What the message is called; raises UnverifiedError, or InvalidError when it is malformed."""
        ...


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise InvalidError(f"the header {name} is missing", name)
    return value


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


class GithubVerifier:
    """GitHub's `X-Hub-Signature-256` over the raw body, named by `X-GitHub-Delivery`."""

    def __init__(self, *secrets: str) -> None:
        self._keyed = [hmac.new(key, digestmod=hashlib.sha256) for key in _keys(secrets)]

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        message_id = _header(headers, "x-github-delivery")
        given = headers.get("x-hub-signature-256", "")
        expected = ["sha256=" + _hexdigest(keyed, body) for keyed in self._keyed]
        # No short cut: which of the secrets fits must not show in the time it takes.
        if not sum(_same(given, one) for one in expected):
            raise UnverifiedError("the signature does not fit the body; check the webhook's secret")
        return Verified(message_id)


def _hexdigest(keyed: hmac.HMAC, body: bytes) -> str:
    # `hmac.digest` would hand the interpreter to the store's thread for every message, and wait for it.
    state = keyed.copy()
    state.update(body)
    return state.hexdigest()


def _keys(secrets: Sequence[str]) -> list[bytes]:
    if not secrets or not all(secrets):
        raise InvalidError("a verifier needs at least one secret, and none may be empty")
    return [secret.encode() for secret in secrets]


CHANNEL_TOKEN_BYTES: Final = 16


def channel_token(key: bytes, channel_id: str) -> str:
    """The token to open a channel with: only somebody with the key can make one for this channel."""
    return (
        hmac.new(key, b"channel " + channel_id.encode(), hashlib.sha256).digest()[:CHANNEL_TOKEN_BYTES].hex()
    )


class GoogleChannelVerifier:
    """Google's push notifications: the token must be the MAC of the channel's id, so that one which
    arrives before the channel is on record can be judged as well."""

    def __init__(self, *keys: bytes) -> None:
        if not keys or any(len(key) < CHANNEL_TOKEN_BYTES for key in keys):
            raise InvalidError(f"channel keys need at least {CHANNEL_TOKEN_BYTES} bytes")
        self._keys_bytes = keys

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        channel = _header(headers, "x-goog-channel-id")
        _header(headers, "x-goog-resource-id")
        _header(headers, "x-goog-resource-state")
        number = _header(headers, "x-goog-message-number")
        given = headers.get("x-goog-channel-token", "")
        if not sum(_same(given, channel_token(key, channel)) for key in self._keys_bytes):
            raise UnverifiedError("the channel token was not made here")
        return Verified(f"{channel}:{number}", channel)


class _Update(msgspec.Struct):
    update_id: int


class TelegramVerifier:
    """Telegram's secret token header; updates are named by their `update_id`."""

    def __init__(self, secret: str) -> None:
        (self._secret,) = _keys([secret])

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        given = headers.get("x-telegram-bot-api-secret-token", "")
        if not hmac.compare_digest(given.encode(), self._secret):
            raise UnverifiedError("the secret token is not ours; set the webhook again")
        try:
            update = msgspec.json.decode(body, type=_Update)
        except msgspec.DecodeError as fault:
            raise InvalidError(f"the body is no Telegram update: {fault}", "update_id") from None
        return Verified(str(update.update_id))


class StandardWebhooksVerifier:
    """The Standard Webhooks headers: id, timestamp and signature over both and the body."""

    def __init__(self, *secrets: str) -> None:
        self._signatures = SignatureVerifier(secrets)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(self._signatures.verify(headers, body, now=now))
