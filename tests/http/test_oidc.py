"""Identity tokens: who is let in by whom, and that nothing hostile is, with a real issuer of keys."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from holdfast.config import IssuerGrant
from holdfast.errors import RetryLaterError, UnverifiedError
from holdfast.kit.access.oidc import TOKEN_BYTES_MAX, Oidc
from holdfast.kit.access.oidc_keys import KeyPolicy, parse_keys
from holdfast.model import Caller
from holdfast.runtime.issuers import key_fetcher
from holdfast.testing import ManualClock
from tests.http.issuer import AUDIENCE, StandIn, issuing, unsigned


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[StandIn]:
    async with issuing(clock) as made:
        yield made


def _oidc(issuer: StandIn, **settings: Any) -> Oidc:
    clock = issuer.clock
    return Oidc([issuer.settings(**settings)], lambda one: key_fetcher(one, clock=clock), clock=clock)


async def _caller(oidc: Oidc, token: str) -> Caller:
    return oidc.caller(await oidc.verify(token))


async def test_a_verified_address_gets_its_role(issuer: StandIn) -> None:
    caller = await _caller(_oidc(issuer), issuer.token())
    assert (caller.user_id, caller.roles, caller.service) == (
        "oidc:timer@project.iam.example",
        {"-": "admin"},
        False,
    )


async def test_a_subject_gets_its_role_in_its_tenant(issuer: StandIn) -> None:
    caller = await _caller(_oidc(issuer), issuer.token(sub="s-acme", email=None))
    assert (caller.user_id, caller.roles) == ("oidc:s-acme", {"acme": "viewer"})


async def test_addresses_are_the_same_in_any_case(issuer: StandIn) -> None:
    assert (await _caller(_oidc(issuer), issuer.token(email="Timer@Project.iam.example"))).roles == {
        "-": "admin"
    }


async def test_one_of_several_audiences_is_enough(issuer: StandIn) -> None:
    caller = await _caller(_oidc(issuer), issuer.token(aud=["https://other.example", AUDIENCE]))
    assert caller.roles == {"-": "admin"}


async def test_a_service_account_can_be_the_service_itself(issuer: StandIn) -> None:
    service = IssuerGrant(subject="1067", role="service")
    caller = await _caller(_oidc(issuer, allow=(service,)), issuer.token())
    assert (caller.service, caller.roles) == (True, {})


def _bare(issuer: StandIn, header: dict[str, Any]) -> str:
    return unsigned(header, issuer.claims())


def _coded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _cut(token: str) -> str:
    head, claims, signature = token.split(".")
    return f"{head}.{claims}.{signature[:-8]}AAAAAAAA"


def _swapped(issuer: StandIn) -> str:
    """The signature of one token under the claims of another."""
    head, _, signature = issuer.token(sub="nobody").split(".")
    return f"{head}.{issuer.token().split('.')[1]}.{signature}"


_HOUR = 3_600
_HEAD = b'{"alg":"RS256","kid":"k1"}'
HOSTILE: dict[str, Callable[[StandIn], str]] = {
    "no algorithm": lambda i: _bare(i, {"alg": "none", "kid": "k1", "typ": "JWT"}),
    "no algorithm, spelled oddly": lambda i: _bare(i, {"alg": "nOnE", "kid": "k1", "typ": "JWT"}),
    "RS256 without a signature": lambda i: _bare(i, {"alg": "RS256", "kid": "k1", "typ": "JWT"}),
    "HS256 signed with the public key": lambda i: i.forged_with_the_public_key(),
    "a key of another's": lambda i: i.token(kid="k9"),
    "no key id": lambda i: _bare(i, {"alg": "RS256"}),
    "a key given along": lambda i: i.token(header={"jwk": {"kty": "RSA"}, "kid": "k9"}),
    "ended": lambda i: i.token(exp=int(i.clock.now().timestamp()) - 31),
    "without an end": lambda i: i.token(exp=None),
    "an end in words": lambda i: i.token(exp="tomorrow"),
    "not good yet": lambda i: i.token(nbf=int(i.clock.now().timestamp()) + _HOUR),
    "made in the future": lambda i: i.token(iat=int(i.clock.now().timestamp()) + _HOUR),
    "for another audience": lambda i: i.token(aud="https://other.example"),
    "for an audience that begins alike": lambda i: i.token(aud=AUDIENCE + ".evil"),
    "for no audience": lambda i: i.token(aud=[]),
    "without an audience": lambda i: i.token(aud=None),
    "of another issuer": lambda i: i.token(iss="https://other.example"),
    "of the issuer with a slash": lambda i: i.token(iss=i.url + "/"),
    "without a subject": lambda i: i.token(sub=None),
    "an empty subject": lambda i: i.token(sub="", email=None),
    "a header that must be understood": lambda i: i.token(header={"crit": ["kid"]}),
    "another type of token": lambda i: i.token(header={"typ": "at+jwt"}),
    "a changed signature": lambda i: _cut(i.token()),
    "claims under another's signature": _swapped,
    "garbage": lambda i: "a.b.c",
    "dots": lambda i: "..",
    "bytes": lambda i: "\xff.\xff.\xff",
    "no object": lambda i: _bare(i, {"alg": "RS256"}).replace(".", ".W10.", 1),
    "nested deeply": lambda i: ".".join(map(_coded, (_HEAD, b'{"a":' + b"[" * 4_000, b"x"))),
    "too long": lambda i: i.token(pad="x" * TOKEN_BYTES_MAX),
}
# Who these are is proved; only that the settings name them is missing.
UNLISTED: dict[str, Callable[[StandIn], str]] = {
    "an address nobody verified": lambda i: i.token(email_verified=False),
    "an address that says nothing of it": lambda i: i.token(email_verified=None),
    "an address nobody let in": lambda i: i.token(email="eve@project.iam.example"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_is_hostile_is_refused(issuer: StandIn, kind: str) -> None:
    with pytest.raises(UnverifiedError):
        await _oidc(issuer).verify(HOSTILE[kind](issuer))


@pytest.mark.parametrize("kind", UNLISTED)
async def test_an_identity_that_the_settings_do_not_name_has_no_role(issuer: StandIn, kind: str) -> None:
    caller = await _caller(_oidc(issuer), UNLISTED[kind](issuer))
    assert (caller.roles, caller.service, caller.user_id in (None, "")) == ({}, False, False)


async def test_what_can_not_be_good_never_asks_for_keys(issuer: StandIn) -> None:
    oidc = _oidc(issuer)
    needless = [kind for kind in HOSTILE if kind not in _SIGNED]
    for kind in needless:
        with pytest.raises(UnverifiedError):
            await oidc.verify(HOSTILE[kind](issuer))
    assert issuer.asked == 0


# These are well-formed up to their signature, so that only a key can tell.
_SIGNED = {
    "a key of another's", "a key given along", "a changed signature", "claims under another's signature",
    "RS256 without a signature",
}  # fmt: skip


async def test_clocks_may_differ_a_little(issuer: StandIn) -> None:
    now = int(issuer.clock.now().timestamp())
    assert (await _caller(_oidc(issuer), issuer.token(exp=now - 29, iat=now - 100))).roles == {"-": "admin"}
    assert (await _caller(_oidc(issuer), issuer.token(iat=now + 29))).roles == {"-": "admin"}


def test_an_rsa_key_below_2048_bits_counts_as_none() -> None:
    def entry(bits: int) -> dict[str, Any]:
        key = rsa.generate_private_key(public_exponent=65_537, key_size=bits).public_key().public_numbers()
        texts = {name: base64.urlsafe_b64encode(number.to_bytes(bits // 8)).decode().rstrip("=")
                 for name, number in (("n", key.n), ("e", key.e))}  # fmt: skip
        return {"kty": "RSA", "kid": f"k{bits}", "use": "sig", **texts}

    assert list(parse_keys({"keys": [entry(1_024), entry(2_048)]})) == ["k2048"]


async def test_keys_are_asked_for_once_however_many_come_at_once(issuer: StandIn) -> None:
    oidc, token = _oidc(issuer), issuer.token()
    issuer.hold.clear()
    waiting = [asyncio.create_task(_caller(oidc, token)) for _ in range(50)]
    await issuer.was_asked.wait()
    issuer.hold.set()
    assert {caller.user_id for caller in await asyncio.gather(*waiting)} == {"oidc:timer@project.iam.example"}
    assert issuer.asked == 1


async def test_unknown_keys_do_not_make_us_ask_again_and_again(issuer: StandIn, clock: ManualClock) -> None:
    oidc = _oidc(issuer)
    for number in range(20):
        with pytest.raises(UnverifiedError):
            await oidc.verify(issuer.token(kid=f"made-up-{number}"))
    assert issuer.asked == 1
    await clock.advance(KeyPolicy().ask_again_s)
    with pytest.raises(UnverifiedError):
        await oidc.verify(issuer.token(kid="made-up"))
    assert issuer.asked == 2


async def test_a_rotated_key_is_found_and_the_old_one_goes(issuer: StandIn, clock: ManualClock) -> None:
    oidc, old = _oidc(issuer), issuer.token()
    await oidc.verify(old)
    issuer.rotate("k2")
    await clock.advance(KeyPolicy().ask_again_s)
    assert (await _caller(oidc, issuer.token(kid="k2"))).roles == {"-": "admin"}
    with pytest.raises(UnverifiedError, match="a key that its issuer does not publish"):
        await oidc.verify(old)


async def test_known_keys_stay_good_while_the_issuer_is_away_but_not_for_ever(
    issuer: StandIn, clock: ManualClock
) -> None:
    oidc = _oidc(issuer)
    await oidc.verify(issuer.token())
    issuer.status = 503
    await clock.advance(KeyPolicy().usable_s - 1)
    assert (await _caller(oidc, issuer.token())).roles == {"-": "admin"}
    await clock.advance(KeyPolicy().ask_again_s)
    with pytest.raises(RetryLaterError, match="can't be had"):
        await oidc.verify(issuer.token())
    issuer.status = 200
    await clock.advance(KeyPolicy().ask_again_s)
    assert (await _caller(oidc, issuer.token())).roles == {"-": "admin"}


async def test_an_issuer_that_was_never_there_is_a_reason_to_try_later(
    issuer: StandIn, clock: ManualClock
) -> None:
    oidc = _oidc(issuer, jwks_url="http://127.0.0.1:1/keys")
    with pytest.raises(RetryLaterError):
        await oidc.verify(issuer.token())


async def test_a_description_of_another_issuer_is_not_believed(issuer: StandIn) -> None:
    real, issuer.url = issuer.url, "http://127.0.0.1:2"
    oidc = Oidc(
        [issuer.settings(issuer=f"{real}/")],
        lambda one: key_fetcher(one, clock=issuer.clock),
        clock=issuer.clock,
    )
    with pytest.raises(RetryLaterError):
        await oidc.verify(issuer.token(iss=f"{real}/"))
