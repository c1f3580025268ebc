"""The signed JWT with which a service account requests a token (RFC 7523, RS256)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from holdfast.errors import ConfigError
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
    header = {"alg": "RS256", "typ": "JWT", "kid": key.private_key_id}
    return jwt.encode(header, claims | ({"sub": subject} if subject else {}), private_key(key))


# Checking a key takes a tenth of a second, and several clients may share one.
@functools.lru_cache(maxsize=8)
def private_key(key: ServiceAccountKey) -> RSAKey:
    try:
        return RSAKey.import_key(key.private_key)
    except ValueError:
        raise ConfigError(f"the private key of {key.client_email} is no PEM key; download it anew") from None
    except JoseError:
        raise ConfigError(f"the private key of {key.client_email} is not an RSA key") from None
