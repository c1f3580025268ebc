"""Scenarios for the operations of c4lendar, against the simulated Telegram and Google."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.services.c4lendar.domain.kv_layout import read_pairs
from holdfast.services.c4lendar.domain.parser import EventDetails
from holdfast.services.c4lendar.models import BotEvent
from holdfast.services.c4lendar.operations import ChatOperations
from tests.operations.commit_log import CommitLog
from tests.operations.scenarios import World, scenario
from tests.services.c4lendar.harness import ALICE, ANA, Harness, chat_harness

ZONE = ZoneInfo("Europe/Berlin")


@contextlib.asynccontextmanager
async def _chat(world: World) -> AsyncIterator[tuple[Harness, Operator]]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with chat_harness(f"sqlite:///{home / 'chats.db'}", home) as harness:
            await harness.connect(ALICE)
            world.log = CommitLog(harness.runtime.store)
            yield harness, harness.runtime.operator(SERVICE, str(ANA), actor="telegram:7")


def _lunch(harness: Harness) -> EventDetails:
    start = harness.clock.now() + timedelta(days=1)
    return EventDetails(title="lunch", start=start, end=start + timedelta(hours=1))


async def _made(harness: Harness, by: Operator) -> BotEvent:
    now = harness.clock.now()
    return await harness.operations.create_event(by, _lunch(harness), key="k1", made_at=now, zone=ZONE)


@scenario(ChatOperations.approve_chat)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        await world.act(harness.operations.approve_chat(by, str(ANA)))


@scenario(ChatOperations.revoke_chat)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        await world.act(harness.operations.revoke_chat(by, str(ANA)))


@scenario(ChatOperations.set_time_zone)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        await world.act(harness.operations.set_time_zone(by, str(ANA), time_zone="Asia/Tokyo"))


@scenario(ChatOperations.create_event)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        await world.act(_made(harness, by))


@scenario(ChatOperations.change_event)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        event = await _made(harness, by)
        changing = harness.operations.change_event(
            by, event.uid, details=_lunch(harness), key="k2", version=event.version
        )
        assert (await world.act(changing)).version == 2


@scenario(ChatOperations.delete_event)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        event = await _made(harness, by)
        assert (await world.act(harness.operations.delete_event(by, event.uid, key="k2"))).deleted


@scenario(ChatOperations.undo)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        event = await _made(harness, by)
        assert (await world.act(harness.operations.undo(by, event.uid, key="k2"))).deleted


@scenario(
    ChatOperations.disconnect, follow_up=("Connection", "EventMapping"),
    why="Google is told after the end is committed, and the account's rows are deleted in batches",
)  # fmt: skip
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        [account] = await harness.operations.accounts(str(ANA))
        await world.act(harness.operations.disconnect(by, account.google_sub))


@scenario(
    ChatOperations.import_kv,
    follow_up=("BotChat", "BotEvent", "Connection", "EventMapping", "GoogleConnection"),
    why="the import is on record before its rows are stored, each in a commit of its own",
)  # fmt: skip
async def _(world: World) -> None:
    async with _chat(world) as (harness, _):
        at, uid = "2026-01-05T10:30:00.000Z", "01JBZQ8F7VKPNX3QZ9M8J5K2W7"
        value = {
            "chat_id": "-5", "bot_event_uid": uid, "google_sub": "1", "google_event_id": "x",
            "created_at": at, "updated_at": at,
        }  # fmt: skip
        pair = {"key": f"gc:event:-5:{uid}:1", "value": msgspec.json.encode(value).decode()}
        by = harness.runtime.operator(SERVICE, "-")
        await world.act(harness.operations.import_kv(by, read_pairs(msgspec.json.encode([pair]))))


@scenario(ChatOperations.retry_event)
async def _(world: World) -> None:
    async with _chat(world) as (harness, by):
        event = await _made(harness, by)
        await world.act(harness.operations.retry_event(by, event.uid))


@scenario(ChatOperations.export_kv, changes=False)
async def _(world: World) -> None:
    async with _chat(world) as (harness, _):
        by = harness.runtime.operator(SERVICE, "-")
        assert await world.act(harness.operations.export_kv(by))
