"""Signing in to the console with an identity provider, over real HTTP, with the simulated provider."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from yarl import URL

from holdfast import console
from holdfast.config import Issuer, IssuerGrant
from holdfast.kit.access import COOKIE, Users
from holdfast.kit.access.sessions import csrf_of
from holdfast.kit.audit import AuditEvent
from holdfast.kit.connections import Consent
from holdfast.service import Service
from holdfast.simulators.identity import (
    ChooseNext,
    IdentitySimulator,
    RegisterClient,
    RegisterPerson,
    RotateKeys,
    SetSkew,
)
from holdfast.simulators.server import InjectedFault
from holdfast.store import Query, create
from holdfast.testing import ManualClock
from tests.examples.clubs import ClubMember
from tests.examples.clubs import service as clubs
from tests.http.server_harness import ServerHarness, echo_service, serving

PUBLIC_URL: Final = "http://holdfast.test"
CALLBACK: Final = f"{PUBLIC_URL}/sign-in/oidc/callback"
ANN, BOB, EVE = "ann@acme.example", "bob@acme.example", "eve@else.example"


class Lobby:
    """A server that people sign in to with the provider."""

    def __init__(self, harness: ServerHarness, provider: IdentitySimulator) -> None:
        self.harness, self.provider = harness, provider

    async def start(self, *, after: str = "/console", **more: Any) -> tuple[int, str, dict[str, str]]:
        """The status and location of the first redirect, and the cookie that came with it."""
        query = {"issuer": self.provider.url, "next": after}
        async with self.harness.client.get(
            f"/sign-in/oidc?{urlencode(query)}", allow_redirects=False, **more
        ) as got:
            cookies = {name: cookie.value for name, cookie in got.cookies.items()}
            return got.status, got.headers.get("location", await got.text()), cookies

    async def choose(self, location: str, email: str) -> str:
        """The path and query that the provider sends the browser back to."""
        self.provider.run(ChooseNext(email=email))
        async with self.harness.client.get(URL(location, encoded=True), allow_redirects=False) as got:
            assert got.status == 303, await got.text()
            assert got.headers["location"].startswith(f"{CALLBACK}?")
            return got.headers["location"].removeprefix(PUBLIC_URL)

    async def come_back(self, path: str, cookies: dict[str, str]) -> tuple[int, str, str]:
        """Status, location or text, and the session's cookie."""
        asked = URL(path, encoded=True)
        async with self.harness.client.get(asked, cookies=cookies, allow_redirects=False) as got:
            cookie = got.cookies[COOKIE].value if COOKIE in got.cookies else ""
            return got.status, got.headers.get("location", await got.text()), cookie

    async def sign_in(self, email: str, *, after: str = "/console") -> tuple[int, str, str]:
        _, location, cookies = await self.start(after=after)
        return await self.come_back(await self.choose(location, email), cookies)

    async def get(self, path: str, session: str) -> tuple[int, str]:
        cookie = {"cookie": f"{COOKIE}={session}"}
        async with self.harness.client.get(path, headers=cookie, allow_redirects=False) as got:
            return got.status, await got.text()

    async def post(self, path: str, session: str, body: dict[str, Any]) -> int:
        headers = {"cookie": f"{COOKIE}={session}", "x-csrf-token": csrf_of(session)}
        headers["sec-fetch-site"] = "same-origin"
        return (await self.harness.ask("POST", path, headers=headers, json=body))[0]


@contextlib.asynccontextmanager
async def lobby_of(
    home: Path, *, services: Sequence[Service] = (), clock: ManualClock | None = None, **more: Any
) -> AsyncIterator[Lobby]:
    clock = clock or ManualClock()
    async with IdentitySimulator(clock=clock) as provider:
        for email in (ANN, BOB, EVE):
            provider.run(RegisterPerson(email=email, name=email.partition("@")[0]))
        provider.run(RegisterClient(client_id="holdfast", secret="s3 cret", redirect_uris=(CALLBACK,)))
        settings: dict[str, Any] = {
            "issuer": provider.url, "client_id": "holdfast", "client_secret": "s3 cret", "name": "Acme",
            "allow": (IssuerGrant(email=ANN, role="admin"),),
        }  # fmt: skip
        async with serving(
            home, services=services or [echo_service()], more=console.routes, clock=clock,
            oidc=[Issuer(**settings | more)], public_url=PUBLIC_URL,
        ) as harness:  # fmt: skip
            yield Lobby(harness, provider)


@pytest.fixture
async def lobby(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Lobby]:
    async with lobby_of(tmp_path, clock=clock) as made:
        yield made


async def test_a_person_signs_in_and_goes_on_where_they_wanted_to(lobby: Lobby) -> None:
    _, page, _ = await lobby.harness.ask("GET", "/sign-in")
    assert "Sign in with Acme" in page
    status, location, session = await lobby.sign_in(ANN, after="/console/audit?x=é")
    assert (status, location) == (303, "/console/audit?x=%C3%A9")
    status, text = await lobby.get("/console/audit", session)
    assert status == 200
    assert ANN in text
    store = lobby.harness.runtime.store.tenant("-")
    events = (await store.query(Query(AuditEvent).order_by("-sequence").limit(1))).docs
    assert [(event.action, event.actor) for event in events] == [("session.began", f"oidc:{ANN}")]


async def test_the_request_carries_pkce_state_and_nonce_of_its_own(lobby: Lobby) -> None:
    starts = [await lobby.start() for _ in range(2)]
    asked = [parse_qs(urlsplit(location).query) for _, location, _ in starts]
    for query in asked:
        assert (query["response_type"], query["code_challenge_method"]) == (["code"], ["S256"])
        assert query["redirect_uri"] == [CALLBACK]
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name], name


async def test_a_user_named_by_their_address_has_the_users_role(lobby: Lobby) -> None:
    users = Users(lobby.harness.runtime.store)
    await users.add(BOB, role="viewer", tenant_id="acme")
    _, _, session = await lobby.sign_in(BOB)
    assert (await lobby.get("/console/runs", session))[0] == 200
    assert (await lobby.get("/console/audit", session))[0] == 403
    await users.disable(BOB)
    assert (await lobby.get("/console/runs", session))[0] == 303, "signed out at once"
    status, text, session = await lobby.sign_in(BOB)
    assert (status, session) == (403, "")
    assert f"{BOB} is disabled" in text.lower()


async def test_an_address_that_nobody_verified_is_no_users(lobby: Lobby) -> None:
    await Users(lobby.harness.runtime.store).add(BOB, role="owner")
    lobby.provider.run(RegisterPerson(email=BOB, verified=False))
    status, _, session = await lobby.sign_in(BOB)
    assert (status, session) == (403, "")


async def test_somebody_unknown_is_told_what_to_do(lobby: Lobby) -> None:
    status, text, session = await lobby.sign_in(EVE)
    assert (status, session) == (403, "")
    assert "is not known here; ask an administrator" in text


async def test_somebody_without_a_role_comes_in_where_a_service_has_memberships(tmp_path: Path) -> None:
    async with lobby_of(tmp_path, services=[clubs]) as lobby:
        _, _, session = await lobby.sign_in(EVE)
        assert (await lobby.get("/clubs/api/v1/me", session))[0] == 200
        assert (await lobby.get("/clubs/api/v1/clubs/acme/notes", session))[0] == 403
        member = ClubMember(user_id=f"oidc:{EVE}", club_id="acme", role="viewer")
        await lobby.harness.runtime.store.tenant("acme").commit(create(member))
        assert (await lobby.get("/clubs/api/v1/clubs/acme/notes", session))[0] == 200
        assert (await lobby.get("/console/runs", session))[0] == 200, "in the tenant they belong to"


async def test_a_member_of_two_tenants_chooses_one_and_stays_there(tmp_path: Path) -> None:
    async with lobby_of(tmp_path, services=[clubs]) as lobby:
        for club in ("acme", "other"):
            member = ClubMember(user_id=f"oidc:{EVE}", club_id=club, role="viewer")
            await lobby.harness.runtime.store.tenant(club).commit(create(member))
        _, _, session = await lobby.sign_in(EVE)
        for club in ("acme", "other"):
            status, text = await lobby.get(f"/console/runs?tenant={club}", session)
            assert status == 200
            choices = re.findall(r'<option value="([^"]+)"', text)
            assert [one for one in choices if one in ("acme", "other")] == choices == ["acme", "other"]
            assert f'href="/console/deliveries?tenant={club}"' in text, "the navigation stays in that tenant"
        assert (await lobby.get("/console/runs?tenant=third", session))[0] == 403


async def test_a_sign_in_is_finished_once_and_by_the_browser_that_began_it(lobby: Lobby) -> None:
    _, location, cookies = await lobby.start()
    path = await lobby.choose(location, ANN)
    status, text, session = await lobby.come_back(path, {"holdfast_sign_in": "x" * 43})
    assert (status, session) == (401, "")
    assert "started in another browser" in text
    answers = await asyncio.gather(*(lobby.come_back(path, cookies) for _ in range(5)))
    assert sorted(status for status, _, _ in answers) == [303, 401, 401, 401, 401]
    assert not (await lobby.harness.runtime.store.privileged().query(Query(Consent).limit(1))).items


async def test_a_sign_in_ends_after_ten_minutes(lobby: Lobby, clock: ManualClock) -> None:
    _, location, cookies = await lobby.start()
    path = await lobby.choose(location, ANN)
    clock.tick(600)
    assert (await lobby.come_back(path, cookies))[0] == 401


async def test_a_code_of_another_sign_in_is_refused_by_its_nonce_and_verifier(lobby: Lobby) -> None:
    _, first, cookies = await lobby.start()
    _, second, _ = await lobby.start()
    mine, theirs = await lobby.choose(first, ANN), await lobby.choose(second, BOB)
    code = parse_qs(urlsplit(theirs).query)["code"][0]
    state = parse_qs(urlsplit(mine).query)["state"][0]
    swapped = f"/sign-in/oidc/callback?{urlencode({'code': code, 'state': state})}"
    status, text, session = await lobby.come_back(swapped, cookies)
    assert (status, session) == (401, "")
    assert "did not accept the sign-in (invalid_grant)" in text


async def test_somebody_who_declines_is_back_at_the_form(lobby: Lobby) -> None:
    status, text, session = await lobby.sign_in("")
    assert (status, session) == (401, "")
    assert "You were not signed in" in text


@pytest.mark.parametrize("path", ["/.well-known", "/token", "/keys"])
async def test_a_provider_that_is_down_is_no_fault_of_the_person(lobby: Lobby, path: str) -> None:
    lobby.provider.inject(InjectedFault(path=path, status=503, count=100))
    status, location, cookies = await lobby.start()
    if path != "/.well-known":
        status, location, _ = await lobby.come_back(await lobby.choose(location, ANN), cookies)
    assert status == 503
    assert "be reached now" in location


async def test_a_wrong_client_secret_is_not_the_persons_fault_either(tmp_path: Path) -> None:
    async with lobby_of(tmp_path, client_secret="old") as lobby:
        status, _, session = await lobby.sign_in(ANN)
        assert (status, session) == (503, "")


@pytest.mark.parametrize("skew_s", [3_600, -3_600])
async def test_clocks_that_differ_are_told(lobby: Lobby, skew_s: float) -> None:
    lobby.provider.run(SetSkew(seconds=skew_s))
    status, text, session = await lobby.sign_in(ANN)
    assert (status, session) == (401, "")
    assert "clock" in text


async def test_a_short_key_signs_nobody_in(lobby: Lobby) -> None:
    lobby.provider.run(RotateKeys(bits=1024))
    status, _, session = await lobby.sign_in(ANN)
    assert (status, session) == (503, "")


async def test_signing_out_everywhere_ends_every_session_of_the_person_alone(tmp_path: Path) -> None:
    async with lobby_of(tmp_path, services=[clubs]) as lobby:
        anns = [(await lobby.sign_in(ANN))[2] for _ in range(2)]
        _, _, eves = await lobby.sign_in(EVE)
        await Users(lobby.harness.runtime.store).add("eve", role="owner", created_by="somebody else")
        _, page = await lobby.get("/console/you", eves)
        assert f"oidc:{EVE}" in page, "themselves, not the user whose name the provider calls them by"
        assert "somebody else" not in page
        assert await lobby.post("/sign-in/password", anns[0], {"current": "x", "password": "y" * 20}) == 422
        assert await lobby.post("/sign-out", anns[0], {"everywhere": True}) == 200
        found = [(await lobby.get("/clubs/api/v1/me", one))[0] for one in (*anns, eves)]
        assert found == [401, 401, 200]


async def test_an_issuer_that_nobody_set_up_is_not_asked(lobby: Lobby) -> None:
    async with lobby.harness.client.get(
        "/sign-in/oidc?issuer=https://evil.example", allow_redirects=False
    ) as got:
        assert got.status == 404


async def test_without_its_own_address_the_console_offers_no_provider(tmp_path: Path) -> None:
    issuer = Issuer(issuer="https://id.example", client_id="holdfast")
    async with serving(tmp_path, more=console.routes, oidc=[issuer]) as harness:
        _, page, _ = await harness.ask("GET", "/sign-in")
        assert "Sign in with" not in page
