"""From a change in a calendar to the attendees: on every engine, over real HTTP."""

from __future__ import annotations

from tests.services.calendar_sync.bed import ALICE, ALICE2, BOB, BOB2, BOSS, STRANGER, Bed


async def test_mapped_primaries_get_a_channel_each_and_their_secondaries_join_their_events(bed: Bed) -> None:
    await bed.begin()
    assert bed.live() == [ALICE, BOB]
    event_id = bed.create(ALICE, STRANGER)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    bed.invite(ALICE, event_id, BOB)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2, BOB, BOB2]
    bed.uninvite(ALICE, event_id, BOB)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert (await bed.keeper.look()).status() == "ok"


async def test_a_primary_who_leaves_somebody_elses_event_takes_the_secondary_along(bed: Bed) -> None:
    await bed.begin()
    event_id = bed.create(BOSS, ALICE, STRANGER)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [ALICE, STRANGER, ALICE2]
    bed.uninvite(BOSS, event_id, ALICE)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [STRANGER]
