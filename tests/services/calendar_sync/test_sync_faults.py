"""What can go wrong around a sync: lost and doubled notifications, refusals, crashes, lost credentials."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.kit.inbox import InboxItem
from holdfast.providers.google_calendar import channel_token
from holdfast.simulators.google import InjectedFault, Pushes, Restore, RevokeAccess
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.services.calendar_sync.crashing_process import CrashError, CrashingProcess, Fuse
from tests.services.calendar_sync.harness import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    BOSS,
    STRANGER,
    Harness,
    calendar_harness,
    guests,
    without_fsync,
)


async def test_lost_notifications_are_made_up_for_by_the_safety_poll(harness: Harness) -> None:
    await harness.begin()
    harness.google.run(Pushes(act="drop", count=10))
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER]
    await harness.later(6 * 3_600 + 60)
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]


async def test_doubled_notifications_add_nobody_twice(harness: Harness) -> None:
    await harness.begin()
    harness.google.run(Pushes(act="double", count=20))
    event_id = harness.create(ALICE, STRANGER, BOB)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, BOB, BOB2]


@pytest.mark.parametrize(("status", "reason"), [(500, "backendError"), (429, "rateLimitExceeded")])
async def test_what_google_can_not_do_now_is_tried_again(
    quick_harness: Harness, status: int, reason: str
) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(ALICE, STRANGER)
    harness.google.inject(
        InjectedFault(count=1, method="PATCH", status=status, reason=reason, retry_after_s=7_200)
    )
    await harness.work()
    state = await harness.state(ALICE)
    assert (state.status, state.failures) == ("failing", 1)
    assert state.due_at is not None
    assert (state.due_at - harness.clock.now()).total_seconds() >= 7_199
    assert (await harness.engine.status()).status() == "degraded"
    await harness.later(7_300)
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert (await harness.engine.status()).status() == "ok"


@pytest.mark.parametrize(("status", "reason"), [(400, "invalid"), (403, "forbidden")])
async def test_what_google_refuses_is_told_and_not_tried_again(
    quick_harness: Harness, status: int, reason: str
) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(ALICE, STRANGER)
    harness.google.inject(InjectedFault(count=1, method="PATCH", status=status, reason=reason))
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER]
    state = await harness.state(ALICE)
    assert (state.status, state.results[0].result) == ("fine", "failed")


async def test_an_answer_that_was_lost_on_the_way_adds_nobody_twice(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(ALICE, STRANGER)
    harness.google.inject(InjectedFault(count=1, method="PATCH", status=503, late=True))
    working = asyncio.create_task(harness.work())
    while not working.done():
        await harness.clock.advance(1)  # type: ignore[attr-defined]
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    harness.uninvite(ALICE, event_id, STRANGER)
    harness.update(ALICE, event_id, attendees=guests(ALICE2, BOB))
    await harness.work()
    (record,) = await harness.records()
    assert sorted(record.added) == [ALICE2, BOB2]


async def test_lost_credentials_need_attention_and_are_noticed_when_they_work_again(harness: Harness) -> None:
    await harness.begin()
    harness.google.run(RevokeAccess(email=ALICE))
    await harness.later(6 * 3_600 + 60)
    state = await harness.state(ALICE)
    assert state.status == "attention"
    assert (await harness.engine.status()).status() == "degraded"
    await harness.later(6 * 86_400)
    report = await harness.engine.status()
    assert [one.watched_id for one in report.channels.attention] == [ALICE]
    assert report.response().needs_attention == 1
    assert f"needs attention, credentials are gone: {ALICE}" in report.health().reasons
    event_id = harness.create(ALICE, STRANGER)
    harness.google.run(Restore(email=ALICE))
    await harness.later(3_700)
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert harness.live() == [ALICE, BOB]
    assert (await harness.engine.status()).status() == "ok"


async def _die_while_syncing(harness: Harness, after: int) -> bool:
    """Sync in a process that dies at a step; False when it had fewer steps."""
    process = CrashingProcess(harness, Fuse(after))
    await harness.google.wait_for_pushes()
    try:
        while await process.inbox.turn() + await process.engine.syncs.turn():
            await harness.google.wait_for_pushes()
    except CrashError:
        return True
    finally:
        await process.close()
    return False


async def test_a_crash_at_any_step_of_a_sync_loses_nothing_and_adds_nobody_twice(
    one_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with calendar_harness(without_fsync(one_url), clock, tmp_path) as harness:
        await harness.begin()
        crashes = 0
        while await _lives_on_after(harness, clock, crashes):
            crashes += 1
    assert crashes >= 20, "there are more steps than that"


async def _lives_on_after(harness: Harness, clock: ManualClock, crash: int) -> bool:
    """Alice leaves an event and Bob joins it, while the process that should see to it dies."""
    event_id = harness.create(BOSS, ALICE, STRANGER)
    await harness.work()
    before = [await harness.state(one) for one in (ALICE, BOB)]
    harness.update(BOSS, event_id, attendees=guests(STRANGER, ALICE2, BOB))
    died = await _die_while_syncing(harness, crash)
    for old in before:
        new = await harness.state(old.calendar_id)
        assert new.sync_token == old.sync_token or new.syncs > old.syncs, "a token without its sync"
    await clock.advance(301)
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [STRANGER, BOB, BOB2], f"crash point {crash}"
    assert [record.added for record in await harness.records()] == [[BOB2]], f"crash point {crash}"
    harness.delete(BOSS, event_id)
    await harness.work()
    assert await harness.records() == []
    return died


async def test_a_thousand_notifications_at_once_are_at_most_two_syncs(one_url: str, tmp_path: Path) -> None:
    async with calendar_harness(
        one_url, SystemClock(), tmp_path, mappings={ALICE: [ALICE2]}, settings={"sync_gap_s": 1.0}
    ) as harness:
        await harness.begin()
        (channel,) = await harness.channels()
        event_id = harness.create(ALICE, STRANGER, ALICE2)
        await harness.google.wait_for_pushes()
        syncs = (await harness.state(ALICE)).syncs
        await _notify(harness, channel.channel_id, range(10_000, 11_000))
        stop = asyncio.Event()
        working = asyncio.create_task(harness.runtime.work(stop))
        await _drained(harness)
        stop.set()
        await working
        assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
        assert 1 <= (await harness.state(ALICE)).syncs - syncs <= 2


async def _notify(harness: Harness, channel_id: str, numbers: range) -> None:
    token = channel_token(harness.channel_key, channel_id)
    gate = asyncio.Semaphore(50)

    async def post(number: int) -> None:
        headers = {
            "x-goog-channel-id": channel_id, "x-goog-channel-token": token, "x-goog-resource-id": "r",
            "x-goog-resource-state": "exists", "x-goog-message-number": str(number),
        }  # fmt: skip
        async with gate:
            status, _, _ = await harness.ask("POST", "/webhook", headers=headers)
            assert status == 200

    await asyncio.gather(*(post(number) for number in numbers))


async def _drained(harness: Harness) -> None:
    """Wait until nothing is left in the inbox and the calendar has nothing to look at."""
    store = harness.runtime.store.privileged()
    async with asyncio.timeout(60):
        while True:
            await harness.google.wait_for_pushes()
            pending = await store.count(
                Query(InboxItem).where("status", "==", "pending").order_by("-received_at")
            )
            working = await store.count(
                Query(InboxItem).where("status", "==", "processing").order_by("-received_at")
            )
            state = await harness.state(ALICE)
            if not pending and not working and state.asked == state.taken and not state.owner:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("asked_s", [999_999_999, 99_999_999_999])
async def test_a_wait_that_nobody_lives_to_see_is_cut_to_a_day(
    quick_harness: Harness, clock: ManualClock, asked_s: int
) -> None:
    await quick_harness.begin()
    event_id = quick_harness.create(ALICE, STRANGER)
    trouble = InjectedFault(count=1, path="/events", method="GET", status=503, retry_after_s=asked_s)
    quick_harness.google.inject(trouble)
    await quick_harness.work()
    assert (await quick_harness.state(ALICE)).status == "failing"
    await quick_harness.later(86_400)
    assert quick_harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
