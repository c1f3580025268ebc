"""The signed JWT with which a service account requests a token (RFC 7523, RS256)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.providers.credentials import sign_jwt
from holdfast.providers.google_oauth.types import ServiceAccountKey

# Google takes an hour at most and refuses an assertion from the future, so ours begins a little in the past.
LIFE_S: Final = 3_600
SKEW_S: Final = 30


def sign_assertion(key: ServiceAccountKey, scopes: Sequence[str], *, subject: str, now: datetime) -> str:
    """Return the assertion for these scopes on behalf of `subject`, empty for the account itself."""
    issued = int(now.timestamp()) - SKEW_S
    claims: dict[str, Any] = {
        "iss": key.client_email, "scope": " ".join(scopes), "aud": key.token_uri, "iat": issued,
        "exp": issued + LIFE_S,
    }  # fmt: skip
    if subject:
        claims["sub"] = subject
    return sign_jwt(claims, key.private_key, owner=key.client_email, key_id=key.private_key_id)
