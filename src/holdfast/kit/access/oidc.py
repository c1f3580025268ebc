"""Verification of identity tokens from the configured issuers.

Checks run from cheap to expensive: size and form, algorithm, issuer, audience and times, and only then the
signature. So a token that can't be valid never makes us fetch an issuer's keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from msgspec import Meta

from holdfast.clock import Clock
from holdfast.config import RESERVED_PREFIXES, Issuer, IssuerGrant
from holdfast.errors import UnverifiedError
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
    sub: Annotated[str, Meta(min_length=1, max_length=255)]
    aud: str | tuple[str, ...]
    exp: float
    iat: float | None = None
    nbf: float | None = None
    email: str | None = None
    email_verified: bool | str = False
    name: str = ""
    nonce: str | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A person or machine as its issuer knows it; `email` only where the issuer has verified it."""

    issuer: str
    subject: str
    email: str = ""
    name: str = ""


class Oidc:
    """Verifies tokens of the configured issuers, and no others.

    `fetch_of` returns the function that fetches an issuer's keys.

    Example: `identity = await Oidc(config.oidc, fetch_of, clock=clock).verify(token)`
    """

    def __init__(
        self, issuers: Sequence[Issuer], fetch_of: Callable[[Issuer], Fetch], *, clock: Clock
    ) -> None:
        self._clock = clock
        self._issuers = {one.issuer: (one, IssuerKeys(fetch_of(one), clock=clock)) for one in issuers}

    async def verify(self, token: str) -> Identity:
        """Whose token this is; `UnverifiedError` for one that is invalid or for another audience."""
        identity, _ = await self._verified(token, lambda issuer: issuer.audiences)
        return identity

    async def verify_sign_in(self, token: str, *, issuer: str, nonce: str) -> Identity:
        """Who signed in: the token must be of this issuer, for its client, and carry the nonce."""
        identity, claims = await self._verified(token, lambda one: (one.client_id,))
        if identity.issuer != issuer:
            raise UnverifiedError("the identity token is of another issuer than the one that was asked")
        if claims.nonce != nonce:
            raise UnverifiedError("the identity token answers another sign-in; start again")
        return identity

    async def _verified(
        self, token: str, audiences_of: Callable[[Issuer], Sequence[str]]
    ) -> tuple[Identity, _OidcClaims]:
        header, claims = _read(token)
        issuer, keys = self._issuers.get(claims.iss, (None, None))
        if issuer is None or keys is None:
            raise UnverifiedError("the identity token's issuer is not configured")
        _check_header(header)
        _check_claims(claims, audiences_of(issuer), issuer.leeway_s, now_s=self._clock.now().timestamp())
        key = await keys.find(header.kid)
        if key is None:
            raise UnverifiedError("the identity token is signed with a key that its issuer does not publish")
        try:
            jws.deserialize_compact(token, key, algorithms=[header.alg], registry=_REGISTRY)
        except (JoseError, ValueError, TypeError):
            raise UnverifiedError("the identity token's signature is invalid") from None
        email = _verified_email(claims)
        return Identity(issuer=claims.iss, subject=claims.sub, email=email, name=claims.name), claims

    def caller(self, identity: Identity) -> Caller:
        """The identity as a caller, with the roles that the settings grant it; perhaps none."""
        issuer, _ = self._issuers.get(identity.issuer, (None, None))
        if issuer is None:
            raise UnverifiedError("the identity's issuer is no longer configured")
        return caller_of(identity, issuer)

    def signs_in(self, identity: Identity) -> bool:
        """Whether people sign in with this identity's issuer."""
        issuer, _ = self._issuers.get(identity.issuer, (None, None))
        return issuer is not None and bool(issuer.client_id)


def caller_of(identity: Identity, issuer: Issuer) -> Caller:
    """The caller that an issuer's settings make of an identity."""
    matching = [one for one in issuer.allow if _matches(one, identity.subject, identity.email)]
    service = any(one.role == "service" for one in matching)
    roles = {one.tenant: one.role for one in matching if not service}
    return Caller(user_id=_user_id(identity, issuer), roles=roles, service=service, email=identity.email)


def _user_id(identity: Identity, issuer: Issuer) -> str:
    by_email = issuer.user_id == "email" and identity.email
    if issuer.user_id == "email" and not identity.email and "@" in identity.subject:
        # It could be spelled like the address of somebody else.
        raise UnverifiedError("the issuer has not verified an e-mail address of this person")
    user_id = f"{issuer.user_prefix}{identity.email if by_email else identity.subject}"
    if user_id.startswith(RESERVED_PREFIXES):
        raise UnverifiedError("the identity's subject is spelled like an id of this server's own")
    return user_id


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


def _check_claims(claims: _OidcClaims, accepted: Sequence[str], leeway_s: float, *, now_s: float) -> None:
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if not set(audiences) & {one for one in accepted if one}:
        raise UnverifiedError("the identity token is for another audience")
    if now_s >= claims.exp + leeway_s:
        raise UnverifiedError(
            f"the identity token expired {now_s - claims.exp:.0f} s ago; get a new one, "
            "and if it is new, set this server's clock"
        )
    early_s = max(claims.nbf or 0.0, claims.iat or 0.0) - now_s
    if early_s > leeway_s:
        raise UnverifiedError(
            f"the identity token is not valid for another {early_s:.0f} s; check this server's clock"
        )


def _verified_email(claims: _OidcClaims) -> str:
    return (claims.email or "").lower() if claims.email_verified in (True, "true") else ""
