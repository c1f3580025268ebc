"""The life of a connection, where the engine does not matter: on SQLite."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.errors import (
    ConfigError,
    DecryptionError,
    ForbiddenError,
    NotFoundError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
    StoreUnavailableError,
    UnverifiedError,
)
from holdfast.kit.connections import Connection, Connections, Consent, connection_id
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.vault import Rotation, Vault
from holdfast.model import Document
from holdfast.store import Store, put
from holdfast.testing import ManualClock
from tests.kit.fake_oauth_provider import (
    BACK,
    FakeOAuthProvider,
    begin,
    connect,
    die_after_the_answer,
    stored,
)

DOCUMENTS: list[type[Document]] = [Connection, Consent, LeaseDocument, Rotation]


@pytest.fixture
def kit_url(sqlite_url: str) -> str:
    return sqlite_url


# -- signing in ---------------------------------------------------------------------------------------


async def test_a_state_works_once_and_for_ten_minutes(connections: Connections, clock: ManualClock) -> None:
    state, code = await begin(connections)
    await connections.finish(state, code)
    with pytest.raises(UnverifiedError, match="start again"):
        await connections.finish(state, code)
    late = await begin(connections)
    clock.tick(600)
    with pytest.raises(UnverifiedError):
        await connections.finish(*late)
    with pytest.raises(UnverifiedError):
        await connections.finish("made up", "code")


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


async def test_less_than_was_asked_is_told(connections: Connections, registrar: FakeOAuthProvider) -> None:
    made = await connect(connections, scopes=["calendar", "mail"])
    assert (made.scopes, made.refused) == (["calendar"], ["mail"])


async def test_connecting_again_renews_the_same_connection(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider
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


async def test_a_token_moved_to_another_row_or_field_does_not_open(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider, vault: Vault
) -> None:
    one = await connect(connections)
    registrar.account = "2048"
    other = await connect(connections)
    moved = msgspec.structs.replace(await stored(kit_store, other.id), access_token=one.access_token)
    await kit_store.tenant("acme").commit(put(moved))
    with pytest.raises(DecryptionError):
        await connections.token(other.id)


# -- refreshing ---------------------------------------------------------------------------------------


async def test_a_token_is_used_until_five_minutes_before_its_end_and_then_refreshed(
    connections: Connections, registrar: FakeOAuthProvider, clock: ManualClock
) -> None:
    made = await connect(connections)
    first = await connections.token(made.id)
    clock.tick(3_299)
    assert (await connections.token(made.id), registrar.refreshes) == (first, 0)
    clock.tick(2)
    assert await connections.token(made.id) != first
    assert registrar.refreshes == 1


async def test_a_token_source_gives_the_token_again_and_never_a_rejected_one(
    connections: Connections, registrar: FakeOAuthProvider, clock: ManualClock
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
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider, clock: ManualClock
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
    connections: Connections, kit_store: Store, vault: Vault, registrar: FakeOAuthProvider, clock: ManualClock
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


async def test_a_token_without_an_end_is_used_until_it_is_rejected(
    connections: Connections,
    registrar: FakeOAuthProvider,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
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


async def test_a_crash_after_the_answer_asks_the_owner_where_the_provider_ends_the_old_token_at_once(
    kit_store: Store, vault: Vault, registrar: FakeOAuthProvider, connections: Connections, clock: ManualClock
) -> None:
    registrar.strict = True
    made = await connect(connections)
    await die_after_the_answer(connections, registrar, made.id)
    clock.tick(61)
    other = Connections(kit_store, vault, {"registrar": registrar})
    with pytest.raises(ReauthRequiredError):
        await other.token(made.id, rejected=await other.token(made.id))
    assert (await stored(kit_store, made.id)).status == "needs_reauth"


async def test_the_former_refresh_token_is_tried_while_its_successor_has_not_worked(
    kit_store: Store, registrar: FakeOAuthProvider, connections: Connections
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
    kit_store: Store, registrar: FakeOAuthProvider, connections: Connections, monkeypatch: pytest.MonkeyPatch
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


async def test_a_refresh_under_way_does_not_bring_a_revoked_connection_back(
    connections: Connections, kit_store: Store, registrar: FakeOAuthProvider
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


async def test_a_check_finds_out_both_ways(connections: Connections, registrar: FakeOAuthProvider) -> None:
    made = await connect(connections)
    assert (await connections.check(made.id)).status == "connected"
    registrar.fault = ReauthRequiredError("invalid_grant")
    assert (await connections.check(made.id)).status == "needs_reauth"
    registrar.fault = None
    assert (await connections.check(made.id)).status == "connected"
