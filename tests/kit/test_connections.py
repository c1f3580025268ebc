"""Connections on every engine: signed in once, sealed, refreshed by one, revoked for good."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import msgspec
import pytest

from holdfast.errors import (
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
    UnverifiedError,
)
from holdfast.kit.connections import Connection, Connections, Consent, connection_id
from holdfast.kit.connections.models import SEALED_CONSENT, SEALED_TOKENS
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Rotation, Vault, new_key, rotate
from holdfast.model import Document
from holdfast.store import Store
from holdfast.testing import ManualClock
from tests.kit.fake_oauth_provider import (
    OLD_KEY,
    FakeOAuthProvider,
    begin,
    connect,
    die_after_the_answer,
    stored,
)

DOCUMENTS: list[type[Document]] = [Connection, Consent, LeaseDocument, Rotation]


# -- signing in ---------------------------------------------------------------------------------------


async def test_a_finished_sign_in_is_one_connection_of_its_tenant(
    connections: Connections, kit_store: Store, clock: ManualClock
) -> None:
    made = await connect(connections)
    assert made.id == connection_id("acme", "registrar", "1042")
    kept = await stored(kit_store, made.id)
    assert (kept.status, kept.name, kept.scopes, kept.refused) == (
        "connected",
        "ann@hoge.jp",
        ["calendar"],
        [],
    )
    assert kept.expires_at is not None
    assert (kept.expires_at - clock.now()).total_seconds() == 3_600
    assert await kit_store.tenant("hoge").get(Connection, made.id) is None
    assert (await connections.token(made.id)).startswith("access-")


async def test_of_many_who_bring_one_state_one_gets_in(connections: Connections) -> None:
    state, code = await begin(connections)
    outcomes = await asyncio.gather(
        *(connections.finish(state, code) for _ in range(8)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in outcomes) == ["Connection", *["UnverifiedError"] * 7]


async def test_a_tenants_handle_finishes_only_its_own_sign_ins(
    connections: Connections, kit_store: Store, vault: Vault, registrar: FakeOAuthProvider
) -> None:
    state, code = await begin(connections)
    hoge = Connections(kit_store.tenant("hoge"), vault, {"registrar": registrar})
    with pytest.raises(UnverifiedError):
        await hoge.finish(state, code)
    acme = Connections(kit_store.tenant("acme"), vault, {"registrar": registrar})
    made = await acme.finish(state, code)
    with pytest.raises(NotFoundError):
        await hoge.token(made.id)


# -- sealing ------------------------------------------------------------------------------------------


async def test_nothing_stored_shown_or_logged_holds_a_secret(
    connections: Connections, kit_store: Store, vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    state, code = await begin(connections)
    asked = [item.doc for item in [await _only_consent(kit_store, state)]]
    made = await connections.finish(state, code)
    await connections.token(made.id, rejected=await connections.token(made.id))
    kept = await stored(kit_store, made.id)
    told = f"{asked!r} {msgspec.json.encode(asked)!r} {kept!r} {msgspec.json.encode(kept)!r} {caplog.text}"
    for secret in ("access-", "refresh-", state):
        assert secret not in told
    assert all(getattr(kept, name).startswith("hf1.old.") for name in SEALED_TOKENS)


async def _only_consent(store: Store, state: str) -> Any:
    found = await store.tenant("acme").get(Consent, hashlib.sha256(state.encode()).hexdigest())
    assert found is not None
    return found


async def test_rotating_the_keys_reaches_all_that_is_sealed_here(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider
) -> None:
    made = await connect(connections)
    first = await connections.token(made.id)
    await connections.token(made.id, rejected=first)
    state, code = await begin(connections)
    both = Vault.from_settings(f"{new_key('new')},{OLD_KEY}")
    for kind, fields in ((Connection, SEALED_TOKENS), (Consent, SEALED_CONSENT)):
        rotation = await rotate(both, kind, fields=fields, store=kit_store)
        assert (rotation.resealed, rotation.unreadable) == (1, [])
    kept = await stored(kit_store, made.id)
    assert all(getattr(kept, name).startswith("hf1.new.") for name in SEALED_TOKENS)
    after = Connections(kit_store, both, {"registrar": registrar})
    assert await after.token(made.id, rejected=await after.token(made.id)) != first
    assert (await after.finish(state, code)).status == "connected"


# -- refreshing ---------------------------------------------------------------------------------------


async def test_however_many_ask_in_however_many_processes_one_refreshes(
    kit_store: Store, vault: Vault, registrar: FakeOAuthProvider, connections: Connections, clock: ManualClock
) -> None:
    made = await connect(connections)
    old = await connections.token(made.id)
    processes = [Connections(kit_store, vault, {"registrar": registrar}) for _ in range(4)]
    got = await asyncio.gather(*(p.token(made.id, rejected=old) for p in processes for _ in range(5)))
    assert (len(set(got)), old in got, registrar.refreshes) == (1, False, 1)


async def test_a_grant_that_is_gone_needs_its_owner_and_nobody_asks_again(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider
) -> None:
    made = await connect(connections)
    registrar.living.clear()
    old = await connections.token(made.id)
    with pytest.raises(ReauthRequiredError, match="invalid_grant"):
        await connections.token(made.id, rejected=old)
    kept = await stored(kit_store, made.id)
    assert (kept.status, kept.reason) == ("needs_reauth", "invalid_grant")
    for _ in range(3):
        with pytest.raises(ReauthRequiredError, match=r"ann@hoge\.jp: invalid_grant"):
            await connections.token(made.id)
    assert registrar.refreshes == 1


# -- crashes ------------------------------------------------------------------------------------------


async def test_a_crash_after_the_answer_is_survived_where_the_provider_keeps_the_old_token(
    kit_store: Store, vault: Vault, registrar: FakeOAuthProvider, connections: Connections, clock: ManualClock
) -> None:
    made = await connect(connections)
    await die_after_the_answer(connections, registrar, made.id)
    clock.tick(61)
    other = Connections(kit_store, vault, {"registrar": registrar})
    assert await other.token(made.id, rejected=await other.token(made.id))
    assert (await stored(kit_store, made.id)).status == "connected"


async def test_an_answer_that_comes_late_is_kept_where_nobody_brought_a_newer_one(
    kit_store: Store, registrar: FakeOAuthProvider, connections: Connections, clock: ManualClock
) -> None:
    """Its lease is over, but with a strict provider it holds the only refresh token that still works."""
    registrar.strict, registrar.pause = True, asyncio.Event()
    made = await connect(connections)
    asking = asyncio.create_task(connections.token(made.id, rejected=await connections.token(made.id)))
    await registrar.answered.wait()
    clock.tick(600)
    registrar.pause.set()
    token = await asking
    assert await connections.token(made.id) == token
    assert await connections.token(made.id, rejected=token) != token


async def test_a_late_refusal_never_undoes_what_another_brought(
    kit_store: Store, vault: Vault, registrar: FakeOAuthProvider, connections: Connections, clock: ManualClock
) -> None:
    made = await connect(connections)
    slow = _Slow(registrar)
    paused = Connections(kit_store, vault, {"registrar": slow})
    asking = asyncio.create_task(paused.token(made.id, rejected=await connections.token(made.id)))
    await slow.asked.wait()
    clock.tick(61)
    fresh = await connections.token(made.id, rejected=await connections.token(made.id))
    slow.go.set()
    assert await asking == fresh
    assert (await stored(kit_store, made.id)).status == "connected"


class _Slow:
    """A provider whose answer to the first refresh is no, and long in coming."""

    def __init__(self, registrar: FakeOAuthProvider) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self._registrar = registrar

    async def refresh(self, refresh_token: str) -> Any:
        self.asked.set()
        await self.go.wait()
        raise ReauthRequiredError("invalid_grant")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registrar, name)


# -- ending -------------------------------------------------------------------------------------------


async def test_a_revoked_connection_is_ended_at_the_provider_and_keeps_no_token(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider, clock: ManualClock
) -> None:
    made = await connect(connections)
    ended = await connections.revoke(made.id, reason="left the company")
    kept = await stored(kit_store, made.id)
    assert ended == kept
    assert (kept.status, kept.reason, kept.access_token, kept.refresh_token) == (
        "revoked", "left the company", "", "",
    )  # fmt: skip
    assert registrar.revoked == ["refresh-2"]
    with pytest.raises(ReauthRequiredError, match="left the company"):
        await connections.token(made.id)
    await connections.revoke(made.id)
    assert len(registrar.revoked) == 1
    clock.tick(90 * 86_400 + 1)
    assert await kit_store.privileged().expire(Connection) == 1


async def test_what_the_provider_could_not_be_told_is_told_later(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider
) -> None:
    made = await connect(connections)
    registrar.fault = RetryLaterError("503")
    with pytest.raises(RetryLaterError):
        await connections.revoke(made.id)
    assert (await stored(kit_store, made.id)).status == "revoked"
    with pytest.raises(ReauthRequiredError):
        await connections.token(made.id)
    registrar.fault = None
    assert (await connections.check(made.id)).refresh_token == ""
    assert registrar.revoked == ["refresh-2"]
