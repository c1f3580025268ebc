"""Orders of administrators: recorded with their audit event, carried out also after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.audit import Audit, AuditEvent
from holdfast.operation import Operator
from holdfast.services.calendar_sync.models import CalendarState
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.services.calendar_sync.crashing_process import CrashError, CrashingProcess, Fuse
from tests.services.calendar_sync.harness import (
    ALICE,
    ALICE2,
    BOB,
    CAROL,
    CAROL2,
    Harness,
    calendar_harness,
    without_fsync,
)

LEASE_S = 301  # longer than any lease
Act = Callable[[CalendarSync, Operator, str], Awaitable[Any]]


async def _events(harness: Harness) -> list[str]:
    page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
    assert (await Audit(harness.runtime.store, tenant_id="-").verify()).intact
    return [event.action.removeprefix("calendar_sync.") for event in page.docs if event.outcome == "done"]


async def _try(harness: Harness, act: Act, channel_id: str, after: int) -> bool:
    """Act in a process that dies at a step; False when it had fewer steps."""
    process = CrashingProcess(harness, Fuse(after))
    await process.start()
    try:
        await act(process.operations, process.operator(harness.by), channel_id)
    except CrashError:
        return True
    finally:
        await process.close()
    return False


async def _forced(harness: Harness, old: set[str]) -> bool:
    return not old & {channel.channel_id for channel in await harness.channels()}


async def _stopped(harness: Harness, old: set[str]) -> bool:
    return len(old & {channel.channel_id for channel in await harness.channels()}) == 1


async def _reloaded(harness: Harness, old: set[str]) -> bool:
    return harness.live() == [ALICE, CAROL]


async def _synced(harness: Harness, old: set[str]) -> bool:
    return (await harness.state(ALICE)).generation > 0


@pytest.mark.parametrize(
    ("act", "events", "effect"),
    [
        (lambda o, by, id: o.force(by), ["registration_requested", "channels_forced"], _forced),
        (
            lambda o, by, id: o.renew(by, threshold_ms=8 * 86_400_000),
            ["renewal_requested", "channels_renewed"], _forced,
        ),
        (lambda o, by, id: o.reload(by), ["reload_requested", "mappings_reloaded"], _reloaded),
        (lambda o, by, id: o.stop_channel(by, id), ["channel_stopped"], _stopped),
        (lambda o, by, id: o.request_sync(by, ALICE, full=True), ["sync_requested"], _synced),
    ],
    ids=["force", "renew", "reload", "stop", "sync"],
)  # fmt: skip
async def test_a_crash_at_any_step_leaves_act_and_audit_event_or_neither(
    one_url: str, clock: ManualClock, tmp_path: Path, act: Act, events: list[str], effect: Any
) -> None:
    async with calendar_harness(without_fsync(one_url), clock, tmp_path) as harness:
        await harness.begin()
        for step in range(1_000):
            harness.map({ALICE: [ALICE2], BOB: ["bob@fuga.jp"]})
            await harness.later(60)
            recorded = len(await _events(harness))
            old = {channel.channel_id for channel in await harness.channels()}
            (alice,) = [one.channel_id for one in await harness.channels() if one.watched_id == ALICE]
            generation = await harness.state(ALICE)
            if effect is _reloaded:
                harness.map({ALICE: [ALICE2], CAROL: [CAROL2]})
            if effect is _synced:
                await harness.runtime.store.commit(_reset(generation))
            crashed = await _try(harness, act, alice, step)
            await clock.advance(LEASE_S)
            await harness.work()
            done = (await _events(harness))[recorded:]
            assert done == (events if await effect(harness, old) else []), f"crash point {step}"
            assert await harness.orders() == [], f"crash point {step}"
            if not crashed:
                break
        assert done == events


def _reset(state: CalendarState) -> Any:
    from msgspec.structs import replace

    from holdfast.store import put

    return put(replace(state, generation=0))


async def test_an_order_of_a_dead_process_is_carried_out_in_the_name_of_its_administrator(
    harness: Harness, clock: ManualClock
) -> None:
    await harness.begin()
    old = {channel.channel_id for channel in await harness.channels()}
    order = harness.operations.orders.new("registration", actor="admin@hoge.jp", reason="moved")
    await harness.runtime.store.transact(lambda tx: harness.operations.orders.place(tx, order))
    await harness.work()
    assert {channel.channel_id for channel in await harness.channels()} == old, "its process may be at it"
    await clock.advance(LEASE_S)
    await harness.work()
    assert harness.live() == [ALICE, BOB]
    assert not old & {channel.channel_id for channel in await harness.channels()}
    page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
    assert [(event.action, event.actor, event.details["registered"]) for event in page.docs] == [
        ("calendar_sync.channels_forced", "admin@hoge.jp", 2)
    ]
