"""Scenarios for the operations of calendar_sync, against the simulated Google."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.services.calendar_sync.operations import DAY_MS, CalendarSync
from holdfast.testing import ManualClock
from tests.operations.commit_log import CommitLog
from tests.operations.scenarios import World, scenario
from tests.services.calendar_sync.harness import ALICE, ALICE2, CAROL, CAROL2, Harness, calendar_harness

# Notifications of the provider arrive meanwhile, in the inbox.
_ORDER = "the order is committed with the event, and carried out afterwards by whichever process holds it"
_CARRIED_OUT = (
    "CalendarState", "ChannelEvent", "InboxItem", "MappingReload", "Order", "UserMapping", "Watch",
    "WatchChannel",
)  # fmt: skip


@contextlib.asynccontextmanager
async def _calendars(world: World) -> AsyncIterator[Harness]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with calendar_harness(f"sqlite:///{home / 'calendars.db'}", ManualClock(), home) as harness:
            await harness.begin()
            world.log = CommitLog(harness.runtime.store)
            yield harness


@scenario(CalendarSync.reload, follow_up=_CARRIED_OUT, why=_ORDER)
async def _(world: World) -> None:
    async with _calendars(world) as harness:
        harness.map({ALICE: [ALICE2], CAROL: [CAROL2]})
        await world.act(harness.operations.reload(harness.by))


@scenario(CalendarSync.renew, follow_up=_CARRIED_OUT, why=_ORDER)
async def _(world: World) -> None:
    async with _calendars(world) as harness:
        await world.act(harness.operations.renew(harness.by, threshold_ms=8 * DAY_MS))


@scenario(CalendarSync.force, follow_up=_CARRIED_OUT, why=_ORDER)
async def _(world: World) -> None:
    async with _calendars(world) as harness:
        await world.act(harness.operations.force(harness.by, reason="walk"))


@scenario(
    CalendarSync.stop_channel, follow_up=("ChannelEvent", "InboxItem", "Watch", "WatchChannel"),
    why="the reconciler calls the provider after the release is committed",
)  # fmt: skip
async def _(world: World) -> None:
    async with _calendars(world) as harness:
        (channel, *_) = await harness.channels()
        await world.act(harness.operations.stop_channel(harness.by, channel.channel_id))


@scenario(CalendarSync.request_sync)
async def _(world: World) -> None:
    async with _calendars(world) as harness:
        await world.act(harness.operations.request_sync(harness.by, ALICE, full=True))
