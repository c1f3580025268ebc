"""The pulse of all processes together, on every engine."""

from __future__ import annotations

import asyncio

from holdfast.kit.activity import COUNTED, ActivityHour, ActivityMinute, ActivityRecorder, recent
from holdfast.store import Query, Store
from holdfast.testing import ManualClock

DOCUMENTS = [ActivityMinute, ActivityHour]


class _Process:
    """A working process: what it has done so far, and how long what is due has waited."""

    def __init__(self, store: Store) -> None:
        self.done = dict.fromkeys(COUNTED, 0)
        self.waited = 0.0
        self.keeper = ActivityRecorder(store, counts=lambda: self.done, waited_s=self._waited_s)

    async def _waited_s(self) -> float:
        return self.waited


async def test_processes_add_up_minute_by_minute(kit_store: Store, clock: ManualClock) -> None:
    one, other = _Process(kit_store), _Process(kit_store)
    one.done["delivered"], other.done["delivered"], other.done["dead"] = 5, 7, 1
    one.waited, other.waited = 3.0, 9.5
    await asyncio.gather(one.keeper.record(), other.keeper.record())
    one.done["delivered"], one.waited, other.waited = 6, 0.0, 0.0
    await one.keeper.record()
    await clock.advance(60)
    one.done["handled"] = 4
    await one.keeper.record()
    before, last = (await recent(kit_store, ActivityMinute, 3))[1:]
    assert (before.delivered, before.dead, before.waited_s) == (13, 1, 9.5)
    assert (last.delivered, last.handled, last.waited_s) == (0, 4, 0.0)


async def test_where_nothing_happens_nothing_is_written(kit_store: Store) -> None:
    idle = _Process(kit_store)
    await idle.keeper.record()
    await idle.keeper.record()
    assert (await kit_store.privileged().query(Query(ActivityMinute))).docs == []
    assert [pulse.delivered for pulse in await recent(kit_store, ActivityMinute, 5)] == [0] * 5


async def test_what_was_done_up_to_the_stop_is_written_down(kit_store: Store) -> None:
    process, stop = _Process(kit_store), asyncio.Event()
    running = asyncio.create_task(process.keeper.run(stop))
    while process.keeper.last_turn_at is None:  # noqa: ASYNC110 - the first beat tells nobody
        await asyncio.sleep(0)
    process.done["failed"] = 2
    stop.set()
    await running
    assert (await recent(kit_store, ActivityMinute, 1))[0].failed == 2


async def test_a_day_old_minute_may_go(kit_store: Store, clock: ManualClock) -> None:
    process = _Process(kit_store)
    process.done["delivered"] = 1
    await process.keeper.record()
    assert await kit_store.privileged().expire(ActivityMinute) == 0
    await clock.advance(86_401)
    assert await kit_store.privileged().expire(ActivityMinute) == 1


async def test_hours_add_up_over_processes_with_the_longest_wait_and_are_kept_for_eight_days(
    kit_store: Store, clock: ManualClock
) -> None:
    one, other = _Process(kit_store), _Process(kit_store)
    await clock.advance(3_600 - clock.now().timestamp() % 3_600)
    for minute in range(3):
        one.done["delivered"], one.waited = 5 * (minute + 1), 4.0 - minute
        other.done["failed"] = minute + 1
        await asyncio.gather(one.keeper.record(), other.keeper.record())
        await clock.advance(60)
    await clock.advance(3_600)
    one.waited, other.done["failed"] = 0.0, 7
    await other.keeper.record()
    before, last = await recent(kit_store, ActivityHour, 2)
    assert (before.delivered, before.failed, before.waited_s) == (15, 3, 4.0)
    assert (last.delivered, last.failed, last.waited_s) == (0, 4, 0.0)
    assert last.at - before.at == ActivityHour.step
    assert last.at.minute == 0
    assert sum(one.failed for one in await recent(kit_store, ActivityHour, 168)) == 7
    await clock.advance(2 * 86_400)
    assert await kit_store.privileged().expire(ActivityHour) == 0
    await clock.advance(6 * 86_400)
    assert await kit_store.privileged().expire(ActivityHour) == 2
