"""Events have the right guests within a minute after credentials come back or a mapping ends."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import ReauthRequiredError
from holdfast.services.calendar_sync.domain.mappings import is_in_domain
from holdfast.services.calendar_sync.domain.sync_state import (
    SyncPolicy,
    fail_sync,
    request_sync,
    retry_attention,
)
from holdfast.services.calendar_sync.models import CalendarState
from holdfast.simulators.google import Restore, RevokeAccess
from holdfast.store import put
from holdfast.testing import ManualClock
from tests.services.calendar_sync.crashing_process import CrashError, CrashingProcess, Fuse
from tests.services.calendar_sync.harness import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    BOSS,
    CAROL,
    CAROL2,
    STRANGER,
    Harness,
    calendar_harness,
    without_fsync,
)


async def _a_minute(harness: Harness, clock: ManualClock) -> None:
    """Loops work and time passes; nobody touches an event and no job runs."""
    for _ in range(6):
        await clock.advance(10)
        await harness.work()


async def _out_of_credentials(harness: Harness) -> str:
    """An event of Alice's that can't be synced, since she has no credentials."""
    await harness.begin()
    harness.google.run(RevokeAccess(email=ALICE))
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert (await harness.state(ALICE)).status == "attention"
    assert harness.attendees(ALICE, event_id) == [STRANGER]
    return event_id


async def test_restored_credentials_are_taken_up_within_a_minute(
    harness: Harness, clock: ManualClock
) -> None:
    event_id = await _out_of_credentials(harness)
    await clock.advance(1_800)
    await harness.work()
    harness.google.run(Restore(email=ALICE))
    await _a_minute(harness, clock)
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert (await harness.engine.status()).status() == "ok"


@pytest.mark.parametrize("act", ["reload", "force"])
async def test_reload_and_force_take_restored_credentials_up_at_once(
    quick_harness: Harness, act: str
) -> None:
    event_id = await _out_of_credentials(quick_harness)
    quick_harness.google.run(Restore(email=ALICE))
    await getattr(quick_harness.operations, act)(quick_harness.by)
    await quick_harness.work()
    assert quick_harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]
    assert quick_harness.live() == [ALICE, BOB]


def test_a_push_shortens_the_wait_for_credentials_and_no_other(clock: ManualClock) -> None:
    now = clock.now()
    waiting = CalendarState(
        calendar_id=ALICE, status="attention", failures=3, began_at=now - timedelta(minutes=10),
        due_at=now + timedelta(hours=1),
    )  # fmt: skip
    assert request_sync(waiting, now).due_at == now
    waiting.status = "failing"
    assert request_sync(waiting, now).due_at == now + timedelta(hours=1)


def test_many_calendars_without_credentials_ask_google_at_a_steady_rate() -> None:
    policy = SyncPolicy()
    assert [policy.attention_wait_s(count) for count in (1, 20, 100, 10_000)] == [30, 30, 150, 3_600]
    # What failed for the first time may be restored already; of many, each still waits its turn.
    assert [policy.attention_wait_s(count, first=True) for count in (1, 20, 100)] == [5, 30, 150]


def test_a_calendar_that_is_being_synced_when_access_is_restored_is_tried_again_soon(
    clock: ManualClock,
) -> None:
    now = clock.now()
    held = CalendarState(
        calendar_id=ALICE, status="attention", failures=3, owner="worker", due_at=now + timedelta(minutes=1)
    )
    restored = retry_attention(held, now)
    assert restored.due_at == held.due_at
    failed = fail_sync(restored, ReauthRequiredError("invalid_grant"), now=now, policy=SyncPolicy(), spread=0)
    assert failed is not None
    assert failed.due_at == now + timedelta(seconds=5)


async def test_figures_of_lost_credentials_agree_with_one_another(quick_harness: Harness) -> None:
    harness = quick_harness
    await _out_of_credentials(harness)
    report = await harness.engine.status()
    shown, health = report.response(), report.health()
    assert (shown.calendars["attention"], shown.needs_attention, shown.calendars["failing"]) == (1, 1, 0)
    assert (health.status, list(health.reasons)) == (
        "degraded",
        [f"needs attention, credentials are gone: {ALICE}"],
    )
    assert "holdfast_calendar_sync_channels_need_attention 1.0" in await harness.metrics()


def test_a_calendar_that_is_not_mapped_is_not_tried_for_ever(clock: ManualClock) -> None:
    fault, policy, now = ReauthRequiredError("invalid_grant"), SyncPolicy(), clock.now()
    state = CalendarState(calendar_id=ALICE, unmapped_at=now - timedelta(days=29))
    later = fail_sync(state, fault, now=now, policy=policy, spread=0)
    assert later is not None
    assert later.status == "unreachable"
    assert fail_sync(state, fault, now=now + timedelta(days=2), policy=policy, spread=0) is None


async def _mapped_events(harness: Harness) -> tuple[str, str, str]:
    """Events of Alice alone, of Alice at her boss's, and of Alice and Bob."""
    await harness.begin()
    ids = harness.create(ALICE), harness.create(BOSS, ALICE, STRANGER), harness.create(BOSS, ALICE, BOB)
    await harness.work()
    assert harness.attendees(ALICE, ids[0]) == [ALICE2]
    assert harness.attendees(BOSS, ids[1]) == [ALICE, STRANGER, ALICE2]
    assert harness.attendees(BOSS, ids[2]) == [ALICE, BOB, ALICE2, BOB2]
    return ids


async def _judge_unmapped(harness: Harness, ids: tuple[str, str, str]) -> None:
    assert harness.attendees(ALICE, ids[0]) == []
    assert harness.attendees(BOSS, ids[1]) == [ALICE, STRANGER]
    assert harness.attendees(BOSS, ids[2]) == [ALICE, BOB, BOB2]
    assert {address for record in await harness.records() for address in record.added} == {BOB2}
    assert await harness.runtime.store.get(CalendarState, ALICE) is None


@pytest.mark.parametrize("row", ["", f"{ALICE},{ALICE2},inactive\n"], ids=["removed", "inactive"])
async def test_secondaries_leave_events_when_a_mapping_ends(harness: Harness, row: str) -> None:
    ids = await _mapped_events(harness)
    harness.mappings.write_text(f"{BOB},{BOB2}\n{row}")
    await harness.engine.refresh()
    await harness.work()
    await _judge_unmapped(harness, ids)
    assert harness.live() == [BOB]


@pytest.mark.parametrize("mapping", [{}, {ALICE: ["alice@third.jp"]}], ids=["unmapped", "mapped anew"])
async def test_a_guest_taken_off_by_hand_just_before_their_mapping_changes_leaves_no_secondary(
    harness: Harness, mapping: dict[str, list[str]]
) -> None:
    await harness.begin()
    event_id = harness.create(BOSS, ALICE, BOB)
    await harness.work()
    # The event is on record as one of Bob's calendar, which nobody reads from here on.
    [record] = await harness.records()
    await harness.runtime.store.commit(put(replace(record, calendar_id=BOB)))
    harness.map({ALICE: [ALICE2], CAROL: [CAROL2]})
    await harness.engine.refresh()
    await harness.work()
    assert [one.calendar_id for one in await harness.records()] == [BOB]
    harness.uninvite(BOSS, event_id, ALICE)
    harness.map({CAROL: [CAROL2], **mapping})
    await harness.engine.refresh()
    await harness.work()
    assert harness.attendees(BOSS, event_id) == [BOB]
    assert await harness.records() == []


async def test_without_credentials_they_leave_others_events_at_once_and_ones_own_later(
    harness: Harness, clock: ManualClock
) -> None:
    ids = await _mapped_events(harness)
    harness.google.run(RevokeAccess(email=ALICE))
    harness.map({BOB: [BOB2]})
    await harness.engine.refresh()
    await harness.work()
    assert harness.attendees(BOSS, ids[1]) == [ALICE, STRANGER]
    assert harness.attendees(BOSS, ids[2]) == [ALICE, BOB, BOB2]
    assert (await harness.state(ALICE)).status == "unreachable"
    harness.google.run(Restore(email=ALICE))
    await _a_minute(harness, clock)
    await _judge_unmapped(harness, ids)


async def test_a_mapping_that_comes_back_is_in_force_again(quick_harness: Harness) -> None:
    ids = await _mapped_events(quick_harness)
    quick_harness.map({BOB: [BOB2]})
    await quick_harness.engine.refresh()
    quick_harness.map({ALICE: [ALICE2], BOB: [BOB2]})
    await quick_harness.engine.refresh()
    await quick_harness.work()
    assert quick_harness.attendees(ALICE, ids[0]) == [ALICE2]
    assert (await quick_harness.state(ALICE)).unmapped_at is None


async def test_a_crash_at_any_step_of_a_reload_leaves_no_secondary_behind(
    one_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with calendar_harness(without_fsync(one_url), clock, tmp_path) as harness:
        ids = await _mapped_events(harness)
        for step in range(1_000):
            harness.map({BOB: [BOB2]})
            process = CrashingProcess(harness, Fuse(step))
            try:
                await process.start()
                await process.engine.refresh()
                await process.engine.syncs.turn()
            except CrashError:
                crashed = True
            else:
                crashed = False
            finally:
                await process.close()
            await harness.later(301)
            await _judge_unmapped(harness, ids)
            if not crashed:
                break
            harness.map({ALICE: [ALICE2], BOB: [BOB2]})
            await harness.later(301)
            assert harness.attendees(ALICE, ids[0]) == [ALICE2], f"crash point {step}"
        assert step >= 20, "there are more steps than that"


async def test_a_sync_under_way_by_the_old_map_does_not_bring_a_secondary_back(
    quick_harness: Harness,
) -> None:
    harness = quick_harness
    _, _, event_id = await _mapped_events(harness)
    harness.update(BOSS, event_id, summary="Planning again")
    client = harness.engine.google.calendar(BOB)
    list_events, reloaded = client.list_events, False

    async def reload_meanwhile(*args: Any, **named: Any) -> Any:
        nonlocal reloaded
        if not reloaded:
            reloaded = True
            harness.map({BOB: [BOB2]})
            await harness.engine.refresh()
            await harness.engine.syncs.turn()
        return await list_events(*args, **named)

    client.list_events = reload_meanwhile  # type: ignore[method-assign]
    await harness.work()
    assert reloaded
    assert harness.attendees(BOSS, event_id) == [ALICE, BOB, BOB2]


async def test_an_event_of_an_organizer_without_credentials_is_tried_again(
    harness: Harness, clock: ManualClock
) -> None:
    await harness.begin()
    harness.google.run(RevokeAccess(email=BOSS))
    event_id = harness.create(BOSS, ALICE, guestsCanInviteOthers=False)
    await harness.work()
    assert (await harness.state(ALICE)).results[0].result == "failed"
    assert (await harness.state(BOSS)).status == "unreachable"
    assert (await harness.engine.status()).status() == "ok"
    await clock.advance(3_600)
    await harness.work()
    harness.google.run(Restore(email=BOSS))
    await _a_minute(harness, clock)
    assert harness.attendees(BOSS, event_id) == [ALICE, ALICE2]
    assert await harness.runtime.store.get(CalendarState, BOSS) is None, "the organizer is not mapped"


def test_only_organizers_of_a_mapped_domain_are_waited_for() -> None:
    entries = {ALICE: (ALICE2,)}
    assert is_in_domain(BOSS, entries)
    for other in (STRANGER, "x@sub.hoge.jp", "hoge.jp", "a/b@hoge.jp", "", "room@evilhoge.jp"):
        assert not is_in_domain(other, entries)
