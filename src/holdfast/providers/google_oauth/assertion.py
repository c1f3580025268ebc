"""The signed statement by which a service account asks for a token (RFC 7523, RS256)."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from holdfast.errors import ConfigError
from holdfast.providers.google_oauth.types import ServiceAccountKey

# Google takes an hour at most and refuses a statement from the future, so ours begins a little in the past.
LIFE_S: Final = 3_600
SKEW_S: Final = 30


class AssertionClaims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    iss: str
    scope: str
    aud: str
    iat: int
    exp: int
    sub: str = ""


def claims_of(
    key: ServiceAccountKey, scopes: Sequence[str], *, subject: str, audience: str, now: datetime
) -> AssertionClaims:
    """Who asks, for what, on whose behalf (`subject`, empty for itself) and for how long."""
    issued = int(now.timestamp()) - SKEW_S
    return AssertionClaims(
        iss=key.client_email,
        scope=" ".join(scopes),
        aud=audience,
        iat=issued,
        exp=issued + LIFE_S,
        sub=subject,
    )


class AssertionSigner:
    """Signs with one service account's key."""

    def __init__(self, key: ServiceAccountKey) -> None:
        self._header = _part({"alg": "RS256", "typ": "JWT", "kid": key.private_key_id})
        self._key = _loaded(key)

    def sign(self, claims: AssertionClaims) -> str:
        """The claims as a signed JWT."""
        signed = self._header + b"." + _part(claims)
        return (signed + b"." + _url64(self._key.sign(signed, PKCS1v15(), hashes.SHA256()))).decode()


@functools.lru_cache(maxsize=8)
def _loaded(key: ServiceAccountKey) -> RSAPrivateKey:
    """Checking a key takes a tenth of a second, and several clients may share one."""
    try:
        loaded = load_pem_private_key(key.private_key.encode(), password=None)
    except (ValueError, TypeError):
        raise ConfigError(f"the private key of {key.client_email} is no PEM key; download it anew") from None
    if not isinstance(loaded, RSAPrivateKey):
        raise ConfigError(f"the private key of {key.client_email} is not an RSA key")
    return loaded


def _part(value: object) -> bytes:
    return _url64(msgspec.json.encode(value))


def _url64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")
