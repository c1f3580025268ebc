"""How a calendar is brought up to date: pages, tokens, deletions, series, guests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.simulators.google import ExpireSyncTokens, RevokeAccess
from tests.services.calendar_sync.harness import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    BOSS,
    CAROL,
    SOON,
    STRANGER,
    Harness,
    guests,
)


def _lists(harness: Harness) -> int:
    return sum(call.method == "GET" and call.path.endswith("/events") for call in harness.google.calls)


async def test_a_first_sync_reads_every_page_and_keeps_the_token_with_the_last(
    quick_harness: Harness,
) -> None:
    harness = quick_harness
    ids = [harness.create(ALICE, STRANGER) for _ in range(450)]
    await harness.begin()
    assert all(harness.attendees(ALICE, one) == [STRANGER, ALICE2] for one in ids[::50])
    assert harness.patches() == 450
    state = await harness.state(ALICE)
    assert state.sync_token
    assert state.status == "fine"
    before = _lists(harness)
    await harness.engine.syncs.turn()
    assert _lists(harness) == before
    assert len(await harness.records()) == 100, "a page of them"


async def test_past_events_are_left_alone_at_first(quick_harness: Harness) -> None:
    past = quick_harness.create(
        ALICE, STRANGER, start={"dateTime": "2020-01-01T09:00:00Z", "timeZone": "UTC"},
        end={"dateTime": "2020-01-01T10:00:00Z", "timeZone": "UTC"},
    )  # fmt: skip
    await quick_harness.begin()
    assert quick_harness.attendees(ALICE, past) == [STRANGER]


async def test_a_cancelled_event_is_skipped_and_its_record_goes(harness: Harness) -> None:
    await harness.begin()
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert [record.added for record in await harness.records()] == [[ALICE2]]
    harness.delete(ALICE, event_id)
    await harness.work()
    assert await harness.records() == []
    (result, *_) = (await harness.state(ALICE)).results
    assert (result.result, result.reason) == ("skipped", "Event cancelled")


async def test_results_are_told_for_each_event(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(ALICE, ALICE, STRANGER)
    await harness.work()
    again, added = (await harness.state(ALICE)).results
    assert (added.event_id, added.result, added.added) == (event_id, "added", (ALICE2,))
    assert (again.result, again.reason) == ("skipped", "All secondaries already present")
    harness.update(ALICE, event_id, attendees=guests(ALICE, STRANGER, ALICE2, BOB, BOB2))
    await harness.work()
    harness.map({ALICE: ["alice@piyo.jp"], BOB: [BOB2]})
    await harness.engine.refresh()
    await harness.work()
    changed = next(one for one in (await harness.state(ALICE)).results if one.result == "changed")
    assert (changed.added, changed.removed) == (("alice@piyo.jp",), (ALICE2,))
    harness.map({CAROL: ["carol@fuga.jp"]})
    await harness.engine.refresh()
    harness.invite(ALICE, event_id, CAROL)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [ALICE, STRANGER, BOB, BOB2, CAROL, "carol@fuga.jp"]


async def test_a_hand_invited_secondary_survives_its_primary(harness: Harness) -> None:
    await harness.begin()
    event_id = harness.create(BOSS, ALICE, ALICE2, BOB)
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [ALICE, ALICE2, BOB, BOB2]
    harness.uninvite(BOSS, event_id, ALICE, BOB)
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [ALICE2]


async def test_a_guest_list_that_guests_may_not_extend_is_changed_as_the_organizer(
    quick_harness: Harness,
) -> None:
    await quick_harness.begin()
    event_id = quick_harness.create(BOSS, ALICE, guestsCanInviteOthers=False)
    await quick_harness.work()
    assert quick_harness.attendees(BOSS, event_id) == [ALICE, ALICE2]


async def test_an_organizer_out_of_reach_is_told_and_not_asked_again(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(BOSS, ALICE, guestsCanInviteOthers=False)
    harness.google.run(RevokeAccess(email=BOSS))
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [ALICE]
    (result, *_) = (await harness.state(ALICE)).results
    assert result.result == "failed"
    assert "invalid_grant" in result.reason
    calls = len(harness.google.calls)
    assert await harness.work() == 0
    assert len(harness.google.calls) == calls


async def test_an_edit_by_somebody_else_at_the_same_moment_is_never_lost(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(ALICE, STRANGER)
    calendar = harness.engine.google.calendar(ALICE)
    patch_event, edits = calendar.patch_event, iter(["first", "second", "third"])

    async def meanwhile(*words: Any, **named: Any) -> Any:
        title = next(edits, None)
        if title is not None:
            harness.invite(ALICE, event_id, f"{title}@else.org")
        return await patch_event(*words, **named)

    calendar.patch_event = meanwhile  # type: ignore[method-assign]
    await harness.work()
    there = ["first@else.org", "second@else.org", "third@else.org"]
    assert harness.attendees(ALICE, event_id) == [STRANGER, *there, ALICE2]


async def test_a_series_is_updated_once_however_many_instances_it_has(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    for count in (1, 10, 1_000):
        before = harness.patches()
        event_id = harness.create(ALICE, STRANGER, recurrence=[f"RRULE:FREQ=DAILY;COUNT={count}"])
        await harness.work()
        assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
        assert harness.patches() == before + 1, f"{count} instances"


async def test_an_exception_with_guests_of_its_own_is_handled_as_itself(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    series = harness.create(ALICE, STRANGER, recurrence=["RRULE:FREQ=DAILY;COUNT=5"])
    await harness.work()
    one = f"{series}_{(SOON + timedelta(days=1)).strftime('%Y%m%dT%H%M%SZ')}"
    harness.update(ALICE, one, attendees=guests(STRANGER, ALICE2, BOB))
    await harness.work()
    assert harness.attendees(ALICE, one) == [STRANGER, ALICE2, BOB, BOB2]
    assert harness.attendees(ALICE, series) == [STRANGER, ALICE2]
    harness.update(ALICE, one, attendees=guests(STRANGER, ALICE2, BOB2))
    await harness.work()
    assert harness.attendees(ALICE, one) == [STRANGER, ALICE2]


async def test_changed_instances_without_guests_stand_for_their_series(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    series = harness.create(ALICE, recurrence=["RRULE:FREQ=DAILY;COUNT=300"])
    for day in range(250):
        one = f"{series}_{(SOON + timedelta(days=day)).strftime('%Y%m%dT%H%M%SZ')}"
        harness.update(ALICE, one, summary=f"Day {day}")
    before = harness.patches()
    await harness.work()
    assert harness.patches() == before + 1
    assert harness.attendees(ALICE, series) == [ALICE2]


async def test_a_token_too_old_leads_to_a_full_sync_that_notices_what_is_gone(harness: Harness) -> None:
    await harness.begin()
    left, deleted = harness.create(BOSS, ALICE, STRANGER), harness.create(ALICE, STRANGER)
    await harness.work()
    assert len(await harness.records()) == 2
    harness.drop_pushes(on=True)
    harness.uninvite(BOSS, left, ALICE)
    harness.delete(ALICE, deleted)
    made = harness.create(ALICE, STRANGER)
    harness.google.run(ExpireSyncTokens())
    await harness.google.wait_for_pushes()
    harness.drop_pushes(on=False)
    await harness.later(6 * 3_600 + 60)
    assert harness.attendees(BOSS, left) == [STRANGER]
    assert harness.attendees(ALICE, made) == [STRANGER, ALICE2]
    assert [record.event_id for record in await harness.records()] == [made]
    assert (await harness.engine.status()).status() == "ok"


async def test_an_event_that_google_says_was_created_in_the_year_zero_is_read_like_any_other(
    quick_harness: Harness,
) -> None:
    # Google tells it of some imported events; Python has no such year.
    event_id = quick_harness.create(ALICE, STRANGER)
    entry = quick_harness.google.state.calendars.owned_by(ALICE).entries[event_id]
    entry.record.data |= {"created": "0000-12-31T00:00:00.000Z", "updated": "0000-12-31T00:00:00.000Z"}
    await quick_harness.begin()
    assert (await quick_harness.state(ALICE)).status == "fine"
    assert quick_harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"date": "9999-12-31"}, id="a whole day"),
        pytest.param({"dateTime": "9999-12-31T23:00:00Z", "timeZone": "UTC"}, id="a moment"),
    ],
)
async def test_an_event_on_the_last_day_there_is_stops_no_sync(
    quick_harness: Harness, end: dict[str, str]
) -> None:
    start = {name: value.replace("T23:", "T22:").replace("12-31", "12-30") for name, value in end.items()}
    event_id = quick_harness.create(ALICE, STRANGER, start=start, end=end)
    await quick_harness.begin()
    assert (await quick_harness.state(ALICE)).status == "fine"
    assert quick_harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
