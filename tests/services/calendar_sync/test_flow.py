"""From a change in a calendar to the attendees: on every engine, over real HTTP."""

from __future__ import annotations

from holdfast.http.app import create_app
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
    assert (await bed.operations.look()).status() == "ok"


async def test_a_primary_who_leaves_somebody_elses_event_takes_the_secondary_along(bed: Bed) -> None:
    await bed.begin()
    event_id = bed.create(BOSS, ALICE, STRANGER)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [ALICE, STRANGER, ALICE2]
    bed.uninvite(BOSS, event_id, ALICE)
    await bed.work()
    assert bed.attendees(BOSS, event_id) == [STRANGER]


async def test_served_at_the_root_it_hears_what_google_sends_to_the_usual_address(quick_bed: Bed) -> None:
    bed = quick_bed
    bed.server.app = create_app(bed.runtime, at_root=True)
    await bed.begin()
    assert bed.live() == [ALICE, BOB]
    event_id = bed.create(ALICE, STRANGER)
    await bed.work()
    assert bed.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    status, _, _ = await bed.ask("POST", "/webhook")
    async with bed.client.post("/webhook") as answer:
        assert (status, answer.status) == (400, 400), "both are the hook, which wants Google's headers"
