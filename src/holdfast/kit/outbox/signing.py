"""Standard Webhooks signatures: HMAC-SHA256 (`v1`) and Ed25519 (`v1a`), made and checked.

Signed is `{id}.{timestamp}.{body}`. During a rotation a message carries one signature per active
secret, separated by spaces, so a receiver may hold either.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from holdfast.clock import to_us
from holdfast.errors import UnverifiedError, WrongTypeError
from holdfast.webhook_verifier import keyed_hmac

SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
SIGNATURES_MAX: Final = 32
TOLERANCE_S: Final = 300
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,11}")

# Takes the event's id, the attempt's time in whole seconds and the body; gives the headers that sign them.
Sign = Callable[[str, int, bytes], Sequence[tuple[str, str]]]


class SigningKey(Protocol):
    def sign(self, start: bytes, body: bytes) -> str: ...


class CheckingKey(Protocol):
    def matches(self, signature: str, *, start: bytes, body: bytes) -> bool: ...


class HmacKey:
    """A `whsec_` secret; the keyed state is made once and copied for each message."""

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes) -> None:
        if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
            raise _malformed(f"a whsec_ secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
        self._keyed = keyed_hmac(key)

    def sign(self, start: bytes, body: bytes) -> str:
        state = self._keyed.copy()
        state.update(start)
        state.update(body)
        return "v1," + binascii.b2a_base64(state.digest(), newline=False).decode()

    def matches(self, signature: str, *, start: bytes, body: bytes) -> bool:
        # Texts are compared, not bytes: base64 has several spellings of one value.
        return hmac.compare_digest(self.sign(start, body).encode(), signature.encode())

    def plain(self, body: bytes) -> str:
        """Sign the body alone, in the widely used `sha256=<hex>` form."""
        state = self._keyed.copy()
        state.update(body)
        digest: bytes = state.digest()
        return "sha256=" + digest.hex()


class EdSigningKey:
    """A `whsk_` private key: the 32-byte seed, or seed and public key together."""

    __slots__ = ("_private", "public")

    def __init__(self, key: bytes) -> None:
        if len(key) not in (32, 64):
            raise _malformed("a whsk_ key has 32 bytes, or 64 with its public key")
        self._private = Ed25519PrivateKey.from_private_bytes(key[:32])
        self.public = EdCheckingKey(self._private.public_key().public_bytes_raw())
        if len(key) == 64 and key[32:] != self.public.raw:
            raise _malformed("the public half of this whsk_ key belongs to another key")

    def sign(self, start: bytes, body: bytes) -> str:
        return "v1a," + base64.b64encode(self._private.sign(start + body)).decode()


class EdCheckingKey:
    """A `whpk_` public key."""

    __slots__ = ("_public", "raw")

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise _malformed("a whpk_ key has 32 bytes")
        self.raw = key
        self._public = Ed25519PublicKey.from_public_bytes(key)

    def matches(self, signature: str, *, start: bytes, body: bytes) -> bool:
        version, _, text = signature.partition(",")
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return False
        if version != "v1a" or base64.b64encode(raw).decode() != text:
            return False
        try:
            self._public.verify(raw, start + body)
        except InvalidSignature:
            return False
        return True


class WebhookSigner:
    """Signs with every active secret, the newest first.

    With `plain_header` an HMAC secret also signs the body alone under that name: the oldest, since there is
    room for one signature and a receiver who knows only the old secret must go on until that ends.

    Example: `WebhookSigner(["whsec_…"]).headers("evt-1", 1_700_000_000, b"{}")`
    """

    def __init__(self, secrets: Iterable[str], *, plain_header: str | None = None) -> None:
        keys = [_signing_key(text) for text in secrets]
        if not keys:
            raise _malformed("signing needs at least one secret")
        self._newest, self._older = keys[0], keys[1:]
        self._plain_header = plain_header
        self._plain_key = next((key for key in reversed(keys) if isinstance(key, HmacKey)), None)

    def headers(self, message_id: str, at_s: int, body: bytes) -> list[tuple[str, str]]:
        """Return the headers that sign a message: id, time and one signature for each secret."""
        message_id = escape_id(message_id)
        start = f"{message_id}.{at_s}.".encode()
        signature = self._newest.sign(start, body)
        for key in self._older:
            signature += " " + key.sign(start, body)
        made = [
            ("webhook-id", message_id),
            ("webhook-timestamp", str(at_s)),
            ("webhook-signature", signature),
        ]
        if self._plain_header is not None and self._plain_key is not None:
            made.append((self._plain_header, self._plain_key.plain(body)))
        return made


class SignatureVerifier:
    """Verifies messages signed with any of the secrets, within the time tolerance.

    `prefix` is the first word of the headers' names (`svix` at some senders).

    Example: `SignatureVerifier(["whsec_…"]).verify(headers, body, now=clock.now())`
    """

    def __init__(
        self, secrets: Iterable[str], *, tolerance_s: int = TOLERANCE_S, prefix: str = "webhook"
    ) -> None:
        self._keys = [_checking_key(text) for text in secrets]
        if not self._keys:
            raise _malformed("checking needs at least one secret")
        self._tolerance_s = tolerance_s
        self._prefix = prefix

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: datetime) -> str:
        """Return the message's id, or raise `UnverifiedError`. Header names may be in any case."""
        lowered = {name.lower(): value for name, value in headers.items()}
        message_id, at, signatures = (
            lowered.get(f"{self._prefix}-{word}", "") for word in ("id", "timestamp", "signature")
        )
        if not message_id or not signatures or not _SECONDS.fullmatch(at):
            raise UnverifiedError("the message carries no usable signature headers")
        if abs(int(at) - to_us(now) // 1_000_000) > self._tolerance_s:
            raise UnverifiedError(f"the message was signed more than {self._tolerance_s} s from now")
        start = f"{message_id}.{at}.".encode()
        for signature in signatures.split(" ")[:SIGNATURES_MAX]:
            if any(key.matches(signature, start=start, body=body) for key in self._keys):
                return message_id
        raise UnverifiedError("no signature matches the message")


def escape_id(event_id: str) -> str:
    """The `webhook-id` of an event: `id.timestamp.body` can be read in one way only if the id has no point.

    Example: `escape_id("evt-7.5")` gives `evt-7%2E5`
    """
    return event_id.replace("%", "%25").replace(".", "%2E")


def new_secret() -> str:
    """Return a new `whsec_` secret of 32 random bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def new_key_pair() -> tuple[str, str]:
    """Return a new `whsk_` private key and the `whpk_` public key to give to receivers."""
    private = Ed25519PrivateKey.generate()
    keys = private.private_bytes_raw(), private.public_key().public_bytes_raw()
    return "whsk_" + base64.b64encode(keys[0]).decode(), "whpk_" + base64.b64encode(keys[1]).decode()


def _signing_key(text: str) -> SigningKey:
    kind, raw = _read(text)
    if kind == "whpk":
        raise _malformed("a whpk_ key only checks signatures; sign with its whsk_ key")
    return HmacKey(raw) if kind == "whsec" else EdSigningKey(raw)


def _checking_key(text: str) -> CheckingKey:
    kind, raw = _read(text)
    if kind == "whsk":
        return EdSigningKey(raw).public
    return HmacKey(raw) if kind == "whsec" else EdCheckingKey(raw)


def _read(text: str) -> tuple[str, bytes]:
    kind, joint, encoded = text.partition("_")
    if not joint or kind not in ("whsec", "whsk", "whpk"):
        raise _malformed("a secret begins with whsec_, whsk_ or whpk_")
    try:
        return kind, base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _malformed("what follows the prefix is no base64") from None


def _malformed(message: str) -> WrongTypeError:
    """Return the error without the value, which may be most of a secret."""
    return WrongTypeError(message, "secret")
