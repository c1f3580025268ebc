"""A scenario for each operation of the platform: documents in a state in which the act changes some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from holdfast.config import Issuer
from holdfast.kit.access import ApiTokens, SessionCaller, Sessions, SignInLinks, Users
from holdfast.kit.access.oidc import Identity
from holdfast.kit.channels.models import OpenChannel, Watch
from holdfast.kit.connections import ConnectionFields, GrantedConsent
from holdfast.kit.inbox import InboxItem
from holdfast.kit.metering import Meter, UsageSum, month_of
from holdfast.kit.runs import RunDocument
from holdfast.kit.schedules import Schedule
from holdfast.model.access import ANONYMOUS, SERVICE
from holdfast.operation import Operator
from holdfast.operations import (
    channels,
    connections,
    inbox,
    runs,
    schedules,
    sessions,
    tokens,
    usage,
    users,
)
from holdfast.runtime import Runtime
from holdfast.store import Query, create, patch
from tests.console.desk import BACK, PUBLIC_URL, PURPOSE, connect, consent
from tests.console.workshop import Workshop
from tests.operations.commit_log import CommitLog
from tests.providers.provider_fixture import ALICE, Setting

T = TypeVar("T")
PASSWORD = "correct horse battery"
ISSUER = Issuer(issuer="https://id.example", client_id="holdfast")
TENANT = "-"


class World(msgspec.Struct):
    """What scenarios act on. Only what `act` awaits is judged."""

    runtime: Runtime
    log: CommitLog
    setting: Setting
    workshop: Workshop

    @property
    def by(self) -> Operator:
        return self.runtime.operator(SERVICE, TENANT, actor="cli:walker")

    async def act(self, doing: Awaitable[T]) -> T:
        self.log.clear()
        return await doing


class Scenario(msgspec.Struct, frozen=True):
    """`follow_up` are classes that the kit changes afterwards, without an event of their own, and why.

    An act that `changes` nothing is on record for what it discloses.
    """

    play: Callable[[World], Awaitable[Any]]
    follow_up: frozenset[str] = frozenset()
    why: str = ""
    changes: bool = True


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    operation: Callable[..., Any], *, follow_up: tuple[str, ...] = (), why: str = "", changes: bool = True
) -> Callable[[Callable[[World], Awaitable[Any]]], None]:
    def add(play: Callable[[World], Awaitable[Any]]) -> None:
        name: str = operation.operation.name  # type: ignore[attr-defined]
        assert name not in SCENARIOS, name
        SCENARIOS[name] = Scenario(play, frozenset(follow_up), why, changes)

    return add


# -- inbox ------------------------------------------------------------------------------------------


async def _parked(world: World, id: str) -> str:
    now = world.runtime.clock.now()
    item = InboxItem.received(tenant_id=TENANT, source="s", message_id=id, received_at=now)
    store = world.runtime.store.tenant(TENANT)
    await store.commit(create(item))
    await store.commit(patch(InboxItem, item.id, changes={"status": "parked", "finished_at": now}))
    return item.id


@scenario(inbox.replay)
async def _(world: World) -> None:
    item_id = await _parked(world, "one")
    await world.act(inbox.replay(world.runtime, world.by, item_id))


@scenario(inbox.replay_selection)
async def _(world: World) -> None:
    ids = [await _parked(world, id) for id in ("two", "three")]
    replays = await world.act(inbox.replay_selection(world.runtime, world.by, [*ids, "none"]))
    assert (replays.replayed, replays.missing) == (ids, ["none"])


# -- channels ---------------------------------------------------------------------------------------


async def _watch(world: World) -> str:
    now = world.runtime.clock.now()
    current = OpenChannel(channel_id="w-1", ends_at=now + timedelta(days=2), resource_id="r")
    watch = Watch(
        id="w", name="calendars", watched_id="alice", status="watched", current=current,
        renew_at=now + timedelta(days=1), opened_at=now,
    )  # fmt: skip
    await world.runtime.store.tenant(TENANT).commit(create(watch))
    return watch.id


@scenario(channels.renew)
async def _(world: World) -> None:
    watch_id = await _watch(world)
    await world.act(channels.renew(world.runtime, world.by, watch_id))


@scenario(channels.stop)
async def _(world: World) -> None:
    watch_id = await _watch(world)
    await world.act(channels.stop(world.runtime, world.by, watch_id))


# -- connections ------------------------------------------------------------------------------------

_TOKENS = "the kit stores tokens after a provider's answer, which no transaction may wait for"


async def _connection(world: World) -> ConnectionFields:
    return await connect(world, world.setting, ALICE)


@scenario(connections.create_link)
async def _(world: World) -> None:
    link = await world.act(connections.create_link(world.runtime, world.by, PURPOSE.name))
    assert link.url.startswith(f"{PUBLIC_URL}/oauth/start?link=")


@scenario(connections.reconnect)
async def _(world: World) -> None:
    connection = await connections.connect(world.runtime, world.by, await _granted(world))
    await world.act(connections.reconnect(world.runtime, world.by, connection.id))


@scenario(connections.connect)
async def _(world: World) -> None:
    made = await world.act(connections.connect(world.runtime, world.by, await _granted(world)))
    assert made.status == "connected"


async def _granted(world: World) -> GrantedConsent:
    link = world.runtime.connections.link(PURPOSE.name, tenant_id=TENANT, redirect_uri=BACK, hint=ALICE)
    await world.runtime.store.tenant(TENANT).commit(link.write)
    opened = await world.runtime.connections.open_link(link.token, bound_to="browser")
    state, code = await consent(world.setting, opened.url)
    return await world.runtime.connections.exchange(state, code, bound_to="browser")


@scenario(connections.check, follow_up=("Connection",), why=_TOKENS)
async def _(world: World) -> None:
    connection = await _connection(world)
    await world.act(connections.check(world.runtime, world.by, connection.id))


@scenario(connections.revoke, follow_up=("Connection",), why=_TOKENS)
async def _(world: World) -> None:
    connection = await _connection(world)
    row = await world.act(connections.revoke(world.runtime, world.by, connection.id))
    assert row.status == "revoked"


# -- runs -------------------------------------------------------------------------------------------


async def _run(world: World) -> str:
    started = await world.runtime.runs(TENANT)["holdfast_runs"].start(world.workshop.chair)
    return str(started.id)


@scenario(runs.cancel)
async def _(world: World) -> None:
    run_id = await _run(world)
    await world.act(runs.cancel(world.runtime, world.by, "holdfast_runs", run_id))


@scenario(runs.wake)
async def _(world: World) -> None:
    run_id = await _run(world)
    changes = {"due_at": None}
    await world.runtime.store.tenant(TENANT).commit(patch(RunDocument, run_id, changes=changes))
    await world.act(runs.wake(world.runtime, world.by, "holdfast_runs", run_id))


@scenario(runs.retry)
async def _(world: World) -> None:
    run_id = await _run(world)
    store = world.runtime.store.tenant(TENANT)
    await store.commit(patch(RunDocument, run_id, changes={"status": "running"}))
    failed = {"status": "failed", "due_at": None, "completed_at": world.runtime.clock.now(), "error": "no"}
    await store.commit(patch(RunDocument, run_id, changes=failed))
    await world.act(runs.retry(world.runtime, world.by, "holdfast_runs", run_id))


# -- schedules --------------------------------------------------------------------------------------


async def _schedule(world: World) -> str:
    at = world.runtime.clock.now()
    schedule = Schedule(
        tenant_id=TENANT, name="nightly", cron="0 2 * * *", zone="UTC", missed="once", slot_at=at, next_at=at
    )
    await world.runtime.store.tenant(TENANT).commit(create(schedule))
    return schedule.id


@scenario(schedules.run)
async def _(world: World) -> None:
    schedule_id = await _schedule(world)
    await world.act(schedules.run(world.runtime, world.by, schedule_id))


@scenario(schedules.switch)
async def _(world: World) -> None:
    schedule_id = await _schedule(world)
    row = await world.act(schedules.switch(world.runtime, world.by, schedule_id, on=False))
    assert not row.enabled


# -- tokens and usage -------------------------------------------------------------------------------


@scenario(tokens.create)
async def _(world: World) -> None:
    await world.act(tokens.create(world.runtime, world.by, "ci", role="viewer"))


@scenario(tokens.revoke)
async def _(world: World) -> None:
    token = await ApiTokens(world.runtime.store).create("ci", role="viewer")
    await world.act(tokens.revoke(world.runtime, world.by, token[3:19]))


@scenario(usage.rebuild)
async def _(world: World) -> None:
    store = world.runtime.store.tenant(TENANT)
    at = world.runtime.clock.now()
    await store.commit(*Meter(world.runtime.store, tenant_id=TENANT).writes("fact", {"runs": 3}, at=at))
    query = Query(UsageSum).where("month", "==", month_of(at)).where("metric", "==", "runs").order_by("day")
    (stored,) = (await store.query(query)).docs
    await store.commit(patch(UsageSum, stored.id, changes={"value": 1}))
    rebuilt = await world.act(usage.rebuild(world.runtime, world.by, mend=True))
    assert len(rebuilt.drifts) == 1


# -- people -----------------------------------------------------------------------------------------


async def _ann(world: World, *, password: str | None = None) -> None:
    await Users(world.runtime.store).add("ann", role="admin", tenant_id="acme", password=password)


@scenario(users.add)
async def _(world: World) -> None:
    await world.act(users.add(world.runtime, world.by, "ben", role="viewer", address="http://here"))


@scenario(users.make_link)
async def _(world: World) -> None:
    await _ann(world)
    await world.act(users.make_link(world.runtime, world.by, "ann", address="http://here"))


@scenario(users.disable)
async def _(world: World) -> None:
    await _ann(world)
    await world.act(users.disable(world.runtime, world.by, "ann"))


@scenario(users.enable)
async def _(world: World) -> None:
    await _ann(world)
    await world.act(users.enable(world.runtime, world.by, "ann"))


@scenario(users.sign_out)
async def _(world: World) -> None:
    await _ann(world)
    await world.act(users.sign_out(world.runtime, world.by, "ann"))


@scenario(users.set_password)
async def _(world: World) -> None:
    await _ann(world)
    await world.act(users.set_password(world.runtime, world.by, "ann", password=PASSWORD))


def _stranger(world: World) -> Operator:
    return world.runtime.operator(ANONYMOUS, TENANT)


async def _signed_in(world: World) -> Operator:
    await _ann(world, password=PASSWORD)
    cookie = await Sessions(world.runtime.store).begin(await Users(world.runtime.store).get("ann"))
    caller = await Sessions(world.runtime.store).verify(cookie)
    assert isinstance(caller, SessionCaller)
    return world.runtime.operator(caller, "acme")


@scenario(sessions.sign_in)
async def _(world: World) -> None:
    await _ann(world, password=PASSWORD)
    assert await sessions.sign_in(world.runtime, _stranger(world), "ann", password="wrong") is None
    cookie = await world.act(sessions.sign_in(world.runtime, _stranger(world), "Ann", password=PASSWORD))
    assert cookie is not None


@scenario(sessions.sign_in_with_identity)
async def _(world: World) -> None:
    await Users(world.runtime.store).add(ALICE, role="admin")
    identity = Identity(issuer=ISSUER.issuer, subject="1042", email=ALICE)
    await world.act(sessions.sign_in_with_identity(world.runtime, _stranger(world), identity))


@scenario(sessions.use_link)
async def _(world: World) -> None:
    await _ann(world)
    code = await SignInLinks(world.runtime.store).create("ann")
    await world.act(sessions.use_link(world.runtime, _stranger(world), code, name="", password=PASSWORD))


@scenario(sessions.sign_out)
async def _(world: World) -> None:
    by = await _signed_in(world)
    await world.act(sessions.sign_out(world.runtime, by, everywhere=True))


@scenario(sessions.change_password)
async def _(world: World) -> None:
    by = await _signed_in(world)
    await world.act(
        sessions.change_password(world.runtime, by, current=PASSWORD, password="another horse battery")
    )


@scenario(sessions.make_first_link)
async def _(world: World) -> None:
    assert await world.act(sessions.make_first_link(world.runtime, world.by, address="http://here"))
