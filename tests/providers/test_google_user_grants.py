"""Grants of people: consent, code, refresh and revocation, against the simulated Google over HTTP."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from google.auth.exceptions import RefreshError
from google.auth.transport import _http_client
from google.oauth2.credentials import Credentials

from holdfast.errors import ConfigError, ForbiddenError, InvalidError, ReauthRequiredError, RetryLaterError
from holdfast.providers.google_calendar import CALENDAR_SCOPE, GoogleCalendar
from holdfast.providers.google_oauth import OAuthClient, UserGrant, UserGrants
from holdfast.simulators.google import GiveConsent, InjectedFault, RevokeGrant
from tests.providers.provider_fixture import ALICE, BOB, HastyClock, Setting

BACK = "https://app.example/back"
# The pair that RFC 7636 gives in its appendix B.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def client_of(setting: Setting) -> OAuthClient:
    return OAuthClient.parse(msgspec.json.encode(setting.google.oauth_client(redirect_uris=[BACK])))


@pytest.fixture
def client(setting: Setting) -> OAuthClient:
    return client_of(setting)


@pytest.fixture
def grants(setting: Setting, client: OAuthClient, hasty: HastyClock) -> UserGrants:
    return UserGrants(setting.session, client, clock=hasty)


async def visit(setting: Setting, grants: UserGrants, **words: Any) -> dict[str, str]:
    """What a person brings back from the page of consent."""
    asked = {"state": "s1", "challenge": CHALLENGE, "redirect_uri": BACK, "scopes": [CALENDAR_SCOPE]}
    async with setting.session.get(grants.authorize_url(**asked | words), allow_redirects=False) as page:
        if page.status != 302:
            raise LookupError(await page.text())
        place = urlsplit(page.headers["Location"])
    assert f"{place.scheme}://{place.netloc}{place.path}" == BACK
    return {name: values[0] for name, values in parse_qs(place.query).items()}


async def grant(setting: Setting, grants: UserGrants, *, hint: str = ALICE) -> UserGrant:
    brought = await visit(setting, grants, hint=hint)
    return await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)


async def _events(setting: Setting, token: str) -> list[Any]:
    async def tokens(*, rejected: str = "") -> str:
        return token

    calendar = GoogleCalendar(
        setting.session, tokens, clock=setting.clock, base_url=setting.google.calendar_url
    )
    return list((await calendar.list_events("primary")).items)


async def test_who_consents_is_let_in_under_their_own_name(setting: Setting, grants: UserGrants) -> None:
    setting.event(BOB, summary="Bob's own")
    brought = await visit(setting, grants, hint=BOB)
    assert brought["state"] == "s1"
    given = await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)
    assert (given.name, given.scopes, given.expires_in_s) == (BOB, (CALENDAR_SCOPE,), 3_600.0)
    assert re.fullmatch(r"[0-9]{21}", given.account)
    assert given.refresh_token
    assert [event.summary for event in await _events(setting, given.access_token)] == ["Bob's own"]


async def test_a_refresh_brings_a_new_token_for_the_same_person(setting: Setting, grants: UserGrants) -> None:
    first = await grant(setting, grants)
    second = await grants.refresh(first.refresh_token)
    assert second.access_token not in ("", first.access_token)
    assert (second.refresh_token, second.account) == ("", "")
    assert await _events(setting, second.access_token) == []


async def test_googles_own_library_refreshes_at_the_simulator_and_hears_of_the_end(
    setting: Setting, grants: UserGrants, client: OAuthClient
) -> None:
    given = await grant(setting, grants)
    make: Any = Credentials
    credentials = make(
        None, refresh_token=given.refresh_token, token_uri=client.token_uri, client_id=client.client_id,
        client_secret=client.client_secret,
    )  # fmt: skip
    request: Any = _http_client.Request
    await asyncio.to_thread(credentials.refresh, request())
    assert await _events(setting, credentials.token) == []
    setting.google.run(RevokeGrant(email=ALICE))
    with pytest.raises(RefreshError, match="invalid_grant"):
        await asyncio.to_thread(credentials.refresh, request())


async def test_a_code_works_once_and_brought_twice_ends_the_grant(
    setting: Setting, grants: UserGrants
) -> None:
    brought = await visit(setting, grants, hint=ALICE)
    given = await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)
    with pytest.raises(ReauthRequiredError, match="invalid_grant"):
        await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)
    with pytest.raises(ReauthRequiredError, match="expired or revoked"):
        await grants.refresh(given.refresh_token)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ({"verifier": "x" * 43}, ReauthRequiredError),
        ({"verifier": ""}, ReauthRequiredError),
        ({"redirect_uri": "https://app.example/elsewhere"}, InvalidError),
    ],
    ids=["another verifier", "no verifier", "another address"],
)
async def test_a_code_is_good_only_for_who_asked(
    setting: Setting, grants: UserGrants, words: dict[str, str], fault: type[Exception]
) -> None:
    brought = await visit(setting, grants, hint=ALICE)
    with pytest.raises(fault):
        await grants.exchange(brought["code"], **{"verifier": VERIFIER, "redirect_uri": BACK} | words)


async def test_a_code_ends_after_ten_minutes(setting: Setting, grants: UserGrants, hasty: HastyClock) -> None:
    brought = await visit(setting, grants, hint=ALICE)
    hasty.tick(601)
    with pytest.raises(ReauthRequiredError):
        await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)


async def test_a_person_may_grant_less_or_nothing(setting: Setting, grants: UserGrants) -> None:
    other = "https://www.googleapis.com/auth/spreadsheets"
    setting.google.run(GiveConsent(email=ALICE, scopes=[CALENDAR_SCOPE]))
    brought = await visit(setting, grants, scopes=[CALENDAR_SCOPE, other])
    given = await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)
    assert given.scopes == (CALENDAR_SCOPE,)
    setting.google.run(GiveConsent(allow=False))
    assert await visit(setting, grants) == {"error": "access_denied", "state": "s1"}


async def test_nobody_is_sent_to_an_address_the_client_does_not_have(
    setting: Setting, grants: UserGrants
) -> None:
    with pytest.raises(LookupError, match="redirect_uri_mismatch"):
        await visit(setting, grants, redirect_uri="https://evil.example/")


async def test_a_wrong_secret_is_named_as_what_to_fix(
    setting: Setting, client: OAuthClient, hasty: HastyClock
) -> None:
    wrong = UserGrants(setting.session, msgspec.structs.replace(client, client_secret="x"), clock=hasty)
    with pytest.raises(ForbiddenError, match="its secret is wrong"):
        await wrong.refresh("1//0x")


async def test_a_revoked_grant_ends_its_tokens_and_revoking_again_is_fine(
    setting: Setting, grants: UserGrants
) -> None:
    given, other = await grant(setting, grants), await grant(setting, grants, hint=BOB)
    await grants.revoke(given.refresh_token)
    with pytest.raises(ReauthRequiredError):
        await _events(setting, given.access_token)
    with pytest.raises(ReauthRequiredError):
        await grants.refresh(given.refresh_token)
    await grants.revoke(given.refresh_token)
    assert await _events(setting, other.access_token) == []
    await grants.revoke(other.access_token)
    with pytest.raises(ReauthRequiredError):
        await grants.refresh(other.refresh_token)


async def test_a_failing_endpoint_is_asked_again_but_a_code_is_never_sent_twice(
    setting: Setting, grants: UserGrants
) -> None:
    given = await grant(setting, grants)
    setting.google.inject(InjectedFault(count=2, status=503, path="/token"))
    assert (await grants.refresh(given.refresh_token)).access_token
    brought = await visit(setting, grants, hint=ALICE)
    setting.google.inject(InjectedFault(status=503, path="/token", late=True))
    before = len(setting.google.calls)
    with pytest.raises(RetryLaterError):
        await grants.exchange(brought["code"], verifier=VERIFIER, redirect_uri=BACK)
    assert len(setting.google.calls) == before + 1


async def test_neither_secret_nor_token_is_shown_or_logged(
    setting: Setting, grants: UserGrants, client: OAuthClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    given = await grant(setting, grants)
    setting.google.run(RevokeGrant(email=ALICE))
    with pytest.raises(ReauthRequiredError) as raised:
        await grants.refresh(given.refresh_token)
    told = f"{client!r} {given!r} {raised.value!r} {caplog.text}"
    for secret in (client.client_secret, given.access_token, given.refresh_token):
        assert secret not in told


def test_a_client_file_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="neither `web` nor `installed`"):
        OAuthClient.parse(b'{"type": "service_account"}')
    with pytest.raises(ConfigError, match="client_secret"):
        OAuthClient.parse(b'{"installed": {"client_id": "a"}}')
    with pytest.raises(ConfigError, match="no OAuth client"):
        OAuthClient.parse(b"[]")
