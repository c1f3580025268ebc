"""Signing keys of identity providers: fetched from where the settings or the issuer's description say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import aiohttp

from holdfast.clock import Clock
from holdfast.config import Config, Issuer, is_private
from holdfast.errors import RetryLaterError
from holdfast.kit.access.identities import Identities
from holdfast.kit.access.oidc import Oidc
from holdfast.kit.access.oidc_keys import Fetch
from holdfast.providers.rest import Call, CallLimits, RestClient, fault_by_status
from holdfast.store import Store

DISCOVERY: Final = ".well-known/openid-configuration"
_LIMITS: Final = CallLimits(call_s=5.0, attempts_max=1, response_bytes_max=262_144)


def identities_of(config: Config, store: Store) -> Identities:
    """The identities of the configured issuers, as callers."""
    oidc = Oidc(config.oidc, partial(key_fetcher, clock=store.clock), clock=store.clock)
    return Identities(store, oidc)


def key_fetcher(issuer: Issuer, *, clock: Clock) -> Fetch:
    """A function that fetches an issuer's keys."""

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
