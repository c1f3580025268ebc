"""`doctor` on issuers of identity tokens, with a real one to ask."""

from __future__ import annotations

import pytest

from holdfast.cli.checkup.issuers import issuers
from holdfast.clock import SystemClock
from holdfast.config import Issuer, load_config
from holdfast.service import CheckResult
from tests.http.issuer import issuing


async def _found(issuer: Issuer) -> CheckResult:
    config = load_config({"oidc": [issuer]}, environ={})
    (finding,) = [one async for one in issuers(config)]
    return finding


async def test_an_issuer_whose_keys_can_be_had_is_fine() -> None:
    async with issuing(SystemClock()) as issuer:
        found = await _found(issuer.settings())
    assert (found.name, found.fine, found.message) == ("issuer", True, f"{issuer.url} has 1 keys")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"jwks_url": "http://127.0.0.1:1/keys"}, "oidc.keys could not connect"),
        ({"issuer": "http://127.0.0.1:1"}, "oidc.discovery could not connect"),
    ],
)
async def test_an_issuer_that_can_not_be_reached_is_a_fault(change: dict[str, str], words: str) -> None:
    async with issuing(SystemClock()) as issuer:
        found = await _found(issuer.settings(**change))
    assert not found.fine
    assert words in found.message
    assert "jwks_url" in found.remedy


async def test_an_issuer_without_a_usable_key_is_a_fault() -> None:
    async with issuing(SystemClock()) as issuer:
        issuer.keys = {}
        found = await _found(issuer.settings())
    assert not found.fine
    assert "gives no key" in found.message
