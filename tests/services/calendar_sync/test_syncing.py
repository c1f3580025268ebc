"""How a calendar is brought up to date: pages, tokens, deletions, series, guests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.simulators.google import ExpireSyncTokens, RevokeAccess
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
    guests,
)


def _lists(bed: Bed) -> int:
    return sum(call.method == "GET" and call.path.endswith("/events") for call in bed.google.calls)


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
    await bed.operations.syncs.turn()
    assert _lists(bed) == before
    assert len(await bed.records()) == 100, "a page of them"


async def test_past_events_are_left_alone_at_first(quick_bed: Bed) -> None:
    past = quick_bed.create(ALICE, STRANGER, start={"dateTime": "2020-01-01T09:00:00Z", "timeZone": "UTC"},
                            end={"dateTime": "2020-01-01T10:00:00Z", "timeZone": "UTC"})  # fmt: skip
    await quick_bed.begin()
    assert quick_bed.attendees(ALICE, past) == [STRANGER]


async def test_a_cancelled_event_is_skipped_and_its_record_goes(bed: Bed) -> None:
    await bed.begin()
    event_id = bed.create(ALICE, STRANGER)
    await bed.work()
    assert [record.added for record in await bed.records()] == [[ALICE2]]
    bed.delete(ALICE, event_id)
    await bed.work()
    assert await bed.records() == []
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
    await bed.operations.refresh()
    await bed.work()
    changed = next(one for one in (await bed.state(ALICE)).results if one.result == "changed")
    assert (changed.added, changed.removed) == (("alice@piyo.jp",), (ALICE2,))
    bed.map({CAROL: ["carol@fuga.jp"]})
    await bed.operations.refresh()
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
    bed.google.run(RevokeAccess(email=BOSS))
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
    calendar = bed.operations.google.calendar(ALICE)
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
    assert len(await bed.records()) == 2
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
    assert [record.event_id for record in await bed.records()] == [made]
    assert (await bed.operations.look()).status() == "ok"


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
