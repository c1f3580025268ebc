"""Channels as the service lives them: ids, starts, renewals, orphans, failures."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from holdfast.providers.google_calendar import PushChannel
from holdfast.runtime import Runtime
from holdfast.services.calendar_sync import service
from holdfast.services.calendar_sync.models import ChannelEvent, WatchChannel
from holdfast.simulators.google import AddPerson, InjectedFault, RevokeAccess
from holdfast.store import Query, create
from holdfast.testing import ManualClock
from tests.services.calendar_sync.harness import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    CAROL,
    CAROL2,
    STRANGER,
    Harness,
    calendar_harness,
)

DAY = 86_400
LONG = "a.very-long.local-part_with+tags@" + "sub." * 20 + "example.org"


async def _acts(harness: Harness) -> list[tuple[str, str]]:
    docs = (await harness.runtime.store.query(Query(ChannelEvent).order_by("-at"))).docs
    return [(doc.act, doc.calendar_id) for doc in docs]


async def test_channel_ids_are_readable_and_last_seven_days(harness: Harness, clock: ManualClock) -> None:
    await harness.begin()
    now_ms = int(clock.now().timestamp() * 1000)
    by_calendar = {channel.watched_id: channel for channel in await harness.channels()}
    alice = by_calendar[ALICE]
    assert alice.channel_id == f"calendar-sync-alice-hoge-jp-{now_ms}"
    assert alice.expiration == now_ms + 7 * DAY * 1000
    assert (alice.registered_at, alice.last_updated_at, alice.status) == (now_ms, now_ms, "active")


async def test_ids_stay_short_and_unique_whatever_the_address(quick_harness: Harness) -> None:
    alike = ["a.b@hoge.jp", "a@b.hoge.jp", "a-b@hoge.jp", LONG, LONG.replace("sub.example", "sup.example")]
    for person in alike:
        quick_harness.google.run(AddPerson(email=person))
    quick_harness.map({person: [STRANGER] for person in alike})
    await quick_harness.begin()
    ids = [channel.channel_id for channel in await quick_harness.channels()]
    assert len(set(ids)) == len(alike)
    assert all(re.fullmatch(r"[A-Za-z0-9\-_+/=]{1,64}", one) for one in ids)


async def test_a_renewal_opens_the_new_channel_before_it_stops_the_old_one(harness: Harness) -> None:
    await harness.begin()
    old = {channel.channel_id for channel in await harness.channels()}
    await harness.later(6 * DAY + 3_600)
    assert harness.live() == [ALICE, BOB]
    new = {channel.channel_id for channel in await harness.channels()}
    assert not old & new
    paths = [call.path for call in harness.google.calls if call.path.endswith(("/watch", "/stop"))]
    assert [path.rpartition("/")[2] for path in paths][:2] == ["watch", "watch"]
    assert paths[2].endswith("/watch")
    assert await harness.channels("stopped") == [], "stopped ones are deleted"
    assert (await _acts(harness)).count(("stopped", ALICE)) == 1, "and their history stays"


async def test_stopped_documents_stay_as_long_as_is_set(
    one_url: str, clock: ManualClock, tmp_path: Any
) -> None:
    async with calendar_harness(one_url, clock, tmp_path, settings={"keep_stopped_s": 10 * DAY}) as harness:
        await harness.begin()
        await harness.later(6 * DAY + 3_600)
        assert len(await harness.channels("stopped")) == 2
        await harness.engine.sweep()
        assert len(await harness.channels("stopped")) == 2
        await harness.clock.advance(10 * DAY + 1)  # type: ignore[attr-defined]
        assert (await harness.engine.sweep())["stopped"] == 2
        assert await harness.channels("stopped") == []


async def test_channels_that_ended_while_nobody_ran_are_marked_and_registered_anew(harness: Harness) -> None:
    await harness.begin()
    old = {channel.channel_id for channel in await harness.channels()}
    await harness.clock.advance(8 * DAY)  # type: ignore[attr-defined]
    await harness.restart()
    missed = harness.create(ALICE, STRANGER)
    await harness.engine.refresh()
    await harness.work()
    assert {channel.channel_id for channel in await harness.channels("expired")} == old
    assert not old & {channel.channel_id for channel in await harness.channels()}
    assert harness.live() == [ALICE, BOB]
    assert harness.attendees(ALICE, missed) == [STRANGER, ALICE2]
    await harness.later(31 * DAY)
    swept = await harness.engine.sweep()
    assert swept["WatchChannel"] >= 2
    assert not old & {channel.channel_id for channel in await harness.channels("expired")}


async def test_a_restart_finds_its_channels_and_opens_none(harness: Harness) -> None:
    await harness.begin()
    before = {channel.channel_id for channel in await harness.channels()}
    await harness.restart()
    assert all(harness.engine.channels.has_open(one) for one in before)
    await harness.begin()
    assert {channel.channel_id for channel in await harness.channels()} == before
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]


async def test_two_processes_open_one_channel_for_a_calendar(harness: Harness) -> None:
    other = await Runtime.open(harness.config, services=[service], clock=harness.clock)
    try:
        theirs: Any = other.parts["calendar_sync"].operations.engine
        await asyncio.gather(harness.engine.refresh(), theirs.refresh())
        await asyncio.gather(harness.engine.channels.turn(), theirs.channels.turn())
        assert harness.live() == [ALICE, BOB]
    finally:
        await other.close()


async def test_an_orphan_is_stopped_and_a_new_mapping_gets_a_channel(harness: Harness) -> None:
    await harness.begin()
    harness.map({ALICE: [ALICE2], CAROL: [CAROL2]})
    await harness.engine.refresh()
    await harness.work()
    assert harness.live() == [ALICE, CAROL]
    assert ("stopped", BOB) in await _acts(harness)
    harness.map({ALICE: [ALICE2], BOB: [BOB2]})
    await harness.engine.refresh()
    await harness.work()
    assert harness.live() == [ALICE, BOB]


async def test_channels_on_record_from_elsewhere_are_taken_over(quick_harness: Harness) -> None:
    """A store that another program filled: its channels are used, and orphans are stopped."""
    harness = quick_harness
    ends_ms = int(harness.clock.now().timestamp() * 1000) + 5 * DAY * 1000
    for person in (ALICE, CAROL):
        google = harness.engine.google.calendar(person)
        made = await google.watch_events(person, PushChannel(
            id=f"old-{person.partition('@')[0]}",
            address=f"{harness.config.public_url}/calendar-sync/webhook", token="x", expiration=str(ends_ms),
        ))  # fmt: skip
        await harness.runtime.store.commit(create(WatchChannel(
            channel_id=made.id, resource_id=made.resource_id, watched_id=person, expiration=ends_ms,
            registered_at=1, last_updated_at=1,
        )))  # fmt: skip
    await harness.begin()
    assert harness.live() == [ALICE, BOB]
    assert "old-alice" in {channel.channel_id for channel in await harness.channels()}


async def test_a_watch_that_fails_is_tried_again_and_shown(quick_harness: Harness) -> None:
    harness = quick_harness
    harness.google.inject(InjectedFault(count=2, path="/watch", status=500, reason="backendError"))
    await harness.engine.refresh()
    await harness.engine.channels.turn()
    report = await harness.engine.status()
    assert report.status() == "critical", "wanted, and nothing is live"
    assert report.channels.failing == 2
    await harness.later(20)
    assert harness.live() == [ALICE, BOB]
    assert (await harness.engine.status()).status() == "ok"


async def test_a_stop_that_fails_leaves_an_old_channel_no_longer_than_it_must(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    harness.google.inject(InjectedFault(count=2, path="/stop", status=500, reason="backendError"))
    await harness.later(6 * DAY + 3_600)
    assert harness.live() == [ALICE, ALICE, BOB, BOB]
    await harness.later(60)
    assert harness.live() == [ALICE, BOB]


async def test_a_lost_answer_to_watch_leaves_no_unknown_channel(quick_harness: Harness) -> None:
    harness = quick_harness
    harness.google.inject(InjectedFault(count=1, path="/watch", status=502, late=True))
    await harness.begin()
    await harness.later(60)
    await harness.later(60)
    assert harness.live() == [ALICE, BOB]


async def test_revoked_credentials_end_renewals_and_say_so(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    harness.google.run(RevokeAccess(email=ALICE))
    await harness.later(6 * DAY + 3_600)
    calls = len(harness.google.calls)
    await harness.engine.channels.turn()
    assert len(harness.google.calls) == calls, "nobody goes on asking"
    report = await harness.engine.status()
    assert (report.status(), report.response().needs_attention) == ("degraded", 1)
    assert ("attention", ALICE) in await _acts(harness)
    text = await harness.metrics()
    assert "holdfast_calendar_sync_channels_need_attention 1.0" in text
