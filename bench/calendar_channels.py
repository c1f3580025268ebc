"""Ten thousand watch channels: time to ready, renewals at the provider's speed, and status reports."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from bench.measure import Goal, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.config import Config, load_config
from holdfast.kit.channels import ChannelPolicy, Channels, Opened
from holdfast.runtime import Runtime, documents_of
from holdfast.services.calendar_sync import service
from holdfast.services.calendar_sync.models import MappingReload, UserMapping, WatchChannel
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.sync.engine import NAME
from holdfast.services.calendar_sync.table import as_table
from holdfast.store import Store, put

CHANNELS, QUICK_CHANNELS = 10_000, 1_000
RENEWED, QUICK_RENEWED = 1_000, 200
CALL_S = 0.1
AT_ONCE = 64
READY_S = 2.0
TABLE_S = 0.5
_CLOCK = SystemClock()


class _Ahead(SystemClock):
    """The machine's clock, some days ahead, so that channels are due for renewal."""

    def __init__(self) -> None:
        self.days = 0.0

    def now_us(self) -> int:
        return super().now_us() + round(self.days * 86_400e6)


class _Google:
    """A provider that answers every call after `CALL_S`."""

    def __init__(self, call_s: float, clock: SystemClock) -> None:
        self._call_s, self._clock = call_s, clock

    async def open(self, watched_id: str, *, channel_id: str, token: str, ttl_s: float) -> Opened:
        await asyncio.sleep(self._call_s)
        return Opened(resource_id="r", expires_at=self._clock.now() + timedelta(seconds=ttl_s))

    async def stop(self, watched_id: str, *, channel_id: str, resource_id: str) -> None:
        await asyncio.sleep(self._call_s)


def _channels(store: Store, call_s: float, clock: SystemClock = _CLOCK) -> Channels:
    life = ChannelPolicy(concurrency=AT_ONCE)
    keys = {"k": b"k" * 32}
    return Channels(store, _Google(call_s, clock), name=NAME, keys=keys, kind=WatchChannel, life=life)


async def _filled(url: str, count: int) -> None:
    """The store of a service with so many mapped and watched calendars."""
    store = await open_store(url, documents_of([service]))
    await store.migrate()
    people = [f"person-{number}@hoge.jp" for number in range(count)]
    now = _CLOCK.now()
    for start in range(0, count, 500):
        some = people[start : start + 500]
        made = [UserMapping(primary_email=one, secondary_emails=[f"x-{one}"], updated_at=now) for one in some]
        await store.settle([[put(mapping)] for mapping in made])
    reload = MappingReload(id="last", digest="d", mappings=count, loaded_at=now, tried_at=now)
    await store.commit(put(reload))
    channels = _channels(store, 0.0)
    await channels.set_wanted(people)
    await channels.turn()
    await store.close()


def _config(url: str, home: Path) -> Config:
    home.joinpath("m.csv").write_text("")
    table = {"service_account": str(home / "key.json"), "mappings": str(home / "m.csv")}
    base = load_config({"home": home, "store": url, "public_url": "http://127.0.0.1:1"}, environ={})
    return msgspec.structs.replace(base, services={"calendar_sync": table})


async def _limit(limit: float) -> float:
    return limit


@asynccontextmanager
async def starting(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Start-up until every mapping and channel is loaded."""
    url = place.url(engine)
    await _filled(url, place.scale(CHANNELS, QUICK_CHANNELS))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        config = _config(url, Path(folder))

        async def ours() -> float:
            began = time.perf_counter()
            runtime = await Runtime.open(config, services=[service])
            operations: CalendarSync = runtime.parts["calendar_sync"].operations
            await operations.engine.channels.set_wanted(operations.engine.mappings.entries)
            took = time.perf_counter() - began
            await runtime.close()
            return took

        yield Ways(ours, lambda: _limit(READY_S))


@asynccontextmanager
async def looking(place: Place, engine: str) -> AsyncIterator[Ways]:
    """A thousand of ten thousand rows as a table, with the summary and health of all."""
    url = place.url(engine)
    await _filled(url, place.scale(CHANNELS, QUICK_CHANNELS))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        runtime = await Runtime.open(_config(url, Path(folder)), services=[service])
        operations: CalendarSync = runtime.parts["calendar_sync"].operations

        async def ours() -> float:
            began = time.perf_counter()
            as_table(await operations.channel_status(limit=1_000))
            return time.perf_counter() - began

        yield Ways(ours, lambda: _limit(TABLE_S))
        await runtime.close()


@asynccontextmanager
async def renewing(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Renew every channel on its last day, against the same provider calls alone."""
    count, clock = place.scale(RENEWED, QUICK_RENEWED), _Ahead()
    store = await open_store(place.url(engine), documents_of([service]), clock=clock)
    await store.migrate()
    google, channels = _Google(CALL_S, clock), _channels(store, CALL_S, clock)
    await channels.set_wanted([f"person-{number}@hoge.jp" for number in range(count)])
    await channels.turn()

    async def ours() -> float:
        clock.days += 6.5
        began = time.perf_counter()
        assert await channels.turn() == count
        return count / (time.perf_counter() - began)

    async def bare() -> float:
        gate = asyncio.Semaphore(AT_ONCE)

        async def renew() -> None:
            async with gate:
                await google.open("p", channel_id="c", token="t", ttl_s=1.0)
                await google.stop("p", channel_id="c", resource_id="r")

        began = time.perf_counter()
        await asyncio.gather(*(renew() for _ in range(count)))
        return count / (time.perf_counter() - began)

    yield Ways(ours, bare)
    await store.close()


ENGINES = ("sqlite full", "postgres")
WORKLOADS = [
    Workload(
        name="calendar_sync: 10,000 channels, start to ready",
        quick_name="calendar_sync: 1,000 channels, start to ready",
        engines=ENGINES, unit="s", goal=Goal(1.0, at_most=True), other_name="limit", open=starting, turns=3,
    ),
    Workload(
        name="calendar_sync: channel-status of 10,000 as a table",
        quick_name="calendar_sync: channel-status of 1,000", engines=ENGINES, unit="s",
        goal=Goal(1.0, at_most=True), other_name="limit", open=looking, turns=3,
    ),
    Workload(
        name="calendar_sync: renewals, 100 ms a call, 64 at once", engines=ENGINES, unit="channels/s",
        goal=Goal(0.8), other_name="bare calls", open=renewing, turns=1,
    ),
]  # fmt: skip
