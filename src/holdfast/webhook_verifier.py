"""The port of webhook verification, seen by the inbox that asks and the providers that answer.

A verifier judges the raw headers and body and names the message, or refuses it. It parses no more than it
must and compares secrets in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from holdfast.errors import InvalidError

CHANNEL_TOKEN_BYTES: Final = 16


class Verified(msgspec.Struct, frozen=True):
    """A message's id at its source, the key whose messages are processed in order, and the account that it is
    about, by which its source finds the tenant."""

    message_id: str
    order_key: str = ""
    account: str = ""


class Verifier(Protocol):
    """Judges one source's messages; header names come in lower case."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        """Return the message's id; raise UnverifiedError, or InvalidError when it is malformed."""
        ...


@runtime_checkable
class MessageVerifier(Verifier, Protocol):
    """A verifier that parses the body for the account alone, and can leave that out where nobody asks for it.

    Optional: a source that finds tenants by no account calls `verify_message` where its verifier has it.
    """

    def verify_message(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        """Return and raise what `verify` does, without the account."""
        ...


Verify = Callable[[Mapping[str, str], bytes, datetime], Verified]


def required_header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise InvalidError(f"the header {name} is missing", name)
    return value


def secret_bytes(secrets: Sequence[str]) -> list[bytes]:
    """Encode a verifier's secrets; refuse none at all and empty ones."""
    if not secrets or not all(secrets):
        raise InvalidError("a verifier needs at least one secret, and none may be empty")
    return [secret.encode() for secret in secrets]


def keyed_hmac(key: bytes) -> Any:
    """Return the HMAC-SHA256 state of a key, to be copied for each message.

    It is OpenSSL's where there is one: `hmac.HMAC` has Python code around each of its methods.
    """
    keyed = hmac.new(key, digestmod=hashlib.sha256)
    return getattr(keyed, "_hmac", None) or keyed


def matches_any(given: str, expected: Sequence[str]) -> bool:
    """Compare with all in constant time: which of the secrets fits must not show in the time it takes."""
    if len(expected) == 1:
        return hmac.compare_digest(given.encode(), expected[0].encode())
    return bool(sum([hmac.compare_digest(given.encode(), one.encode()) for one in expected]))


def channel_token(key: bytes, channel_id: str) -> str:
    """Return the token to open a watch channel with: its MAC, so only the key's holder can make it."""
    mac = hmac.new(key, b"channel " + channel_id.encode(), hashlib.sha256).digest()
    return mac[:CHANNEL_TOKEN_BYTES].hex()
