"""The service over a real socket, against the simulated Google, on a store of the test's choice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import uvicorn

from holdfast.clock import Clock
from holdfast.config import Config, load_config
from holdfast.http.app import create_app
from holdfast.kit.access import ApiTokens
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.services.calendar_sync import service
from holdfast.services.calendar_sync.models import CalendarState, Order, SyncedEvent, WatchChannel
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.sync.engine import SyncEngine
from holdfast.simulators.google import (
    AddPerson,
    CreateEvent,
    DeleteEvent,
    GoogleSimulator,
    ListChannels,
    Pushes,
    ShowCalendar,
    UpdateEvent,
)
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.serving import served

ALICE, BOB, CAROL = "alice@hoge.jp", "bob@hoge.jp", "carol@hoge.jp"
ALICE2, BOB2, CAROL2 = "alice@fuga.jp", "bob@fuga.jp", "carol@fuga.jp"
STRANGER: Final = "xavier@else.org"
BOSS: Final = "boss@hoge.jp"  # has a calendar in the domain, and no mapping
PLAIN: Final = {ALICE: [ALICE2], BOB: [BOB2]}
SOON: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
# What an administrator can ask for, each at `/admin/<act>`.
ACTS: Final = ("reload-mappings", "renew-expiring-channels", "force-register-channels", "stop-channel")


def as_csv(mappings: Mapping[str, Sequence[str]]) -> str:
    lines = [f'{primary},"{",".join(secondaries)}",active' for primary, secondaries in mappings.items()]
    return "\n".join(["primary,secondaries,status", *lines, ""])


def an_hour(start: datetime = SOON) -> dict[str, Any]:
    end = start + timedelta(hours=1)
    return {
        "summary": "Planning",
        "start": {"dateTime": start.isoformat(), "timeZone": "UTC"},
        "end": {"dateTime": end.isoformat(), "timeZone": "UTC"},
    }


def guests(*emails: str) -> list[dict[str, str]]:
    return [{"email": email} for email in emails]


@dataclass
class Harness:
    google: GoogleSimulator
    config: Config
    clock: Clock
    mappings: Path
    runtime: Runtime
    client: aiohttp.ClientSession
    stack: contextlib.AsyncExitStack = field(repr=False)

    @property
    def operations(self) -> CalendarSync:
        operations: CalendarSync = self.runtime.parts["calendar_sync"].operations
        return operations

    @property
    def engine(self) -> SyncEngine:
        return self.operations.engine

    @property
    def channel_key(self) -> bytes:
        """The key that signs the tokens of channels."""
        return next(iter(self.engine.keys.values()))

    # -- people and their calendars ---------------------------------------------------------------

    def map(self, mappings: Mapping[str, Sequence[str]]) -> None:
        self.mappings.write_text(as_csv(mappings))

    def create(self, calendar: str, *emails: str, **fields: Any) -> str:
        event = {**an_hour(), "attendees": guests(*emails), **fields}
        made = self.google.run(CreateEvent(calendar=calendar, event=event))
        assert isinstance(made, dict)
        return str(made["id"])

    def update(self, calendar: str, event_id: str, **patch: Any) -> None:
        self.google.run(UpdateEvent(calendar=calendar, event_id=event_id, patch=patch))

    def invite(self, calendar: str, event_id: str, *emails: str) -> None:
        there = [*self.event(calendar, event_id).get("attendees", []), *guests(*emails)]
        self.update(calendar, event_id, attendees=there)

    def uninvite(self, calendar: str, event_id: str, *emails: str) -> None:
        there = self.event(calendar, event_id).get("attendees", [])
        left = [one for one in there if one["email"].lower() not in emails]
        self.update(calendar, event_id, attendees=left)

    def delete(self, calendar: str, event_id: str) -> None:
        self.google.run(DeleteEvent(calendar=calendar, event_id=event_id))

    def event(self, calendar: str, event_id: str) -> dict[str, Any]:
        shown = self.google.run(ShowCalendar(calendar=calendar))
        assert isinstance(shown, list)
        return next(one for one in shown if one["id"] == event_id)

    def attendees(self, calendar: str, event_id: str) -> list[str]:
        return [one["email"] for one in self.event(calendar, event_id).get("attendees", [])]

    def live(self) -> list[str]:
        """The calendars with a live channel, once for each."""
        channels: Any = self.google.run(ListChannels())
        return sorted(one.calendar for one in channels if one.state == "live")

    def patches(self) -> int:
        return sum(call.method == "PATCH" for call in self.google.calls)

    # -- the service ------------------------------------------------------------------------------

    async def work(self) -> int:
        """Everything that is due, until nothing is; says how many syncs there were."""
        syncs = 0
        while True:
            await self.google.wait_for_pushes()
            done = await self.runtime.inbox_worker.turn() + await self.operations.orders.turn()
            done += await self.engine.channels.turn()
            more = await self.engine.syncs.turn()
            syncs += more
            if not done and not more:
                return syncs

    async def begin(self) -> None:
        """Read the mappings, open the channels, look at every calendar once."""
        await self.engine.refresh()
        await self.work()

    async def later(self, seconds: float) -> None:
        """Time passes, mappings are refreshed as the job does, and everything due is done."""
        assert isinstance(self.clock, ManualClock)
        await self.clock.advance(seconds)
        await self.engine.refresh()
        await self.work()

    def drop_pushes(self, *, on: bool) -> None:
        """Lose every notification from here on, or no more of them."""
        self.google.run(Pushes(act="drop", count=10_000))
        if not on:
            self.google.state.channels.push_faults.clear()

    async def state(self, calendar_id: str) -> CalendarState:
        found = await self.runtime.store.get(CalendarState, calendar_id)
        assert found is not None
        return found.doc

    async def records(self) -> list[SyncedEvent]:
        return (await self.runtime.store.query(Query(SyncedEvent).order_by("event_id"))).docs

    async def orders(self) -> list[Order]:
        return [one.doc async for one in self.runtime.store.scan(Query(Order))]

    async def channels(self, status: str = "active") -> list[WatchChannel]:
        query = Query(WatchChannel).where("status", "==", status).order_by("expiration")
        return (await self.runtime.store.query(query)).docs

    async def restart(self, *, keys: str = "") -> None:
        """Another process on the same store, in place of this one; with other keys if given."""
        await self.runtime.close()
        self.config = msgspec.structs.replace(self.config, keys=keys or self.config.keys)
        self.runtime = await open_runtime(self.config, self.clock)
        self.server.swap(self.runtime)

    server: Any = None

    async def ask(
        self, method: str, path: str, *, token: str | None = None, **more: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        place = f"/calendar-sync{path}"
        async with self.client.request(method, place, headers=headers, **more) as answer:
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.status, await (answer.json() if is_json else answer.text()), answer.headers

    async def metrics(self) -> str:
        bearer = {"authorization": f"Bearer {await self.token('viewer')}"}
        async with self.client.get("/metrics", headers=bearer) as answer:
            assert answer.status == 200
            return await answer.text()

    @property
    def by(self) -> Operator:
        """An administrator."""
        return self.runtime.operator(SERVICE, "-", actor="admin@hoge.jp")

    async def token(self, role: Any = "admin", tenant: str = "-", **more: Any) -> str:
        return await ApiTokens(self.runtime.store).create("test", role=role, tenant_id=tenant, **more)


class SwappableApp:
    """An application that can be exchanged under a running server, as a restart does."""

    def __init__(self) -> None:
        self.app: Any = None
        self._runtime: Runtime | None = None

    def swap(self, runtime: Runtime) -> None:
        """Serve this runtime; its application is made for the first request, which many tests never make."""
        self.app, self._runtime = None, runtime

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.app is None:
            assert self._runtime is not None
            self.app = create_app(self._runtime)
        await self.app(scope, receive, send)


async def open_runtime(config: Config, clock: Clock) -> Runtime:
    """The service in one process, without its heartbeat: months of a test's clock have millions of them."""
    runtime = await Runtime.open(config, services=[service], clock=clock)
    await runtime.processes.end_heartbeat()
    return runtime


@contextlib.asynccontextmanager
async def calendar_harness(
    url: str,
    clock: Clock,
    home: Path,
    *,
    mappings: Mapping[str, Sequence[str]] = PLAIN,
    people: Sequence[str] = (ALICE, BOB, CAROL, BOSS),
    settings: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> AsyncIterator[Harness]:
    """The service without its pages, ready to begin; no loop runs until the test says so."""
    async with contextlib.AsyncExitStack() as stack:
        google = await stack.enter_async_context(GoogleSimulator(clock=clock, http_on_loopback=True))
        for person in people:
            google.run(AddPerson(email=person))
        (home / "key.json").write_bytes(msgspec.json.encode(google.service_account()))
        file = home / "mappings.csv"
        file.write_text(as_csv(mappings))
        app = SwappableApp()
        beneath = uvicorn.Config(app, http="httptools", log_level="warning", lifespan="off", access_log=False)
        address = await stack.enter_async_context(served(beneath))
        table = {
            "service_account": str(home / "key.json"), "mappings": str(file),
            "calendar_url": google.calendar_url, "sheets_url": google.sheets_url, "sync_gap_s": 0,
            **(settings or {}),
        }  # fmt: skip
        base = load_config({"home": home, "store": url, "public_url": address}, environ={})
        config = msgspec.structs.replace(base, service_settings={"calendar_sync": table}, **(more or {}))
        runtime = await open_runtime(config, clock)
        app.swap(runtime)
        client = await stack.enter_async_context(aiohttp.ClientSession(address))
        harness = Harness(google, config, clock, file, runtime, client, stack, app)
        try:
            yield harness
        finally:
            await harness.runtime.close()


def without_fsync(url: str) -> str:
    """The same store, on SQLite without a sync for each commit: for long ways."""
    return f"{url}?synchronous=normal" if url.startswith("sqlite") else url
