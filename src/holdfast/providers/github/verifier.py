"""GitHub's webhook signature."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import UnverifiedError
from holdfast.webhook_verifier import Verified, matches_any, required_header, secret_bytes


class _Installation(msgspec.Struct):
    id: int


class _Payload(msgspec.Struct):
    installation: _Installation | None = None


_DECODER: Final = msgspec.json.Decoder(_Payload)


class GithubVerifier:
    """Checks `X-Hub-Signature-256` over the raw body; the message id is `X-GitHub-Delivery`, the account the
    id of the App's installation.

    Several secrets are accepted at once, for a rotation.

    Example: `Source(name="github", verifier=GithubVerifier(secret))`
    """

    def __init__(self, *secrets: str) -> None:
        self._keyed = [hmac.new(key, digestmod=hashlib.sha256) for key in secret_bytes(secrets)]

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        message_id = required_header(headers, "x-github-delivery")
        expected = ["sha256=" + _hexdigest(keyed, body) for keyed in self._keyed]
        if not matches_any(headers.get("x-hub-signature-256", ""), expected):
            raise UnverifiedError("the signature does not fit the body; check the webhook's secret")
        return Verified(message_id, account=_account(body))


def _account(body: bytes) -> str:
    try:
        installation = _DECODER.decode(body).installation
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""  # a form, or no object: verified, so its handler decides
    return "" if installation is None else str(installation.id)


def _hexdigest(keyed: hmac.HMAC, body: bytes) -> str:
    # `hmac.digest` releases the GIL for every message and has to wait for the store's thread to get it back.
    state = keyed.copy()
    state.update(body)
    return state.hexdigest()
