"""Connections on every engine: signed in once, sealed, refreshed by one, revoked for good."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from holdfast.errors import (
    ConfigError,
    ForbiddenError,
    NotFoundError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
    StoreUnavailableError,
    UnreadableError,
    UnverifiedError,
)
from holdfast.kit.connections import Connection, Connections, Consent, connection_id
from holdfast.kit.connections.models import SEALED_CONSENT, SEALED_TOKENS
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Rotation, Vault, new_key, rotate
from holdfast.model import Document
from holdfast.store import Store, put
from holdfast.testing import ManualClock
from tests.kit.registrar import Registrar

DOCUMENTS: list[type[Document]] = [Connection, Consent, LeaseDocument, Rotation]
BACK = "https://app.example/back"
OLD_KEY = new_key("old")


@pytest.fixture
def vault() -> Vault:
    return Vault.from_settings(OLD_KEY)


@pytest.fixture
def registrar(clock: ManualClock) -> Registrar:
    return Registrar(clock)


@pytest.fixture
def connections(kit_store: Store, vault: Vault, registrar: Registrar) -> Connections:
    return Connections(kit_store, vault, {"registrar": registrar})


async def begin(connections: Connections, **words: Any) -> tuple[str, str]:
    """State and code, as the person brings them back."""
    asked: dict[str, Any] = {"scopes": ["calendar"], "redirect_uri": BACK, "tenant_id": "acme"}
    started = await connections.start("registrar", **asked | words)
    query = parse_qs(urlsplit(started.url).query)
    assert query["state"] == [started.state]
    return started.state, query["code"][0]


async def connect(connections: Connections, **words: Any) -> Connection:
    return await connections.finish(*await begin(connections, **words))


async def stored(store: Store, id: str) -> Connection:
    found = await store.tenant("acme").get(Connection, id)
    assert found is not None
    return found.doc


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


async def test_a_state_works_once_and_for_ten_minutes(connections: Connections, clock: ManualClock) -> None:
    state, code = await begin(connections)
    await connections.finish(state, code)
    with pytest.raises(UnverifiedError, match="begin it again"):
        await connections.finish(state, code)
    late = await begin(connections)
    clock.tick(600)
    with pytest.raises(UnverifiedError):
        await connections.finish(*late)
    with pytest.raises(UnverifiedError):
        await connections.finish("made up", "code")


async def test_of_many_who_bring_one_state_one_gets_in(connections: Connections) -> None:
    state, code = await begin(connections)
    outcomes = await asyncio.gather(
        *(connections.finish(state, code) for _ in range(8)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in outcomes) == ["Connection", *["UnverifiedError"] * 7]


async def test_a_sign_in_is_finished_in_the_browser_it_was_begun_in(connections: Connections) -> None:
    state, code = await begin(connections, bound_to="session-1")
    for other in ("session-2", ""):
        with pytest.raises(UnverifiedError, match="another browser"):
            await connections.finish(state, code, bound_to=other)
    assert (await connections.finish(state, code, bound_to="session-1")).status == "connected"


async def test_who_says_no_is_not_connected_and_the_state_is_spent(
    connections: Connections, kit_store: Store
) -> None:
    state, code = await begin(connections)
    with pytest.raises(ForbiddenError, match="access_denied"):
        await connections.finish(state, error="access_denied")
    with pytest.raises(UnverifiedError):
        await connections.finish(state, code)
    with pytest.raises(NotFoundError):
        await connections.get(connection_id("acme", "registrar", "1042"))


async def test_a_tenants_handle_finishes_only_its_own_sign_ins(
    connections: Connections, kit_store: Store, vault: Vault, registrar: Registrar
) -> None:
    state, code = await begin(connections)
    hoge = Connections(kit_store.tenant("hoge"), vault, {"registrar": registrar})
    with pytest.raises(UnverifiedError):
        await hoge.finish(state, code)
    acme = Connections(kit_store.tenant("acme"), vault, {"registrar": registrar})
    made = await acme.finish(state, code)
    with pytest.raises(NotFoundError):
        await hoge.token(made.id)


async def test_less_than_was_asked_is_told(connections: Connections, registrar: Registrar) -> None:
    made = await connect(connections, scopes=["calendar", "mail"])
    assert (made.scopes, made.refused) == (["calendar"], ["mail"])


async def test_connecting_again_renews_the_same_connection(
    connections: Connections, kit_store: Store, registrar: Registrar
) -> None:
    first = await connect(connections)
    registrar.living.clear()
    with pytest.raises(ReauthRequiredError):
        await connections.token(first.id, rejected=await connections.token(first.id))
    again = await connect(connections)
    assert (again.id, again.status, again.reason) == (first.id, "connected", "")
    assert again.generation > first.generation
    assert await connections.token(first.id, rejected=await connections.token(first.id))


async def test_a_provider_nobody_knows_is_refused_before_anybody_is_sent_there(
    connections: Connections,
) -> None:
    with pytest.raises(ConfigError, match="'elsewhere'"):
        await connections.start("elsewhere", scopes=[], redirect_uri=BACK)


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


async def test_a_token_moved_to_another_row_or_field_does_not_open(
    connections: Connections, kit_store: Store, registrar: Registrar, vault: Vault
) -> None:
    one = await connect(connections)
    registrar.account = "2048"
    other = await connect(connections)
    moved = msgspec.structs.replace(await stored(kit_store, other.id), access_token=one.access_token)
    await kit_store.tenant("acme").commit(put(moved))
    with pytest.raises(UnreadableError):
        await connections.token(other.id)


async def test_rotating_the_keys_reaches_all_that_is_sealed_here(
    connections: Connections, kit_store: Store, registrar: Registrar
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


async def test_a_token_is_used_until_five_minutes_before_its_end_and_then_refreshed(
    connections: Connections, registrar: Registrar, clock: ManualClock
) -> None:
    made = await connect(connections)
    first = await connections.token(made.id)
    clock.tick(3_299)
    assert (await connections.token(made.id), registrar.refreshes) == (first, 0)
    clock.tick(2)
    assert await connections.token(made.id) != first
    assert registrar.refreshes == 1


async def test_however_many_ask_in_however_many_processes_one_refreshes(
    kit_store: Store, vault: Vault, registrar: Registrar, connections: Connections, clock: ManualClock
) -> None:
    made = await connect(connections)
    old = await connections.token(made.id)
    processes = [Connections(kit_store, vault, {"registrar": registrar}) for _ in range(4)]
    got = await asyncio.gather(*(p.token(made.id, rejected=old) for p in processes for _ in range(5)))
    assert (len(set(got)), old in got, registrar.refreshes) == (1, False, 1)


async def test_a_token_source_gives_the_token_again_and_never_a_rejected_one(
    connections: Connections, registrar: Registrar, clock: ManualClock
) -> None:
    tokens = connections.tokens((await connect(connections)).id)
    first = await tokens()
    assert (await tokens(), registrar.refreshes) == (first, 0)
    second = await tokens(rejected=first)
    assert second != first
    assert (await tokens(rejected=first), await tokens(), registrar.refreshes) == (second, second, 1)
    clock.tick(3_400)
    assert await tokens() != second


async def test_a_token_with_life_left_is_used_while_the_provider_fails(
    connections: Connections, kit_store: Store, registrar: Registrar, clock: ManualClock
) -> None:
    made = await connect(connections)
    first = await connections.token(made.id)
    registrar.fault = RetryLaterError("503", after_s=2.0)
    clock.tick(3_400)
    assert await connections.token(made.id) == first
    kept = await stored(kit_store, made.id)
    assert (kept.status, kept.failures, kept.reason) == ("connected", 1, "503")
    clock.tick(200)
    with pytest.raises(RetryLaterError):
        await connections.token(made.id)


async def test_a_provider_that_fails_is_left_alone_for_a_while_by_everybody(
    connections: Connections, kit_store: Store, vault: Vault, registrar: Registrar, clock: ManualClock
) -> None:
    made = await connect(connections)
    registrar.fault = RetryLaterError("429", after_s=40.0)
    clock.tick(3_700)
    with pytest.raises(RetryLaterError):
        await connections.token(made.id)
    other = Connections(kit_store, vault, {"registrar": registrar})
    clock.tick(39)
    with pytest.raises(RetryLaterError) as raised:
        await other.token(made.id)
    assert (raised.value.after_s, registrar.refreshes) == (1.0, 1)
    registrar.fault = None
    clock.tick(1)
    assert await other.token(made.id)
    assert (await stored(kit_store, made.id)).failures == 0


async def test_a_grant_that_is_gone_needs_its_owner_and_nobody_asks_again(
    connections: Connections, kit_store: Store, registrar: Registrar
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


async def test_a_token_without_an_end_is_used_until_it_is_rejected(
    connections: Connections, registrar: Registrar, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = registrar._given
    monkeypatch.setattr(
        registrar, "_given", lambda refresh_token: msgspec.structs.replace(
            given(refresh_token=""), expires_in_s=None
        )
    )  # fmt: skip
    made = await connect(connections)
    token = await connections.token(made.id)
    clock.tick(10 * 365 * 86_400)
    assert await connections.token(made.id) == token
    with pytest.raises(ReauthRequiredError, match="has ended"):
        await connections.token(made.id, rejected=token)
    assert registrar.refreshes == 0


# -- crashes ------------------------------------------------------------------------------------------


async def _die_after_the_answer(connections: Connections, registrar: Registrar, id: str) -> None:
    """The provider has answered; the process that asked is gone before it kept anything."""
    registrar.pause = asyncio.Event()
    asking = asyncio.create_task(connections.token(id, rejected=await connections.token(id)))
    await registrar.answered.wait()
    for task in connections._under_way.values():
        task.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    registrar.pause = None


async def test_a_crash_after_the_answer_is_survived_where_the_provider_keeps_the_old_token(
    kit_store: Store, vault: Vault, registrar: Registrar, connections: Connections, clock: ManualClock
) -> None:
    made = await connect(connections)
    await _die_after_the_answer(connections, registrar, made.id)
    clock.tick(61)
    other = Connections(kit_store, vault, {"registrar": registrar})
    assert await other.token(made.id, rejected=await other.token(made.id))
    assert (await stored(kit_store, made.id)).status == "connected"


async def test_a_crash_after_the_answer_asks_the_owner_where_the_provider_ends_the_old_token_at_once(
    kit_store: Store, vault: Vault, registrar: Registrar, connections: Connections, clock: ManualClock
) -> None:
    registrar.strict = True
    made = await connect(connections)
    await _die_after_the_answer(connections, registrar, made.id)
    clock.tick(61)
    other = Connections(kit_store, vault, {"registrar": registrar})
    with pytest.raises(ReauthRequiredError):
        await other.token(made.id, rejected=await other.token(made.id))
    assert (await stored(kit_store, made.id)).status == "needs_reauth"


async def test_an_answer_that_comes_late_is_kept_where_nobody_brought_a_newer_one(
    kit_store: Store, registrar: Registrar, connections: Connections, clock: ManualClock
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
    kit_store: Store, vault: Vault, registrar: Registrar, connections: Connections, clock: ManualClock
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

    def __init__(self, registrar: Registrar) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self._registrar = registrar

    async def refresh(self, refresh_token: str) -> Any:
        self.asked.set()
        await self.go.wait()
        raise ReauthRequiredError("invalid_grant")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registrar, name)


async def test_the_former_refresh_token_is_tried_while_its_successor_has_not_worked(
    kit_store: Store, registrar: Registrar, connections: Connections
) -> None:
    """The provider forgot the newest one, as after a failover of its own."""
    made = await connect(connections)
    token = await connections.token(made.id, rejected=await connections.token(made.id))
    newest = next(reversed(registrar.living))
    del registrar.living[newest]
    again = await connections.token(made.id, rejected=token)
    assert again not in ("", token)
    assert (await stored(kit_store, made.id)).status == "connected"


async def test_an_answer_outlives_a_store_that_is_away_for_a_moment(
    kit_store: Store, registrar: Registrar, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    registrar.strict = True
    made = await connect(connections)
    token, commit = await connections.token(made.id), kit_store.engine.commit
    # Longer than a transaction tries by itself; at last the answer to a commit that landed is lost.
    faults = [StoreUnavailableError("away", after_s=0.0)] * 25

    async def away(commits: Any) -> Any:
        if not (registrar.answered.is_set() and faults and _writes_connection(commits)):
            return await commit(commits)
        faults.pop()
        if faults:
            raise StoreUnavailableError("away", after_s=0.0)
        await commit(commits)
        raise OutcomeUnknownError("the link broke", after_s=0.0)

    monkeypatch.setattr(kit_store.engine, "commit", away)
    assert await connections.token(made.id, rejected=token) != token
    assert faults == []
    assert (await stored(kit_store, made.id)).generation == 2


def _writes_connection(commits: Any) -> bool:
    return any(write.schema.cls is Connection for one in commits for write in one.writes)


# -- ending -------------------------------------------------------------------------------------------


async def test_a_revoked_connection_is_ended_at_the_provider_and_keeps_no_token(
    connections: Connections, kit_store: Store, registrar: Registrar, clock: ManualClock
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
    connections: Connections, kit_store: Store, registrar: Registrar
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


async def test_a_refresh_under_way_does_not_bring_a_revoked_connection_back(
    connections: Connections, kit_store: Store, registrar: Registrar
) -> None:
    made = await connect(connections)
    registrar.pause = asyncio.Event()
    asking = asyncio.create_task(connections.token(made.id, rejected=await connections.token(made.id)))
    await registrar.answered.wait()
    await connections.revoke(made.id)
    registrar.pause.set()
    with pytest.raises(ReauthRequiredError):
        await asking
    assert (await stored(kit_store, made.id)).status == "revoked"


async def test_a_check_finds_out_both_ways(connections: Connections, registrar: Registrar) -> None:
    made = await connect(connections)
    assert (await connections.check(made.id)).status == "connected"
    registrar.fault = ReauthRequiredError("invalid_grant")
    assert (await connections.check(made.id)).status == "needs_reauth"
    registrar.fault = None
    assert (await connections.check(made.id)).status == "connected"
