"""People whom an issuer identifies: their pending sign-ins, sessions and memberships, on every engine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from yarl import URL

from holdfast.clock import SystemClock
from holdfast.config import Issuer, IssuerGrant
from holdfast.errors import ForbiddenError, UnverifiedError
from holdfast.kit.access import Roles, Session, Sessions, Setup, User, Users
from holdfast.kit.access.identities import Identities
from holdfast.kit.access.oidc import Identity, Oidc
from holdfast.kit.connections import Consent
from holdfast.kit.vault import new_key
from holdfast.model import Caller, Document
from holdfast.runtime.issuers import key_fetcher
from holdfast.simulators.identity import ChooseNext, IdentitySimulator, RegisterClient, RegisterPerson
from holdfast.store import Query, Store, create, patch
from holdfast.testing import ManualClock
from tests.examples.clubs import ClubMember
from tests.kit.access.sign_in_worker import CLIENT_ID, PUBLIC_URL, sign_in_on

ROOT = Path(__file__).parents[3]
ANN = "ann@acme.example"
OWNER = IssuerGrant(email="root@acme.example", role="owner")
ISSUER = Issuer(issuer="https://id.example", client_id=CLIENT_ID, allow=(OWNER,))
DOCUMENTS: list[type[Document]] = [ClubMember, Consent, Session, Setup, User]


def _identities(store: Store, *issuers: Issuer) -> Identities:
    clock = store.clock
    return Identities(store, Oidc(issuers, lambda one: key_fetcher(one, clock=clock), clock=clock))


def _identity(email: str = ANN, subject: str = "1042") -> Identity:
    return Identity(issuer=ISSUER.issuer, subject=subject, email=email)


async def _begin(store: Store, identities: Identities, identity: Identity) -> str:
    user = await identities.user(identity)
    caller = await identities.caller(identity, user)
    cookie, write = Sessions(store).write_identity(identity, caller, user=user)
    await store.privileged().commit(write)
    return cookie


async def test_a_session_has_the_roles_of_the_settings_and_of_the_user_of_that_name(
    kit_store: Store, clock: ManualClock
) -> None:
    identities = _identities(kit_store, ISSUER)
    sessions = Sessions(kit_store, identities)
    people = ("root@acme.example", ANN)
    cookies = [await _begin(kit_store, identities, _identity(email)) for email in people]
    found = await sessions.verify(cookies[0])
    assert found is not None
    assert (found.user_id, found.roles) == ("oidc:root@acme.example", {"-": "owner"})
    ann = await sessions.verify(cookies[1])
    assert ann is not None
    assert (ann.roles, ann.email, ann.identity) == ({}, ANN, True)
    await Users(kit_store).add(ANN, role="developer", tenant_id="acme")
    ann = await sessions.verify(cookies[1])
    assert ann is not None
    assert ann.roles == {"acme": "developer"}
    await Users(kit_store).end_sessions(ANN)
    assert await sessions.verify(cookies[1]) is None
    assert await Sessions(kit_store, _identities(kit_store)).verify(cookies[0]) is None, "no such issuer now"
    clock.tick(13 * 3_600)
    assert await sessions.verify(cookies[0]) is None, "idle too long"


async def test_a_disabled_user_is_refused_whoever_vouches_for_them(kit_store: Store) -> None:
    identities, users = _identities(kit_store, ISSUER), Users(kit_store)
    cookie = await _begin(kit_store, identities, _identity())
    await users.add(ANN, role="viewer")
    await users.disable(ANN)
    assert await Sessions(kit_store, identities).verify(cookie) is None
    with pytest.raises(ForbiddenError, match="disabled"):
        await identities.caller(_identity(), await identities.user(_identity()))


async def test_an_issuer_for_machines_does_not_speak_for_users(kit_store: Store) -> None:
    await Users(kit_store).add(ANN, role="owner")
    machines = Issuer(issuer=ISSUER.issuer, audiences=("https://holdfast.example",))
    assert await _identities(kit_store, machines).user(_identity()) is None
    assert await _identities(kit_store, ISSUER).user(_identity(email="")) is None


@pytest.mark.parametrize(
    ("issuer", "identity", "user_id"),
    [
        ({}, _identity(), f"oidc:{ANN}"),
        ({}, _identity(email=""), "oidc:1042"),
        ({"user_id": "subject", "user_prefix": ""}, _identity(), "1042"),
        ({}, _identity(email="", subject="root@acme.example"), None),
        ({"user_id": "subject", "user_prefix": ""}, _identity(subject="user:ann"), None),
    ],
)
def test_a_person_has_one_id_that_nobody_else_can_have(
    issuer: dict[str, str], identity: Identity, user_id: str | None
) -> None:
    settings = Issuer(issuer=ISSUER.issuer, client_id=CLIENT_ID, **issuer)  # type: ignore[arg-type]
    oidc = Oidc([settings], lambda one: key_fetcher(one, clock=SystemClock()), clock=SystemClock())
    if user_id is None:
        with pytest.raises(UnverifiedError):
            oidc.caller(identity)
    else:
        assert oidc.caller(identity).user_id == user_id


async def test_one_person_has_a_role_in_each_tenant_of_theirs_and_none_elsewhere(kit_store: Store) -> None:
    roles, ann = Roles(kit_store, ClubMember), Caller(user_id="ann", roles={"b": "viewer"})
    assert await roles.tenants("ann") == []
    for club, role in (("a", "owner"), ("b", "admin"), ("-", "owner")):
        member = ClubMember(user_id="ann", club_id=club, role=role)  # type: ignore[arg-type]
        await kit_store.tenant(club).commit(create(member))
    entered = [(await roles.enter(ann, club)).roles.get(club) for club in ("a", "b", "c", "-")]
    assert entered == ["owner", "admin", None, None], "a service gives no role on the platform"
    assert await roles.tenants("ann") == ["a", "b"]
    await kit_store.tenant("b").commit(patch(ClubMember, "ann_b", changes={"status": "suspended"}))
    roles.forget("ann")
    assert (await roles.enter(ann, "b")).roles == {"b": "viewer"}, "what they have by themselves stays"
    token = Caller(user_id="ann", service=True)
    assert (await roles.enter(token, "a")).roles == {}, "memberships are people's"


@pytest.fixture
async def provider() -> AsyncIterator[IdentitySimulator]:
    async with IdentitySimulator(clock=SystemClock()) as made:
        made.run(RegisterPerson(email=ANN))
        callback = f"{PUBLIC_URL}/sign-in/oidc/callback"
        made.run(RegisterClient(client_id=CLIENT_ID, redirect_uris=(callback,)))
        yield made


async def test_of_two_processes_with_one_callback_one_signs_the_person_in(
    live_store: Store, kit_url: str, provider: IdentitySimulator
) -> None:
    key = new_key("k1")
    sign_in = sign_in_on(live_store, provider.url, key)
    callbacks: list[tuple[str, str, str]] = []
    async with aiohttp.ClientSession() as client:
        for number in range(8):
            browser = f"browser-{number}"
            url = await sign_in.start(provider.url, after="/console", browser=browser)
            provider.run(ChooseNext(email=ANN))
            async with client.get(URL(url, encoded=True), allow_redirects=False) as answer:
                query = parse_qs(urlsplit(answer.headers["location"]).query)
            callbacks.append((query["state"][0], query["code"][0], browser))
    pipe = asyncio.subprocess.PIPE
    arguments = (kit_url, provider.url, key, json.dumps(callbacks))
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.kit.access.sign_in_worker", *arguments, stdin=pipe, stdout=pipe,
            cwd=ROOT,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    finished = [state for out, _ in outputs for state in json.loads(out)]
    assert sorted(finished) == sorted(state for state, _, _ in callbacks)
    assert not (await live_store.privileged().query(Query(Consent).limit(1))).items
