"""Sign-ins on every engine: links that work once, the service's row in the same commit, local ends."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from holdfast.errors import (
    ConfigError,
    ForbiddenError,
    InvalidError,
    RetryLaterError,
    UnverifiedError,
    WrongTenantError,
)
from holdfast.kit.connections import (
    Connection,
    Connections,
    Consent,
    ConsentPurpose,
    FinishedConsent,
)
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Vault
from holdfast.model import SERVICE_ONLY, Document, Index, ProvidedId, document
from holdfast.store import Query, Store, Transaction, Write, put
from holdfast.testing import ManualClock
from tests.kit.fake_oauth_provider import BACK, FakeOAuthProvider, connect

CHAT = {"chat": "-100", "user": 42}


@document(
    "chat_accounts/{id}", id=ProvidedId(), tenant="tenant_id", indexes=[Index("chat")], access=SERVICE_ONLY
)
class ChatAccount(Document):
    id: str
    tenant_id: str
    chat: str
    email: str
    connection_id: str


DOCUMENTS: list[type[Document]] = [Connection, Consent, LeaseDocument, ChatAccount]


async def _store_account(tx: Transaction, finished: FinishedConsent) -> Sequence[Write]:
    one, chat = finished.connection, finished.payload["chat"]
    if one.name == "banned@hoge.jp":
        raise ForbiddenError("this account may not be connected")
    account = ChatAccount(
        id=f"{chat}~{one.account}", tenant_id=one.tenant_id, chat=chat, email=one.name, connection_id=one.id
    )
    await tx.get(ChatAccount, account.id)
    return [put(account)]


@pytest.fixture
def connections(kit_store: Store, vault: Vault, registrar: FakeOAuthProvider) -> Connections:
    purpose = ConsentPurpose(name="chat", provider="registrar", scopes=["calendar"], hook=_store_account)
    return Connections(kit_store, vault, {"registrar": registrar}, purposes={"chat": purpose})


async def _link(connections: Connections, store: Store, **more: Any) -> str:
    link = connections.link("chat", tenant_id="acme", redirect_uri=BACK, payload=CHAT, **more)
    await store.tenant("acme").commit(link.write)
    return link.token


async def _come_back(connections: Connections, token: str, browser: str = "b1") -> tuple[str, str]:
    opened = await connections.open_link(token, bound_to=browser)
    return opened.state, parse_qs(urlsplit(opened.url).query)["code"][0]


async def _accounts(store: Store) -> list[ChatAccount]:
    query = Query(ChatAccount).where("chat", "==", "-100")
    return [found.doc async for found in store.tenant("acme").scan(query)]


async def test_the_services_own_row_is_in_the_commit_that_finishes_a_consent(
    connections: Connections, kit_store: Store
) -> None:
    token = await _link(connections, kit_store, hint="ann@hoge.jp")
    made = await connections.finish(*await _come_back(connections, token), bound_to="b1")
    (account,) = await _accounts(kit_store)
    assert (account.chat, account.email, account.connection_id) == ("-100", "ann@hoge.jp", made.id)
    assert (made.purpose, made.payload, made.tenant_id) == ("chat", CHAT, "acme")


async def test_an_account_that_the_service_refuses_leaves_nothing(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider
) -> None:
    registrar.name = "banned@hoge.jp"
    token = await _link(connections, kit_store)
    with pytest.raises(ForbiddenError, match="may not be connected"):
        await connections.finish(*await _come_back(connections, token), bound_to="b1")
    assert await _accounts(kit_store) == []
    assert await connections.by_account("registrar", "1042") == []
    assert len(registrar.revoked) == 1
    # What another tenant has of the account must go on.
    await connect(connections, tenant_id="hoge")
    token = await _link(connections, kit_store)
    with pytest.raises(ForbiddenError):
        await connections.finish(*await _come_back(connections, token), bound_to="b1")
    assert len(registrar.revoked) == 1


async def test_of_many_who_open_a_link_one_gets_in_and_only_in_that_browser(
    connections: Connections, kit_store: Store
) -> None:
    token = await _link(connections, kit_store)
    tries = [connections.open_link(token, bound_to=f"b{n}") for n in range(6)]
    opened = await asyncio.gather(*tries, return_exceptions=True)
    (winner,) = [n for n, one in enumerate(opened) if not isinstance(one, BaseException)]
    others = [one for n, one in enumerate(opened) if n != winner]
    assert all(isinstance(one, UnverifiedError) for one in others)
    request: Any = opened[winner]
    (code,) = parse_qs(urlsplit(request.url).query)["code"]
    with pytest.raises(UnverifiedError, match="another browser"):
        await connections.finish(request.state, code, bound_to="stranger")
    made = await connections.finish(request.state, code, bound_to=f"b{winner}")
    assert made.status == "connected"


async def test_a_link_ends_after_ten_minutes_and_is_no_state(
    connections: Connections, kit_store: Store, clock: ManualClock
) -> None:
    token = await _link(connections, kit_store)
    with pytest.raises(UnverifiedError):
        await connections.finish(token, "code")
    started = await connections.start("registrar", scopes=[], redirect_uri=BACK, tenant_id="acme")
    with pytest.raises(UnverifiedError):
        await connections.open_link(started.state, bound_to="b1")
    clock.tick(599)
    late = await _link(connections, kit_store)
    await connections.open_link(token, bound_to="b1")
    clock.tick(600)
    for spent in (token, late, "never made"):
        with pytest.raises(UnverifiedError):
            await connections.open_link(spent, bound_to="b1")


async def test_a_stored_link_shows_no_token(connections: Connections, kit_store: Store) -> None:
    token = await _link(connections, kit_store)
    stored = await kit_store.tenant("acme").get(Consent, hashlib.sha256(token.encode()).hexdigest())
    assert stored is not None
    assert token not in f"{stored.doc!r} {msgspec.json.encode(stored.doc)!r}"


def test_what_no_service_declares_or_is_too_large_is_refused(connections: Connections) -> None:
    with pytest.raises(ConfigError, match="connects accounts for 'mail'"):
        connections.link("mail", redirect_uri=BACK)
    with pytest.raises(InvalidError, match="payload"):
        connections.link("chat", redirect_uri=BACK, payload={"chat": "x" * 5_000})


async def test_a_grant_ended_here_alone_is_not_told_and_has_no_tokens(
    connections: Connections, registrar: FakeOAuthProvider
) -> None:
    made = await connect(connections)
    ended = await connections.revoke(made.id, reason="left", at_provider=False)
    assert (ended.status, ended.reason, ended.access_token, ended.refresh_token) == (
        "revoked",
        "left",
        "",
        "",
    )
    assert (await connections.check(made.id)).status == "revoked"
    assert registrar.revoked == []


async def test_the_provider_is_told_by_the_last_tenant_that_has_the_account(
    connections: Connections, registrar: FakeOAuthProvider
) -> None:
    of = {tenant: await connect(connections, tenant_id=tenant) for tenant in ("acme", "hoge", "kyoto")}
    found = await connections.by_account("registrar", "1042")
    assert {one.id for one in found} == {one.id for one in of.values()}
    ended = await connections.revoke(of["acme"].id)
    assert (ended.refresh_token, registrar.revoked) == ("", [])
    assert await connections.token(of["hoge"].id)
    # However the last two end, at once, somebody tells.
    await asyncio.gather(connections.revoke(of["hoge"].id), connections.revoke(of["kyoto"].id))
    assert len(registrar.revoked) in (1, 2)


async def test_a_check_of_an_end_that_was_not_told_spares_who_connected_meanwhile(
    connections: Connections, registrar: FakeOAuthProvider
) -> None:
    made = await connect(connections)
    registrar.fault = RetryLaterError("answered 503")
    with pytest.raises(RetryLaterError):
        await connections.revoke(made.id)
    registrar.fault = None
    other = await connect(connections, tenant_id="hoge")
    assert (await connections.check(made.id)).refresh_token == ""
    assert registrar.revoked == []
    assert await connections.token(other.id)


async def test_no_tenants_handle_looks_up_an_account_elsewhere(
    connections: Connections, kit_store: Store, vault: Vault, registrar: FakeOAuthProvider
) -> None:
    await connect(connections)
    hoge = Connections(kit_store.tenant("hoge"), vault, {"registrar": registrar})
    with pytest.raises(WrongTenantError):
        await hoge.by_account("registrar", "1042")
