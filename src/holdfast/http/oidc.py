"""Identity tokens over HTTP: reading them from requests, and fetching issuers' keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from holdfast.clock import Clock
from holdfast.config import Issuer, is_private
from holdfast.errors import RetryLaterError
from holdfast.http.authentication import Authenticated, Connection, bearer_of
from holdfast.kit.access.oidc import Oidc
from holdfast.kit.access.oidc_keys import Fetch
from holdfast.kit.access.tokens import PREFIX
from holdfast.providers.rest import Call, CallLimits, RestClient, fault_by_status

DISCOVERY: Final = ".well-known/openid-configuration"
_LIMITS: Final = CallLimits(call_s=5.0, attempts_max=1, answer_bytes_max=262_144)


class OidcAuthenticator:
    """Bearer tokens of the form that identity tokens have."""

    def __init__(self, oidc: Oidc) -> None:
        self._oidc = oidc

    async def read(self, connection: Connection) -> Authenticated | None:
        token = bearer_of(connection.headers)
        if token.startswith(PREFIX) or token.count(".") != 2:
            return None
        return Authenticated(await self._oidc.verify(token))


def fetching(issuer: Issuer, *, clock: Clock) -> Fetch:
    """How to fetch an issuer's keys: where the settings say, or where the issuer's own description does."""

    async def fetch() -> Mapping[str, Any]:
        async with aiohttp.ClientSession() as session:
            place = issuer.jwks_url or await _discovered(session, issuer, clock)
            return await _json(session, place, act="oidc.keys", clock=clock)

    return fetch


async def _discovered(session: aiohttp.ClientSession, issuer: Issuer, clock: Clock) -> str:
    place = f"{issuer.issuer.rstrip('/')}/{DISCOVERY}"
    found = await _json(session, place, act="oidc.discovery", clock=clock)
    keys_at = found.get("jwks_uri")
    if found.get("issuer") != issuer.issuer or not isinstance(keys_at, str) or not is_private(keys_at):
        raise RetryLaterError(f"{place} does not describe that issuer; set its jwks_url")
    return keys_at


async def _json(session: aiohttp.ClientSession, url: str, *, act: str, clock: Clock) -> dict[str, Any]:
    rest = RestClient(session, url, fault_of=fault_by_status, clock=clock, limits=_LIMITS)
    return await rest.fetch(Call(act, "GET", ""), dict)
