"""From a change in a calendar to the attendees: on every engine, over real HTTP."""

from __future__ import annotations

from holdfast.http.app import create_app
from tests.services.calendar_sync.harness import ALICE, ALICE2, BOB, BOB2, BOSS, STRANGER, Harness


async def test_mapped_primaries_get_a_channel_each_and_their_secondaries_join_their_events(
    harness: Harness,
) -> None:
    await harness.begin()
    assert harness.live() == [ALICE, BOB]
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    harness.invite(ALICE, event_id, BOB)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2, BOB, BOB2]
    harness.uninvite(ALICE, event_id, BOB)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert (await harness.engine.status()).status() == "ok"


async def test_a_primary_who_leaves_somebody_elses_event_takes_the_secondary_along(harness: Harness) -> None:
    await harness.begin()
    event_id = harness.create(BOSS, ALICE, STRANGER)
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [ALICE, STRANGER, ALICE2]
    harness.uninvite(BOSS, event_id, ALICE)
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [STRANGER]


async def test_served_at_the_root_it_hears_what_google_sends_to_the_usual_address(
    quick_harness: Harness,
) -> None:
    harness = quick_harness
    harness.server.app = create_app(harness.runtime, at_root=True)
    await harness.begin()
    assert harness.live() == [ALICE, BOB]
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    status, _, _ = await harness.ask("POST", "/webhook")
    async with harness.client.post("/webhook") as answer:
        assert (status, answer.status) == (400, 400), "both are the hook, which wants Google's headers"
