"""Connections as operators meet them: how each stands, asking the provider, ending one; never a token."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest

from holdfast.kit.audit import AuditEvent
from holdfast.kit.connections import Connection
from holdfast.kit.connections.models import SEALED_TOKENS
from holdfast.kit.vault import Vault, new_key
from holdfast.simulators.google import InjectedFault, RevokeGrant
from holdfast.store import Query, patch, put
from tests.console.console_harness import ConsoleHarness, console
from tests.console.desk import connect, desk
from tests.providers.provider_fixture import ALICE, BOB, Setting, a_setting


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with a_setting() as made:
        yield made


@pytest.fixture
async def harness(tmp_path: Path, setting: Setting) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[desk(setting)]) as made:
        yield made


async def _stored(harness: ConsoleHarness, id: str, tenant_id: str = "-") -> Connection:
    found = await harness.runtime.store.tenant(tenant_id).get(Connection, id)
    assert found is not None
    return found.doc


async def _actions(harness: ConsoleHarness, tenant_id: str = "-") -> list[str]:
    page = await harness.runtime.store.tenant(tenant_id).query(Query(AuditEvent).order_by("sequence"))
    return [one.action for one in page.docs if one.action == "connection.revoked" and one.outcome == "done"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_connections_are_listed_by_state_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, setting: Setting, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    async with console(tmp_path, services=[desk(setting)], store=url) as harness:
        alice, bob = await connect(harness, setting, ALICE), await connect(harness, setting, BOB)
        setting.google.run(RevokeGrant(email=BOB))
        ann = await harness.signed_in("ann")
        assert (await ann.act(f"/api/v1/connections/{bob.id}/check"))[0] == 200
        found = {
            state: re.findall(r'<tr data-key="(\w+)"', await ann.page(f"/console/connections?status={state}"))
            for state in ("all", "connected", "needs_reauth", "revoked")
        }
    assert found == {
        "all": [bob.id, alice.id], "connected": [alice.id], "needs_reauth": [bob.id], "revoked": [],
    }  # fmt: skip


async def test_no_page_and_no_answer_holds_anything_of_a_token(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE)
    token = await harness.runtime.connections.token(connection.id)
    ann = await harness.signed_in("ann")
    said = [
        await ann.page(path)
        for path in (
            "/console/connections", f"/console/connections/{connection.id}", "/api/v1/connections",
            f"/api/v1/connections/{connection.id}",
        )
    ]  # fmt: skip
    said.append((await ann.act(f"/api/v1/connections/{connection.id}/check"))[1])
    stored = await _stored(harness, connection.id)
    secrets = [token, "hf1.", *(sealed for name in SEALED_TOKENS if (sealed := getattr(stored, name)))]
    assert len(secrets) >= 4
    for text in said:
        assert ALICE in text
        assert not [secret for secret in secrets if secret in text]


async def test_a_connection_shows_what_was_granted_and_what_is_in_the_way(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE)
    changes = {"asked": [*connection.scopes, "mail.read"], "reason": "503 <b>busy</b>", "failures": 3}
    await harness.runtime.store.tenant("-").commit(patch(Connection, connection.id, changes=changes))
    text = await (await harness.signed_in("ann")).page(f"/console/connections/{connection.id}")
    assert re.findall(r"<li data-key=\"([^\"]+)\">.*?tone-\w+\">([^<]+)<", text) == [
        (connection.scopes[0], "granted"),
        ("mail.read", "not granted"),
    ]
    assert "503 &lt;b&gt;busy&lt;/b&gt;" in text


async def test_a_revoked_grant_is_ended_at_the_provider_forgotten_here_and_on_record(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE, tenant_id="acme")
    ann = await harness.signed_in("ann")
    page = f"/console/connections/{connection.id}?tenant=acme"
    found = re.search(r'data-act="([^"]+/revoke[^"]*)"', await ann.page(page))
    assert found is not None
    url = unescape(found[1])
    status, told, _ = await ann.act(url, {"reason": "left the firm"})
    assert (status, json.loads(told)["status"]) == (200, "revoked")
    stored = await _stored(harness, connection.id, "acme")
    assert [getattr(stored, name) for name in SEALED_TOKENS] == ["", "", ""]
    assert await _actions(harness, "acme") == ["connection.revoked"]
    text = await ann.page(page)
    assert "left the firm" in text
    assert "data-act" not in text.partition('id="connection"')[2]


async def test_of_many_who_revoke_at_once_one_is_on_record(harness: ConsoleHarness, setting: Setting) -> None:
    connection = await connect(harness, setting, ALICE)
    ann = await harness.signed_in("ann")
    csrf, url = {"x-csrf-token": await ann.csrf()}, f"/api/v1/connections/{connection.id}/revoke"
    done = await asyncio.gather(*(ann.ask("POST", url, json={}, headers=csrf) for _ in range(5)))
    assert {status for status, _, _ in done} == {200}
    assert await _actions(harness) == ["connection.revoked"]
    assert (await _stored(harness, connection.id)).refresh_token == ""


async def test_where_the_provider_cant_be_told_it_is_ended_here_and_told_by_a_check(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE)
    ann = await harness.signed_in("ann")
    setting.google.inject(InjectedFault(status=503, path="/revoke"))
    status, told, _ = await ann.act(f"/api/v1/connections/{connection.id}/revoke")
    assert status == 503
    assert "ended here, but google could not be told" in json.loads(told)["error"]["message"]
    assert (await _stored(harness, connection.id)).status == "revoked"
    page = f"/console/connections/{connection.id}"
    assert "revoked here, but not yet at" in await ann.page(page)
    assert (await ann.act(f"/api/v1/connections/{connection.id}/check"))[0] == 200
    assert (await _stored(harness, connection.id)).refresh_token == ""
    assert "revoked here, but not yet at" not in await ann.page(page)


async def test_what_cant_be_opened_or_asked_is_told_and_no_fault_of_ours(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE)
    store, other = harness.runtime.store.tenant("-"), Vault.from_settings(new_key("other"))
    sealed = other.field(Connection, "refresh_token").seal("t", connection.id)
    await store.commit(
        patch(Connection, connection.id, changes={"refresh_token": sealed, "access_token": sealed})
    )
    ann = await harness.signed_in("ann")
    for act in ("check", "revoke"):
        status, told, _ = await ann.act(f"/api/v1/connections/{connection.id}/{act}")
        assert status == 503, told
        assert sealed not in told
    stray = Connection(
        id="0" * 32, provider="elsewhere", account="1", access_token=sealed,
        connected_at=harness.runtime.clock.now(),
    )  # fmt: skip
    await store.commit(put(stray))
    for act in ("check", "revoke"):
        assert (await ann.act(f"/api/v1/connections/{stray.id}/{act}"))[0] == 503


async def test_only_administrators_see_connections_and_only_their_tenants(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE, tenant_id="acme")
    ben = await harness.signed_in("ben", role="admin", tenant_id="hoge")
    vic = await harness.signed_in("vic", role="viewer", tenant_id="acme")
    assert "Nothing is connected here." in await ben.page("/console/connections")
    await ben.page(f"/console/connections/{connection.id}", 404)
    await ben.page(f"/console/connections/{connection.id}?tenant=acme", 403)
    assert "needs admin" in await vic.page("/console/connections", 403)
    for act in ("check", "revoke"):
        assert (await ben.act(f"/api/v1/connections/{connection.id}/{act}"))[0] == 404
        assert (await vic.act(f"/api/v1/connections/{connection.id}/{act}"))[0] == 403
    assert (await _stored(harness, connection.id, "acme")).status == "connected"
    assert await _actions(harness, "acme") == []


async def test_a_grant_that_needs_its_owner_is_told_on_the_overview(
    harness: ConsoleHarness, setting: Setting
) -> None:
    connection = await connect(harness, setting, ALICE, tenant_id="acme")
    ann = await harness.signed_in("ann")
    assert "lapsed" not in await ann.page("/console")
    setting.google.run(RevokeGrant(email=ALICE))
    assert (await ann.act(f"/api/v1/connections/{connection.id}/check?tenant=acme"))[0] == 200
    told = re.search(r'<a href="([^"]+)">1 lapsed connection of acme</a>', await ann.page("/console"))
    assert told is not None
    assert ALICE in await ann.page(unescape(told[1]))
    vic = await harness.signed_in("vic", role="viewer", tenant_id="acme")
    assert "lapsed" not in await vic.page("/console")


async def test_what_is_asked_wrongly_is_told(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for path, status, said in (
        ("/console/connections?status=lost", 422, "status is one of"),
        ("/console/connections?cursor=x", 400, "not a cursor"),
        ("/console/connections/none", 404, "no connection"),
    ):
        assert said in await ann.page(path, status), path
