"""Issuers of identity tokens: whether their keys can be had."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.clock import SystemClock
from holdfast.config import Config, Issuer
from holdfast.errors import HoldfastError
from holdfast.kit.access.oidc_keys import parse_keys
from holdfast.runtime.issuer_keys import key_fetcher
from holdfast.service import CheckResult

REMEDY = "check its address and this machine's way out; set jwks_url where it does not describe itself"


async def issuers(config: Config) -> AsyncIterator[CheckResult]:
    """One finding for each issuer that is set."""
    for one in config.oidc:
        yield await _keys_of(one)


async def _keys_of(issuer: Issuer) -> CheckResult:
    try:
        found = parse_keys(await key_fetcher(issuer, clock=SystemClock())())
    except HoldfastError as fault:
        return CheckResult("issuer", False, f"{issuer.issuer}: {fault.message}", REMEDY)
    if not found:
        return CheckResult("issuer", False, f"{issuer.issuer} gives no key that could sign", REMEDY)
    return CheckResult("issuer", True, f"{issuer.issuer} has {len(found)} keys")
