"""GitHub's webhook signature."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import UnverifiedError
from holdfast.webhook_verifier import Verified, keyed_hmac, matches_any, required_header, secret_bytes


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
        self._keyed = [keyed_hmac(key) for key in secret_bytes(secrets)]

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(self.verify_message(headers, body, now).message_id, account=_account(body))

    def verify_message(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        """As `verify`, without the account, for which the body has to be read."""
        message_id = headers.get("x-github-delivery") or required_header(headers, "x-github-delivery")
        expected = []
        for keyed in self._keyed:
            # `hmac.digest` releases the GIL, and must then wait for the thread of the store.
            state = keyed.copy()
            state.update(body)
            expected.append("sha256=" + state.hexdigest())
        if not matches_any(headers.get("x-hub-signature-256", ""), expected):
            raise UnverifiedError("the signature does not fit the body; check the webhook's secret")
        return Verified(message_id)


def _account(body: bytes) -> str:
    try:
        installation = _DECODER.decode(body).installation
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""  # a form, or no object: verified, so its handler decides
    return "" if installation is None else str(installation.id)
