"""Tokens of programs, on every engine: shown once, kept hashed, ended in time, each tenant's its own."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.errors import ForbiddenError, InvalidError, NotFoundError, WrongTenantError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import ApiToken, ApiTokens, Gate, TokenCaller
from holdfast.kit.access.authorization import check_act
from holdfast.model import Document
from holdfast.store import Store, create
from holdfast.testing import ManualClock
from tests.kit.access.notes import Member, Note

DOCUMENTS: list[type[Document]] = [Note, Member, ApiToken]


async def _kept(store: Store, token: str) -> ApiToken:
    found = await store.privileged().get(ApiToken, token[3:19])
    assert found is not None
    return found.doc


async def test_a_token_is_shown_once_and_kept_hashed(kit_store: Store) -> None:
    tokens = ApiTokens(kit_store)
    token = await tokens.create("deploys", role="developer", tenant_id="acme", scopes=["notes:*"])
    assert re.fullmatch(r"hf_[a-z2-7]{64}", token)
    kept = await _kept(kit_store, token)
    assert kept.hash == hashlib.sha256(token.encode()).hexdigest()
    assert token[19:] not in msgspec.json.encode(kept).decode()
    (listed,), _ = await tokens.page()
    assert (listed.name, listed.hash) == ("deploys", "")


async def test_a_token_lets_in_whom_it_was_made_for(acme: Store, kit_store: Store) -> None:
    tokens = ApiTokens(kit_store)
    token = await tokens.create("deploys", role="developer", tenant_id="acme", scopes=["notes:create"])
    caller = await tokens.verify(token)
    assert isinstance(caller, TokenCaller)
    assert (caller.roles, caller.service, caller.scopes) == ({"acme": "developer"}, False, ("notes:create",))
    await Gate(acme, caller).commit(create(Note(id="n2")))
    with pytest.raises(ForbiddenError, match="needs the scope notes:read; it has notes:create"):
        await Gate(acme, caller).require("read", Note, "n1")
    with pytest.raises(ForbiddenError, match="needs the scope channels:renew"):
        check_act(caller, "viewer", area="channels", action="renew", tenant_id="acme")
    service = await tokens.verify(await tokens.create("scheduler", role="service", scopes=["channels:renew"]))
    assert service is not None
    check_act(service, "admin", area="channels", action="renew", tenant_id=NO_TENANT)


async def test_a_token_changed_in_any_place_lets_nobody_in(kit_store: Store) -> None:
    tokens = ApiTokens(kit_store)
    token = await tokens.create("one", role="viewer")
    other = await tokens.create("two", role="owner")
    for place in range(len(token)):
        changed = token[:place] + ("a" if token[place] != "a" else "b") + token[place + 1 :]
        assert await tokens.verify(changed) is None
    mixed = other[:19] + token[19:]
    for wrong in ("", "hf_", token[:-1], token + "a", mixed, token.upper(), "hf_" + "é" * 64):
        assert await tokens.verify(wrong) is None
    assert await tokens.verify(token) is not None


async def test_a_token_ends_at_its_time_and_when_it_is_revoked(kit_store: Store, clock: ManualClock) -> None:
    tokens = ApiTokens(kit_store)
    short = await tokens.create("short", role="viewer", expires_in_s=60)
    long = await tokens.create("long", role="viewer")
    clock.tick(59.9)
    assert await tokens.verify(short) is not None
    clock.tick(0.1)
    assert await tokens.verify(short) is None
    assert await tokens.verify(long) is not None
    await tokens.revoke(long[3:19])
    assert await tokens.verify(long) is None
    revoked_at = (await _kept(kit_store, long)).revoked_at
    clock.tick(1)
    await tokens.revoke(long[3:19])
    assert (await _kept(kit_store, long)).revoked_at == revoked_at
    with pytest.raises(NotFoundError):
        await tokens.revoke("a" * 16)
    clock.tick(91 * 86_400)
    assert await kit_store.privileged().expire(ApiToken) == 2


async def test_the_last_use_is_written_at_most_once_a_minute(kit_store: Store, clock: ManualClock) -> None:
    tokens = ApiTokens(kit_store)
    token = await tokens.create("busy", role="viewer")
    start, versions = clock.now(), set()
    for _ in range(130):
        await tokens.verify(token)
        found = await kit_store.privileged().get(ApiToken, token[3:19])
        assert found is not None
        versions.add(found.version)
        clock.tick(1)
    assert len(versions) == 3
    assert (await _kept(kit_store, token)).last_used_at == start + timedelta(seconds=120)


async def test_a_tenants_handle_keeps_to_its_own_tokens(kit_store: Store) -> None:
    mine, theirs = ApiTokens(kit_store.tenant("acme")), ApiTokens(kit_store.tenant("other"))
    token = await mine.create("mine", role="admin", tenant_id="acme")
    assert await theirs.verify(token) is None
    assert await theirs.page() == ([], None)
    with pytest.raises(NotFoundError):
        await theirs.revoke(token[3:19])
    with pytest.raises(WrongTenantError):
        await mine.create("not mine", role="admin", tenant_id="other")
    with pytest.raises(ForbiddenError):
        await mine.create("all of it", role="service", tenant_id="acme")


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "x" * 101}, {"scopes": ["all"]}, {"expires_in_s": 0}, {"expires_in_s": 1e10}],
)
async def test_a_token_that_makes_no_sense_is_refused(kit_store: Store, wrong: dict[str, Any]) -> None:
    said: dict[str, Any] = {"name": "one", "role": "viewer"} | wrong
    with pytest.raises(InvalidError):
        await ApiTokens(kit_store).create(said.pop("name"), **said)
    assert await ApiTokens(kit_store).page() == ([], None)
