"""How a calendar is brought up to date: pages, tokens, deletions, other people's edits, crashes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.kit.inbox import InboxItem, channel_token
from holdfast.services.calendar_sync.models import SyncedEvent
from holdfast.simulators.google import ExpireSyncTokens, Pushes, Restore, Revoke, Trouble
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.services.calendar_sync.bed import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    BOSS,
    CAROL,
    SOON,
    STRANGER,
    Bed,
    calendar_bed,
    guests,
    hasty,
)  # fmt: skip
from tests.services.calendar_sync.crashing import CrashError, Doomed, Fuse


def _lists(bed: Bed) -> int:
    return sum(call.method == "GET" and call.path.endswith("/events") for call in bed.google.calls)


async def _records(bed: Bed) -> list[SyncedEvent]:
    return (await bed.runtime.store.query(Query(SyncedEvent).order_by("event_id"))).docs


async def test_a_first_sync_reads_every_page_and_keeps_the_token_with_the_last(quick_bed: Bed) -> None:
    bed = quick_bed
    ids = [bed.create(ALICE, STRANGER) for _ in range(450)]
    await bed.begin()
    assert all(bed.attendees(ALICE, one) == [STRANGER, ALICE2] for one in ids[::50])
    assert bed.patches() == 450
    state = await bed.state(ALICE)
    assert state.sync_token
    assert state.standing == "fine"
    before = _lists(bed)
    await bed.keeper.syncs.turn()
    assert _lists(bed) == before
    assert len(await _records(bed)) == 100, "a page of them"


async def test_past_events_are_left_alone_at_first(quick_bed: Bed) -> None:
    past = quick_bed.create(ALICE, STRANGER, start={"dateTime": "2020-01-01T09:00:00Z", "timeZone": "UTC"},
                            end={"dateTime": "2020-01-01T10:00:00Z", "timeZone": "UTC"})  # fmt: skip
    await quick_bed.begin()
    assert quick_bed.attendees(ALICE, past) == [STRANGER]


async def test_a_cancelled_event_is_skipped_and_its_record_goes(bed: Bed) -> None:
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    await bed.work()
    assert [record.added for record in await _records(bed)] == [[ALICE2]]
    bed.delete(ALICE, event_id)
    await bed.work()
    assert await _records(bed) == []
    (result, *_) = (await bed.state(ALICE)).results
    assert (result.result, result.reason) == ("skipped", "Event cancelled")


async def test_results_are_told_for_each_event(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, ALICE, STRANGER)
    await bed.work()
    again, added = (await bed.state(ALICE)).results
    assert (added.event_id, added.result, added.added) == (event_id, "added", (ALICE2,))
    assert (again.result, again.reason) == ("skipped", "All secondaries already present")
    bed.update(ALICE, event_id, attendees=guests(ALICE, STRANGER, ALICE2, BOB, BOB2))
    await bed.work()
    bed.map({ALICE: ["alice@piyo.jp"], BOB: [BOB2]})
    await bed.keeper.refresh()
    await bed.work()
    changed = next(one for one in (await bed.state(ALICE)).results if one.result == "changed")
    assert (changed.added, changed.removed) == (("alice@piyo.jp",), (ALICE2,))
    bed.map({CAROL: ["carol@fuga.jp"]})
    await bed.keeper.refresh()
    bed.invite(ALICE, event_id, CAROL)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [ALICE, STRANGER, BOB, BOB2, CAROL, "carol@fuga.jp"]


async def test_a_hand_invited_secondary_survives_its_primary(bed: Bed) -> None:
    await bed.begin()
    event_id = bed.create(BOSS, ALICE, ALICE2, BOB)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [ALICE, ALICE2, BOB, BOB2]
    bed.uninvite(BOSS, event_id, ALICE, BOB)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [ALICE2]


async def test_a_guest_list_that_guests_may_not_extend_is_changed_as_the_organizer(quick_bed: Bed) -> None:
    await quick_bed.begin()
    event_id = quick_bed.create(BOSS, ALICE, guestsCanInviteOthers=False)
    await quick_bed.work()
    assert quick_bed.attendees(BOSS, event_id) == [ALICE, ALICE2]


async def test_an_organizer_out_of_reach_is_told_and_not_asked_again(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(BOSS, ALICE, guestsCanInviteOthers=False)
    bed.google.run(Revoke(email=BOSS))
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [ALICE]
    (result, *_) = (await bed.state(ALICE)).results
    assert result.result == "failed"
    assert "invalid_grant" in result.reason
    calls = len(bed.google.calls)
    assert await bed.work() == 0
    assert len(bed.google.calls) == calls


async def test_an_edit_by_somebody_else_at_the_same_moment_is_never_lost(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    calendar = bed.keeper.google.calendar(ALICE)
    patch_event, edits = calendar.patch_event, iter(["first", "second", "third"])

    async def meanwhile(*words: Any, **named: Any) -> Any:
        title = next(edits, None)
        if title is not None:
            bed.invite(ALICE, event_id, f"{title}@else.org")
        return await patch_event(*words, **named)

    calendar.patch_event = meanwhile  # type: ignore[method-assign]
    await bed.work()
    there = ["first@else.org", "second@else.org", "third@else.org"]
    assert bed.attendees(ALICE, event_id) == [STRANGER, *there, ALICE2]


async def test_a_series_is_updated_once_however_many_instances_it_has(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    for count in (1, 10, 1_000):
        before = bed.patches()
        event_id = bed.create(ALICE, STRANGER, recurrence=[f"RRULE:FREQ=DAILY;COUNT={count}"])
        await bed.work()
        assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
        assert bed.patches() == before + 1, f"{count} instances"


async def test_an_exception_with_guests_of_its_own_is_handled_as_itself(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    series = bed.create(ALICE, STRANGER, recurrence=["RRULE:FREQ=DAILY;COUNT=5"])
    await bed.work()
    one = f"{series}_{(SOON + timedelta(days=1)).strftime('%Y%m%dT%H%M%SZ')}"
    bed.update(ALICE, one, attendees=guests(STRANGER, ALICE2, BOB))
    await bed.work()
    assert bed.attendees(ALICE, one) == [STRANGER, ALICE2, BOB, BOB2]
    assert bed.attendees(ALICE, series) == [STRANGER, ALICE2]
    bed.update(ALICE, one, attendees=guests(STRANGER, ALICE2, BOB2))
    await bed.work()
    assert bed.attendees(ALICE, one) == [STRANGER, ALICE2]


async def test_changed_instances_without_guests_stand_for_their_series(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    series = bed.create(ALICE, recurrence=["RRULE:FREQ=DAILY;COUNT=300"])
    for day in range(250):
        one = f"{series}_{(SOON + timedelta(days=day)).strftime('%Y%m%dT%H%M%SZ')}"
        bed.update(ALICE, one, summary=f"Day {day}")
    before = bed.patches()
    await bed.work()
    assert bed.patches() == before + 1
    assert bed.attendees(ALICE, series) == [ALICE2]


async def test_a_token_too_old_leads_to_a_full_sync_that_notices_what_is_gone(bed: Bed) -> None:
    await bed.begin()
    left, deleted = bed.create(BOSS, ALICE, STRANGER), bed.create(ALICE, STRANGER)
    await bed.work()
    assert len(await _records(bed)) == 2
    bed.hush(on=True)
    bed.uninvite(BOSS, left, ALICE)
    bed.delete(ALICE, deleted)
    made = bed.create(ALICE, STRANGER)
    bed.google.run(ExpireSyncTokens())
    await bed.google.pushed()
    bed.hush(on=False)
    await bed.later(6 * 3_600 + 60)
    assert bed.attendees(BOSS, left) == [STRANGER]
    assert bed.attendees(ALICE, made) == [STRANGER, ALICE2]
    assert [record.event_id for record in await _records(bed)] == [made]
    assert (await bed.keeper.look()).status() == "ok"


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
    bed.google.trouble(Trouble(count=1, method="PATCH", status=status, reason=reason, retry_after_s=7_200))
    await bed.work()
    state = await bed.state(ALICE)
    assert (state.standing, state.failures) == ("failing", 1)
    assert state.due_at is not None
    assert (state.due_at - bed.clock.now()).total_seconds() >= 7_199
    assert (await bed.keeper.look()).status() == "degraded"
    await bed.later(7_300)
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert (await bed.keeper.look()).status() == "ok"


@pytest.mark.parametrize(("status", "reason"), [(400, "invalid"), (403, "forbidden")])
async def test_what_google_refuses_is_told_and_not_tried_again(
    quick_bed: Bed, status: int, reason: str
) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    bed.google.trouble(Trouble(count=1, method="PATCH", status=status, reason=reason))
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER]
    state = await bed.state(ALICE)
    assert (state.standing, state.results[0].result) == ("fine", "failed")


async def test_an_answer_that_was_lost_on_the_way_adds_nobody_twice(quick_bed: Bed) -> None:
    bed = quick_bed
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    bed.google.trouble(Trouble(count=1, method="PATCH", status=503, late=True))
    working = asyncio.create_task(bed.work())
    while not working.done():
        await bed.clock.advance(1)  # type: ignore[attr-defined]
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    bed.uninvite(ALICE, event_id, STRANGER)
    bed.update(ALICE, event_id, attendees=guests(ALICE2, BOB))
    await bed.work()
    (record,) = await _records(bed)
    assert sorted(record.added) == [ALICE2, BOB2]


async def test_lost_credentials_need_attention_and_are_noticed_when_they_work_again(bed: Bed) -> None:
    await bed.begin()
    bed.google.run(Revoke(email=ALICE))
    await bed.later(6 * 3_600 + 60)
    state = await bed.state(ALICE)
    assert state.standing == "attention"
    assert (await bed.keeper.look()).status() == "degraded"
    await bed.later(6 * 86_400)
    look = await bed.keeper.look()
    assert [one.watched_id for one in look.channels.attention] == [ALICE]
    assert look.told().needs_attention == 1
    assert f"needs attention, credentials are gone: {ALICE}" in look.health().reasons
    event_id = bed.create(ALICE, STRANGER)
    bed.google.run(Restore(email=ALICE))
    await bed.later(3_700)
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert bed.live() == [ALICE, BOB]
    assert (await bed.keeper.look()).status() == "ok"


# -- crashes --------------------------------------------------------------------------------------


async def _die_while_syncing(bed: Bed, after: int) -> bool:
    """Sync in a process that dies at a step; False when it had fewer steps."""
    doomed = Doomed(bed, Fuse(after))
    await bed.google.pushed()
    try:
        while await doomed.inbox.turn() + await doomed.keeper.syncs.turn():
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
    assert [record.added for record in await _records(bed)] == [[BOB2]], f"crash point {crash}"
    bed.delete(BOSS, event_id)
    await bed.work()
    assert await _records(bed) == []
    return died


# -- bursts ---------------------------------------------------------------------------------------


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
    token = channel_token(bed.keeper.keys[0], channel_id)
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


async def test_an_event_that_google_says_was_created_in_the_year_zero_is_read_like_any_other(
    quick_bed: Bed,
) -> None:
    # Google tells it of some imported events; Python has no such year.
    event_id = quick_bed.create(ALICE, STRANGER)
    entry = quick_bed.google._world.calendars.owned(ALICE).entries[event_id]
    entry.record.data |= {"created": "0000-12-31T00:00:00.000Z", "updated": "0000-12-31T00:00:00.000Z"}
    await quick_bed.begin()
    assert (await quick_bed.state(ALICE)).standing == "fine"
    assert quick_bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"date": "9999-12-31"}, id="a whole day"),
        pytest.param({"dateTime": "9999-12-31T23:00:00Z", "timeZone": "UTC"}, id="a moment"),
    ],
)
async def test_an_event_on_the_last_day_there_is_stops_no_sync(quick_bed: Bed, end: dict[str, str]) -> None:
    start = {name: value.replace("T23:", "T22:").replace("12-31", "12-30") for name, value in end.items()}
    event_id = quick_bed.create(ALICE, STRANGER, start=start, end=end)
    await quick_bed.begin()
    assert (await quick_bed.state(ALICE)).standing == "fine"
    assert quick_bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]


@pytest.mark.parametrize("asked_s", [999_999_999, 99_999_999_999])
async def test_a_wait_that_nobody_lives_to_see_is_cut_to_a_day(
    quick_bed: Bed, clock: ManualClock, asked_s: int
) -> None:
    await quick_bed.begin()
    event_id = quick_bed.create(ALICE, STRANGER)
    trouble = Trouble(count=1, path="/events", method="GET", status=503, retry_after_s=asked_s)
    quick_bed.google.trouble(trouble)
    await quick_bed.work()
    assert (await quick_bed.state(ALICE)).standing == "failing"
    await quick_bed.later(86_400)
    assert quick_bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
