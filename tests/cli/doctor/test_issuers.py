"""`doctor` on issuers of identity tokens, with a real one to ask."""

from __future__ import annotations

import pytest

from holdfast.cli.checkup.issuers import issuers
from holdfast.clock import SystemClock
from holdfast.config import Issuer, load_config
from holdfast.service import CheckResult
from holdfast.simulators.identity import IdentitySimulator, RotateKeys
from tests.http.issuer import issuing


async def _found(issuer: Issuer) -> CheckResult:
    config = load_config({"oidc": [issuer]}, environ={})
    (finding,) = [one async for one in issuers(config)]
    return finding


async def test_an_issuer_whose_keys_can_be_had_is_fine() -> None:
    async with issuing(SystemClock()) as issuer:
        found = await _found(issuer.settings())
    assert (found.name, found.fine, found.message) == ("issuer", True, f"{issuer.url} has 1 key")


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


@pytest.mark.parametrize(
    ("settings", "public_url", "words"),
    [
        ({"client_secret": "s"}, "https://holdfast.example", "client_secret is set without client_id"),
        ({"client_id": "c"}, "", "no public URL"),
        ({"client_id": "c"}, "https://holdfast.example", "no authorization and token endpoints"),
        ({"client_id": "c", "issuer": "http://127.0.0.1:1"}, "https://holdfast.example", "could not connect"),
    ],
)
async def test_a_sign_in_that_is_half_configured_is_a_fault(
    settings: dict[str, str], public_url: str, words: str
) -> None:
    async with issuing(SystemClock()) as issuer:
        config = load_config(
            {"oidc": [issuer.settings(**settings)], "public_url": public_url or None}, environ={}
        )
        _, found = [one async for one in issuers(config)]
    assert (found.name, found.fine) == ("sign-in", False)
    assert words in found.message
    assert found.remedy


async def test_a_sign_in_that_can_work_tells_the_redirect_to_register() -> None:
    async with IdentitySimulator(clock=SystemClock()) as provider:
        issuer = Issuer(issuer=provider.url, client_id="c", name="Acme")
        config = load_config({"oidc": [issuer], "public_url": "https://holdfast.example/"}, environ={})
        keys, found = [one async for one in issuers(config)]
        assert (keys.fine, found.fine) == (True, True)
        assert "https://holdfast.example/sign-in/oidc/callback" in found.message
        provider.run(RotateKeys(bits=1024))
        keys, _ = [one async for one in issuers(config)]
        assert not keys.fine
        assert "2048" in keys.message
