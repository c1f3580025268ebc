"""Issuers of identity tokens: whether their keys can be had."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.clock import SystemClock
from holdfast.config import Config, Issuer
from holdfast.errors import HoldfastError
from holdfast.kit.access.oidc_keys import parse_keys
from holdfast.kit.access.oidc_sign_in import CALLBACK
from holdfast.plural import plural
from holdfast.runtime.issuers import describe, key_fetcher
from holdfast.service import CheckResult

REMEDY = "check its address and this machine's way out; set jwks_url where it does not describe itself"


async def issuers(config: Config) -> AsyncIterator[CheckResult]:
    """One finding for each issuer that is set."""
    for one in config.oidc:
        yield await _keys_of(one)
        if one.client_id or one.client_secret:
            yield await _sign_in_with(one, config)


async def _sign_in_with(issuer: Issuer, config: Config) -> CheckResult:
    """Whether people can sign in with an issuer, or what is missing."""
    fault, remedy = "", "register this server there, and set what it gives"
    if not issuer.client_id:
        fault = "client_secret is set without client_id"
    elif not config.public_url:
        fault, remedy = "people could not come back: no public URL", "set public_url (HOLDFAST_PUBLIC_URL)"
    else:
        try:
            described = await describe(issuer, clock=SystemClock())
            if not described.authorization_endpoint or not described.token_endpoint:
                fault, remedy = "it describes no authorization and token endpoints", REMEDY
        except HoldfastError as error:
            fault, remedy = error.message, REMEDY
    if fault:
        return CheckResult("sign-in", False, f"{issuer.issuer}: {fault}", remedy)
    callback = f"{config.public_url.rstrip('/')}{CALLBACK}"
    return CheckResult("sign-in", True, f"with {issuer.label}; it must allow the redirect to {callback}")


async def _keys_of(issuer: Issuer) -> CheckResult:
    try:
        found = parse_keys(await key_fetcher(issuer, clock=SystemClock())())
    except HoldfastError as fault:
        return CheckResult("issuer", False, f"{issuer.issuer}: {fault.message}", REMEDY)
    if not found:
        return CheckResult(
            "issuer",
            False,
            f"{issuer.issuer} gives no key that may sign: RSA of 2048 bits and more, or EC",
            REMEDY,
        )
    return CheckResult("issuer", True, f"{issuer.issuer} has {plural(len(found), 'key')}")
