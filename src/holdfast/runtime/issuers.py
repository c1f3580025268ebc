"""Issuers of identity tokens over HTTP: description, signing keys, and the exchange of a code for a token."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec
import structlog

from holdfast.clock import Clock
from holdfast.config import Config, Issuer, is_private
from holdfast.errors import HoldfastError, RetryLaterError, UnverifiedError
from holdfast.kit.access.identities import Identities
from holdfast.kit.access.oidc import Oidc
from holdfast.kit.access.oidc_keys import Fetch
from holdfast.kit.access.oidc_sign_in import CodeExchange, OidcSignIn
from holdfast.kit.vault import Vault
from holdfast.providers.rest import Call, CallLimits, RestClient, RestResponse, fault_by_status
from holdfast.store import Store

T = TypeVar("T")
log = structlog.get_logger("holdfast.oidc")

DISCOVERY: Final = ".well-known/openid-configuration"
DESCRIBED_S: Final = 3_600.0
_LIMITS: Final = CallLimits(call_s=5.0, attempts_max=1, response_bytes_max=262_144)
_FORM: Final = "application/x-www-form-urlencoded"
_ERROR: Final = re.compile(r"[a-z_]{1,40}")


class Described(msgspec.Struct, frozen=True):
    """An issuer's description of itself, as far as it matters here."""

    issuer: str = ""
    jwks_uri: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Token(msgspec.Struct, frozen=True):
    id_token: str


class _TokenError(msgspec.Struct, frozen=True):
    error: str = ""


def identities_of(config: Config, store: Store) -> Identities:
    oidc = Oidc(config.oidc, partial(key_fetcher, clock=store.clock), clock=store.clock)
    return Identities(store, oidc)


def sign_in_of(config: Config, store: Store, vault: Vault, *, oidc: Oidc) -> OidcSignIn:
    """Sign-in with those issuers that this server is registered at."""
    return OidcSignIn(
        store, vault, oidc=oidc, issuers=config.oidc, public_url=config.public_url,
        client_of=partial(HttpIssuer, clock=store.clock),
    )  # fmt: skip


def key_fetcher(issuer: Issuer, *, clock: Clock) -> Fetch:
    async def fetch() -> Mapping[str, Any]:
        place = issuer.jwks_url or (await describe(issuer, clock=clock)).jwks_uri
        if not is_private(place):
            raise RetryLaterError(f"{issuer.issuer} does not say where its keys are; set its jwks_url")
        return await _fetch(place, Call("oidc.keys", "GET", ""), dict, clock=clock)

    return fetch


async def describe(issuer: Issuer, *, clock: Clock) -> Described:
    """Fetch an issuer's description; one that describes another issuer is not believed."""
    place = f"{issuer.issuer.rstrip('/')}/{DISCOVERY}"
    found = await _fetch(place, Call("oidc.discovery", "GET", ""), Described, clock=clock)
    if found.issuer != issuer.issuer:
        raise RetryLaterError(f"{place} describes another issuer; check `issuer`, or set its jwks_url")
    return found


class HttpIssuer:
    """An issuer that people sign in with; its description is used for an hour."""

    def __init__(self, issuer: Issuer, *, clock: Clock) -> None:
        self._issuer, self._clock = issuer, clock
        self._described: tuple[Described, float] | None = None

    async def authorization_url(self) -> str:
        url = (await self._description()).authorization_endpoint
        return self._checked(url, "authorization_endpoint")

    async def exchange(self, exchange: CodeExchange) -> str:
        described = await self._description()
        form = {
            "grant_type": "authorization_code", "code": exchange.code, "code_verifier": exchange.verifier,
            "redirect_uri": exchange.redirect_uri, "client_id": self._issuer.client_id,
        }  # fmt: skip
        headers = {}
        if self._issuer.client_secret and "client_secret_post" in _methods(described):
            form["client_secret"] = self._issuer.client_secret
        elif self._issuer.client_secret:
            headers["Authorization"] = f"Basic {_basic(self._issuer)}"
        call = Call(
            "oidc.token", "POST", "", body=urlencode(form).encode(), content_type=_FORM, headers=headers
        )
        place = self._checked(described.token_endpoint, "token_endpoint")
        return (await _fetch(place, call, _Token, clock=self._clock)).id_token

    async def _description(self) -> Described:
        now_s = self._clock.monotonic()
        if self._described is None or now_s >= self._described[1]:
            found = await describe(self._issuer, clock=self._clock)
            self._described = found, now_s + DESCRIBED_S
        return self._described[0]

    def _checked(self, url: str, name: str) -> str:
        if not is_private(url):
            raise RetryLaterError(f"{self._issuer.label} names no {name} with https://; nobody can sign in")
        return url


def _methods(described: Described) -> tuple[str, ...]:
    return described.token_endpoint_auth_methods_supported


def _basic(issuer: Issuer) -> str:
    pair = f"{quote_plus(issuer.client_id)}:{quote_plus(issuer.client_secret)}"
    return base64.b64encode(pair.encode()).decode()


async def _fetch(url: str, call: Call, kind: type[T], *, clock: Clock) -> T:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        rest = RestClient(session, url, fault_of=_fault_of, clock=clock, limits=_LIMITS)
        return await rest.fetch(call, kind)


def _fault_of(act: str, response: RestResponse) -> HoldfastError:
    if act != "oidc.token" or response.status not in (400, 401):
        return fault_by_status(act, response)
    try:
        reason = msgspec.json.decode(response.body, type=_TokenError).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        reason = ""
    reason = reason if _ERROR.fullmatch(reason) else "no reason"
    if reason in ("invalid_client", "unauthorized_client"):
        log.error("issuer refused this server", reason=reason)
        return RetryLaterError(
            "the issuer does not accept this server's client_id and client_secret; check its settings",
            after_s=60.0,
        )
    return UnverifiedError(f"the issuer did not accept the sign-in ({reason}); start again")
