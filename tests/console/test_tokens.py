"""API tokens over HTTP and in the console: shown once, never with more than their creator has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.access import ApiTokens
from tests.console.console_harness import ConsoleHarness, Visitor, console


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path) as made:
        yield made


async def _create(visitor: Visitor, query: str = "", **body: Any) -> tuple[int, Any]:
    status, text, _ = await visitor.act(f"/api/v1/tokens{query}", {"name": "ci", "role": "viewer", **body})
    return status, json.loads(text)


async def test_a_token_is_shown_once_and_works_until_it_is_revoked(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann", role="admin", tenant_id="acme")
    status, created = await _create(ann, scopes=["runs:read"], expiresInS=3600)
    assert status == 200, created
    bearer = {"authorization": f"Bearer {created['token']}"}
    assert (await harness.visitor().ask("GET", "/api/v1/runs", headers=bearer))[0] == 200
    assert (await harness.visitor().ask("GET", "/api/v1/schedules", headers=bearer))[0] == 403
    (row,) = json.loads((await ann.ask("GET", "/api/v1/tokens"))[1])["items"]
    assert (row["name"], row["tenantId"], row["createdBy"]) == ("ci", "acme", "user:ann")
    page = await ann.page("/console/tokens")
    assert row["id"] in page
    assert 'name="scopes" data-list' in page
    assert created["token"] not in page
    assert f"/api/v1/tokens/{row['id']}/revoke" in page
    assert (await ann.act(f"/api/v1/tokens/{row['id']}/revoke"))[0] == 200
    assert (await harness.visitor().ask("GET", "/api/v1/runs", headers=bearer))[0] == 401
    assert 'data-act="/api/v1/tokens' not in await ann.page("/console/tokens")


async def test_nobody_gives_a_token_more_than_they_have(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann", role="admin", tenant_id="acme")
    assert (await _create(ann, role="owner"))[0] == 403
    assert (await _create(ann, role="service"))[0] == 403
    assert (await _create(ann, "?tenant=hoge"))[0] == 403
    vic = await harness.signed_in("vic", role="viewer", tenant_id="acme")
    assert (await _create(vic))[0] == 403
    await vic.page("/console/tokens", 403)


async def test_a_token_gives_no_scope_that_it_lacks(harness: ConsoleHarness) -> None:
    token = await ApiTokens(harness.runtime.store).create(
        "maker", role="admin", scopes=["tokens:*", "runs:read"]
    )
    bearer = {"authorization": f"Bearer {token}"}
    for scopes, expected in ((["*"], 403), (["runs:*"], 403), (["runs:read"], 200), (["tokens:create"], 200)):
        body = {"name": "ci", "role": "viewer", "scopes": scopes}
        status, text, _ = await harness.visitor().ask("POST", "/api/v1/tokens", json=body, headers=bearer)
        assert status == expected, text


async def test_a_tenant_reaches_only_its_own_tokens(harness: ConsoleHarness) -> None:
    token = await ApiTokens(harness.runtime.store).create("theirs", role="viewer", tenant_id="hoge")
    ann = await harness.signed_in("ann", role="admin", tenant_id="acme")
    assert json.loads((await ann.ask("GET", "/api/v1/tokens"))[1])["items"] == []
    assert (await ann.act(f"/api/v1/tokens/{token[3:19]}/revoke"))[0] == 404
    bearer = {"authorization": f"Bearer {token}"}
    assert (await harness.visitor().ask("GET", "/api/v1/runs", headers=bearer))[0] == 200
