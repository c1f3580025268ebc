"""Credentials: JWTs that others verify, tokens that are cached and renewed early."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt
from joserfc.jwk import RSAKey

from holdfast.errors import RetryLaterError
from holdfast.providers.credentials import AccessToken, CachedTokens, FixedToken, sign_jwt
from tests.providers.provider_fixture import HastyClock

PEM = (
    generate_private_key(65_537, 2_048)
    .private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    .decode()
)


async def test_an_app_signs_its_own_tokens_anew_before_they_end(hasty: HastyClock) -> None:
    async def sign() -> AccessToken:
        issued = int(hasty.now().timestamp()) - 60
        claims = {"iss": "12345", "iat": issued, "exp": issued + 600}
        return AccessToken(sign_jwt(claims, PEM, owner="the app 12345"), 540.0)

    tokens = CachedTokens(sign, clock=hasty, early_s=60.0)
    first = await tokens()
    verified = jwt.decode(first, RSAKey.import_key(PEM), algorithms=["RS256"])
    assert verified.header == {"alg": "RS256", "typ": "JWT"}
    assert (verified.claims["iss"], verified.claims["exp"] - verified.claims["iat"]) == ("12345", 600)
    hasty.tick(479)
    assert await tokens() == first
    hasty.tick(2)
    assert await tokens() != first


async def test_a_token_near_its_end_is_used_while_renewing_fails(hasty: HastyClock) -> None:
    granted = [AccessToken("first", 600.0)]

    async def request() -> AccessToken:
        if not granted:
            raise RetryLaterError("no answer")
        return granted.pop()

    tokens = CachedTokens(request, clock=hasty)
    assert await tokens() == "first"
    hasty.tick(580)
    assert await tokens() == "first"
    hasty.tick(15)
    with pytest.raises(RetryLaterError):
        await tokens()


def test_no_repr_shows_a_token() -> None:
    assert "s3cret" not in f"{AccessToken('s3cret', 1.0)!r} {FixedToken('s3cret')!r}"
