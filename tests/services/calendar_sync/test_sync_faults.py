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
from tests.services.calendar_sync.bed import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    BOSS,
    STRANGER,
    Bed,
    calendar_bed,
    guests,
    hasty,
)
from tests.services.calendar_sync.crashing import CrashError, Doomed, Fuse


async def test_lost_notifications_are_made_up_for_by_the_safety_poll(bed: Bed) -> None:
    await bed.begin()
    bed.google.run(Pushes(act="drop", count=10))
    event_id = bed.create(ALICE, STRANGER)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER]
    await bed.later(6 * 3_600 + 60)
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]


async def test_doubled_notifications_add_nobody_twice(bed: Bed) -> None:
    await bed.begin()
    bed.google.run(Pushes(act="double", count=20))
    event_id = bed.create(ALICE, STRANGER, BOB)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER, BOB, BOB2]


@pytest.mark.parametrize(("status", "reason"), [(500, "backendError"), (429, "rateLimitExceeded")])
async def test_what_google_can_not_do_now_is_tried_again(quick_bed: Bed, status: int, reason: str) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    bed.google.trouble(
        InjectedFault(count=1, method="PATCH", status=status, reason=reason, retry_after_s=7_200)
    )
    await bed.work()
    state = await bed.state(ALICE)
    assert (state.standing, state.failures) == ("failing", 1)
    assert state.due_at is not None
    assert (state.due_at - bed.clock.now()).total_seconds() >= 7_199
    assert (await bed.operations.look()).status() == "degraded"
    await bed.later(7_300)
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert (await bed.operations.look()).status() == "ok"


@pytest.mark.parametrize(("status", "reason"), [(400, "invalid"), (403, "forbidden")])
async def test_what_google_refuses_is_told_and_not_tried_again(
    quick_bed: Bed, status: int, reason: str
) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    bed.google.trouble(InjectedFault(count=1, method="PATCH", status=status, reason=reason))
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER]
    state = await bed.state(ALICE)
    assert (state.standing, state.results[0].result) == ("fine", "failed")


async def test_an_answer_that_was_lost_on_the_way_adds_nobody_twice(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    bed.google.trouble(InjectedFault(count=1, method="PATCH", status=503, late=True))
    working = asyncio.create_task(bed.work())
    while not working.done():
        await bed.clock.advance(1)  # type: ignore[attr-defined]
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    bed.uninvite(ALICE, event_id, STRANGER)
    bed.update(ALICE, event_id, attendees=guests(ALICE2, BOB))
    await bed.work()
    (record,) = await bed.records()
    assert sorted(record.added) == [ALICE2, BOB2]


async def test_lost_credentials_need_attention_and_are_noticed_when_they_work_again(bed: Bed) -> None:
    await bed.begin()
    bed.google.run(RevokeAccess(email=ALICE))
    await bed.later(6 * 3_600 + 60)
    state = await bed.state(ALICE)
    assert state.standing == "attention"
    assert (await bed.operations.look()).status() == "degraded"
    await bed.later(6 * 86_400)
    look = await bed.operations.look()
    assert [one.watched_id for one in look.channels.attention] == [ALICE]
    assert look.told().needs_attention == 1
    assert f"needs attention, credentials are gone: {ALICE}" in look.health().reasons
    event_id = bed.create(ALICE, STRANGER)
    bed.google.run(Restore(email=ALICE))
    await bed.later(3_700)
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert bed.live() == [ALICE, BOB]
    assert (await bed.operations.look()).status() == "ok"


async def _die_while_syncing(bed: Bed, after: int) -> bool:
    """Sync in a process that dies at a step; False when it had fewer steps."""
    doomed = Doomed(bed, Fuse(after))
    await bed.google.pushed()
    try:
        while await doomed.inbox.turn() + await doomed.operations.syncs.turn():
            await bed.google.pushed()
    except CrashError:
        return True
    finally:
        await doomed.close()
    return False


async def test_a_crash_at_any_step_of_a_sync_loses_nothing_and_adds_nobody_twice(
    one_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with calendar_bed(hasty(one_url), clock, tmp_path) as bed:
        await bed.begin()
        crashes = 0
        while await _lives_on_after(bed, clock, crashes):
            crashes += 1
    assert crashes >= 20, "there are more steps than that"


async def _lives_on_after(bed: Bed, clock: ManualClock, crash: int) -> bool:
    """Alice leaves an event and Bob joins it, while the process that should see to it dies."""
    event_id = bed.create(BOSS, ALICE, STRANGER)
    await bed.work()
    before = [await bed.state(one) for one in (ALICE, BOB)]
    bed.update(BOSS, event_id, attendees=guests(STRANGER, ALICE2, BOB))
    died = await _die_while_syncing(bed, crash)
    for old in before:
        new = await bed.state(old.calendar_id)
        assert new.sync_token == old.sync_token or new.syncs > old.syncs, "a token without its sync"
    await clock.advance(301)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [STRANGER, BOB, BOB2], f"crash point {crash}"
    assert [record.added for record in await bed.records()] == [[BOB2]], f"crash point {crash}"
    bed.delete(BOSS, event_id)
    await bed.work()
    assert await bed.records() == []
    return died


async def test_a_thousand_notifications_at_once_are_at_most_two_syncs(one_url: str, tmp_path: Path) -> None:
    async with calendar_bed(
        one_url, SystemClock(), tmp_path, mappings={ALICE: [ALICE2]}, settings={"sync_gap_s": 1.0}
    ) as bed:
        await bed.begin()
        (channel,) = await bed.channels()
        event_id = bed.create(ALICE, STRANGER, ALICE2)
        await bed.google.pushed()
        syncs = (await bed.state(ALICE)).syncs
        await _notify(bed, channel.channel_id, range(10_000, 11_000))
        stop = asyncio.Event()
        working = asyncio.create_task(bed.runtime.work(stop))
        await _drained(bed)
        stop.set()
        await working
        assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
        assert 1 <= (await bed.state(ALICE)).syncs - syncs <= 2


async def _notify(bed: Bed, channel_id: str, numbers: range) -> None:
    token = channel_token(bed.operations.keys[0], channel_id)
    gate = asyncio.Semaphore(50)

    async def post(number: int) -> None:
        headers = {
            "x-goog-channel-id": channel_id, "x-goog-channel-token": token, "x-goog-resource-id": "r",
            "x-goog-resource-state": "exists", "x-goog-message-number": str(number),
        }  # fmt: skip
        async with gate:
            status, _, _ = await bed.ask("POST", "/webhook", headers=headers)
            assert status == 200

    await asyncio.gather(*(post(number) for number in numbers))


async def _drained(bed: Bed) -> None:
    """Wait until nothing is left in the inbox and the calendar has nothing to look at."""
    store = bed.runtime.store.privileged()
    async with asyncio.timeout(60):
        while True:
            await bed.google.pushed()
            pending = await store.count(
                Query(InboxItem).where("status", "==", "pending").order_by("-received_at")
            )
            working = await store.count(
                Query(InboxItem).where("status", "==", "processing").order_by("-received_at")
            )
            state = await bed.state(ALICE)
            if not pending and not working and state.asked == state.taken and not state.owner:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("asked_s", [999_999_999, 99_999_999_999])
async def test_a_wait_that_nobody_lives_to_see_is_cut_to_a_day(
    quick_bed: Bed, clock: ManualClock, asked_s: int
) -> None:
    await quick_bed.begin()
    event_id = quick_bed.create(ALICE, STRANGER)
    trouble = InjectedFault(count=1, path="/events", method="GET", status=503, retry_after_s=asked_s)
    quick_bed.google.trouble(trouble)
    await quick_bed.work()
    assert (await quick_bed.state(ALICE)).standing == "failing"
    await quick_bed.later(86_400)
    assert quick_bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
