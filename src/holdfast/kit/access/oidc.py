"""Verification of identity tokens from the configured issuers.

Checks run from cheap to expensive: size and form, algorithm, issuer, audience and times, and only then the
signature. So a token that can't be valid never makes us fetch an issuer's keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError

from holdfast.clock import Clock
from holdfast.config import Issuer, IssuerGrant
from holdfast.errors import ForbiddenError, UnverifiedError
from holdfast.kit.access.oidc_keys import Fetch, IssuerKeys
from holdfast.model import Caller

TOKEN_BYTES_MAX: Final = 8_192
# Public-key signatures only: with a shared-key algorithm, a published key could sign.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384")
_REGISTRY: Final = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)


class _OidcHeader(msgspec.Struct, frozen=True):
    alg: str
    kid: str
    typ: str = "JWT"
    crit: msgspec.Raw | None = None


class _OidcClaims(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    aud: str | tuple[str, ...]
    exp: float
    iat: float | None = None
    nbf: float | None = None
    email: str | None = None
    email_verified: bool | str = False


class Oidc:
    """Verifies tokens of the configured issuers, and no others.

    `fetch_of` returns the function that fetches an issuer's keys.

    Example: `caller = await Oidc(config.oidc, fetch_of, clock=clock).verify(token)`
    """

    def __init__(
        self, issuers: Sequence[Issuer], fetch_of: Callable[[Issuer], Fetch], *, clock: Clock
    ) -> None:
        self._clock = clock
        self._issuers = {one.issuer: (one, IssuerKeys(fetch_of(one), clock=clock)) for one in issuers}

    async def verify(self, token: str) -> Caller:
        """The caller; `UnverifiedError` for an invalid token, `ForbiddenError` for an unknown person."""
        header, claims = _read(token)
        issuer, keys = self._issuers.get(claims.iss, (None, None))
        if issuer is None or keys is None:
            raise UnverifiedError("the identity token's issuer is not configured")
        _check_header(header)
        _check_claims(claims, issuer, now_s=self._clock.now().timestamp())
        key = await keys.find(header.kid)
        if key is None:
            raise UnverifiedError("the identity token is signed with a key that its issuer does not publish")
        try:
            jws.deserialize_compact(token, key, algorithms=[header.alg], registry=_REGISTRY)
        except (JoseError, ValueError, TypeError):
            raise UnverifiedError("the identity token's signature is invalid") from None
        return caller_of(claims.sub, _verified_email(claims), issuer.allow)


def caller_of(subject: str, email: str, grants: Sequence[IssuerGrant]) -> Caller:
    """The caller that the grants make of a subject and its verified e-mail address."""
    matching = [one for one in grants if _matches(one, subject, email)]
    if not matching:
        raise ForbiddenError(
            "the identity token is valid, but its owner has no access; add them to `allow` of the issuer"
        )
    roles = {one.tenant: one.role for one in matching if one.role != "service"}
    service = any(one.role == "service" for one in matching)
    return Caller(user_id=f"oidc:{email or subject}", roles={} if service else roles, service=service)


def _matches(grant: IssuerGrant, subject: str, email: str) -> bool:
    return grant.subject == subject if grant.subject else grant.email.lower() == email


def _read(token: str) -> tuple[_OidcHeader, _OidcClaims]:
    parts = token.split(".")
    if len(token) > TOKEN_BYTES_MAX or len(parts) != 3 or not token.isascii():
        raise UnverifiedError("this is not an identity token")
    try:
        return (
            msgspec.json.decode(_bytes(parts[0]), type=_OidcHeader),
            msgspec.json.decode(_bytes(parts[1]), type=_OidcClaims),
        )
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError, RecursionError):
        raise UnverifiedError("the identity token is malformed or lacks a required claim") from None


def _bytes(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _check_header(header: _OidcHeader) -> None:
    if header.alg not in ALGORITHMS:
        raise UnverifiedError(f"the identity token must be signed by one of {', '.join(ALGORITHMS)}")
    if header.typ.upper() != "JWT" or header.crit is not None:
        raise UnverifiedError("the identity token has an unsupported type or critical header")


def _check_claims(claims: _OidcClaims, issuer: Issuer, *, now_s: float) -> None:
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if not set(audiences) & set(issuer.audiences):
        raise UnverifiedError("the identity token is for another audience")
    if now_s >= claims.exp + issuer.leeway_s:
        raise UnverifiedError("the identity token has expired; get a new one")
    valid_from = max(claims.nbf or 0.0, claims.iat or 0.0)
    if now_s < valid_from - issuer.leeway_s:
        raise UnverifiedError("the identity token is not valid yet; check the clocks")


def _verified_email(claims: _OidcClaims) -> str:
    return (claims.email or "").lower() if claims.email_verified in (True, "true") else ""
