"""Tokens for a service account: signed, checked for real, kept, renewed early and by one."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from google.auth import jwt as google_jwt

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, ForbiddenError, InvalidError, ReauthRequiredError, RetryLaterError
from holdfast.providers.credentials import rsa_key
from holdfast.providers.google_calendar import CALENDAR_SCOPE
from holdfast.providers.google_oauth import ServiceAccount, ServiceAccountKey
from holdfast.providers.google_oauth.assertion import sign_assertion
from holdfast.simulators.google import EndTokens, InjectedFault, Restore, RevokeAccess
from tests.providers.provider_fixture import ALICE, HastyClock, Setting


def _asked(setting: Setting) -> int:
    return sum(call.path == "/token" for call in setting.google.calls)


def test_googles_own_library_accepts_our_assertion(setting: Setting) -> None:
    key = setting.key
    assertion = sign_assertion(key, ["a", "b"], subject=ALICE, now=SystemClock().now())
    private = load_pem_private_key(key.private_key.encode(), password=None)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    decode: Any = google_jwt.decode
    read = decode(assertion, certs=public, audience=key.token_uri)
    assert (read["iss"], read["sub"], read["scope"]) == (key.client_email, ALICE, "a b")
    assert read["exp"] - read["iat"] == 3_600


async def test_a_token_is_kept_and_renewed_five_minutes_before_its_end(
    setting: Setting, hasty: HastyClock
) -> None:
    tokens = setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)
    first = await tokens()
    hasty.tick(3_299)
    assert (await tokens(), _asked(setting)) == (first, 1)
    hasty.tick(2)
    assert await tokens() != first
    assert _asked(setting) == 2


async def test_however_many_wait_one_asks(setting: Setting) -> None:
    tokens = setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)
    got = await asyncio.gather(*(tokens() for _ in range(50)))
    assert (len(set(got)), _asked(setting)) == (1, 1)


async def test_one_who_gives_up_waiting_takes_nothing_from_the_others(setting: Setting) -> None:
    tokens = setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)
    impatient, patient = asyncio.ensure_future(tokens()), asyncio.ensure_future(tokens())
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient
    assert (impatient.cancelled(), _asked(setting)) == (True, 1)


async def test_a_rejected_token_is_never_given_again(setting: Setting) -> None:
    tokens = setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)
    first = await tokens()
    renewed = await asyncio.gather(*(tokens(rejected=first) for _ in range(10)))
    assert first not in renewed
    assert (await tokens(rejected=first), len(set(renewed)), _asked(setting)) == (renewed[0], 1, 2)


async def test_a_token_with_life_left_is_used_while_the_endpoint_fails(
    setting: Setting, hasty: HastyClock
) -> None:
    tokens = setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)
    first = await tokens()
    hasty.tick(3_400)
    setting.google.inject(InjectedFault(count=100, status=503, path="/token"))
    assert await tokens() == first
    hasty.tick(200)
    with pytest.raises(RetryLaterError):
        await tokens()


async def test_a_failing_endpoint_is_asked_again_with_patience(setting: Setting, hasty: HastyClock) -> None:
    setting.google.inject(InjectedFault(count=2, status=500, path="/token"))
    assert await setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)()
    assert (_asked(setting), len(hasty.slept)) == (3, 2)


async def test_a_call_does_not_multiply_the_patience_of_its_tokens(
    setting: Setting, hasty: HastyClock
) -> None:
    setting.google.inject(InjectedFault(count=100, status=503, path="/token"))
    with pytest.raises(RetryLaterError):
        await setting.calendar().list_events("primary")
    assert (_asked(setting), len(hasty.slept)) == (4, 3)


async def test_a_revoked_person_needs_to_connect_again_and_works_when_restored(setting: Setting) -> None:
    tokens = setting.account.tokens([CALENDAR_SCOPE], subject=ALICE)
    await tokens()
    setting.google.run(EndTokens())
    setting.google.run(RevokeAccess(email=ALICE))
    with pytest.raises(ReauthRequiredError, match="expired or revoked"):
        await setting.calendar().list_events("primary")
    setting.google.run(Restore(email=ALICE))
    assert (await setting.calendar().list_events("primary")).items == []


async def test_a_person_nobody_knows_gets_no_token(setting: Setting) -> None:
    with pytest.raises(ReauthRequiredError, match="Invalid email or User ID"):
        await setting.account.tokens([CALENDAR_SCOPE], subject="mallory@hoge.jp")()


async def test_a_scope_the_administrator_did_not_delegate_is_forbidden(
    setting: Setting, hasty: HastyClock
) -> None:
    file = setting.google.service_account(
        "narrow", scopes=["https://www.googleapis.com/auth/calendar.readonly"]
    )
    key = ServiceAccountKey.parse(msgspec.json.encode(file))
    account = ServiceAccount(setting.session, key, clock=hasty)
    with pytest.raises(ForbiddenError, match="domain-wide delegation"):
        await account.tokens([CALENDAR_SCOPE], subject=ALICE)()


async def test_no_scope_is_an_invalid_request(setting: Setting) -> None:
    with pytest.raises(InvalidError, match="invalid_scope"):
        await setting.account.tokens([], subject=ALICE)()


async def test_a_key_that_is_not_the_accounts_signs_nothing(setting: Setting, hasty: HastyClock) -> None:
    other = setting.google.service_account("other")
    file = setting.key_file | {"private_key": other["private_key"]}
    account = ServiceAccount(setting.session, ServiceAccountKey.parse(msgspec.json.encode(file)), clock=hasty)
    with pytest.raises(ReauthRequiredError, match="Invalid JWT Signature"):
        await account.tokens([CALENDAR_SCOPE])()


async def test_a_machine_whose_clock_is_wrong_is_told_so(setting: Setting) -> None:
    clock = HastyClock()
    clock.tick(2 * 24 * 3_600)
    account = ServiceAccount(setting.session, setting.key, clock=clock)
    with pytest.raises(ReauthRequiredError, match="iat and exp"):
        await account.tokens([CALENDAR_SCOPE])()


async def test_neither_key_nor_token_is_shown_or_logged(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await setting.account.grant([CALENDAR_SCOPE], subject=ALICE)
    setting.google.run(RevokeAccess(email=ALICE))
    with pytest.raises(ReauthRequiredError) as raised:
        await setting.account.grant([CALENDAR_SCOPE], subject=ALICE)
    told = f"{setting.key!r} {answer!r} {raised.value!r} {caplog.text}"
    assert answer.access_token not in told
    assert "PRIVATE KEY" not in told
    assert "eyJ" not in told


def test_a_key_file_that_is_none_is_named(tmp_path: Path, setting: Setting) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        ServiceAccountKey.read(tmp_path / "missing.json")
    with pytest.raises(ConfigError, match="no service account key"):
        ServiceAccountKey.parse(b'{"type": "service_account"}')
    with pytest.raises(ConfigError, match="authorized_user"):
        ServiceAccountKey.parse(msgspec.json.encode(setting.key_file | {"type": "authorized_user"}))


def test_a_private_key_of_another_kind_is_refused(setting: Setting) -> None:
    pem = (
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    )
    for text, why in ((pem, "not an RSA key"), ("scribble", "no PEM key")):
        key = ServiceAccountKey.parse(msgspec.json.encode(setting.key_file | {"private_key": text}))
        with pytest.raises(ConfigError, match=why) as raised:
            rsa_key(key.private_key, key.client_email)
        assert text not in str(raised.value)
