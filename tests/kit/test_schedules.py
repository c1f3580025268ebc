"""Schedules on every engine, by a clock the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.backoff import BackOff
from holdfast.errors import BadQueryError, LeaseLostError, NotFoundError
from holdfast.kit.schedules import Job, Schedule, Scheduler, Slot, SlotRun
from holdfast.model import Document, document
from holdfast.store import Query, Store, create, put
from holdfast.testing import ManualClock
from tests.kit.eventually import until


@document("marks/{id}")
class Mark(Document):
    id: str


DOCUMENTS: list[type[Document]] = [Schedule, SlotRun, Mark]
START = datetime(2026, 11, 15, 17, 59, tzinfo=UTC)


class Acts:
    """Remembers which slots ran, and fails as often as told."""

    def __init__(self) -> None:
        self.ran: list[Slot] = []
        self.began = asyncio.Event()
        self.failures = 0

    async def __call__(self, slot: Slot) -> Any:
        self.ran.append(slot)
        self.began.set()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the provider is away")
        return {"renewed": 3}


@pytest.fixture
def acts() -> Acts:
    return Acts()


@pytest.fixture
def scheduler(kit_store: Store, clock: ManualClock, acts: Acts) -> Callable[..., Scheduler]:
    clock.set(START)

    def make(**words: Any) -> Scheduler:
        said: dict[str, Any] = {"name": "renew", "cron": "0 18 * * *", "act": acts} | words
        return Scheduler(kit_store, [Job(**said)])

    return make


async def _runs(store: Store) -> list[SlotRun]:
    query = Query(SlotRun).where("schedule_id", "==", "-_renew").order_by("-slot_at")
    return (await store.tenant("-").query(query)).docs


async def test_a_job_runs_at_its_slot_and_not_before(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock, acts: Acts
) -> None:
    one = scheduler()
    await one.declare()
    assert await one.turn() == 0
    clock.set(START + timedelta(minutes=1))
    assert await one.turn() == 1
    assert await one.turn() == 0
    (run,) = await _runs(kit_store)
    assert (run.status, run.attempts, run.result) == ("done", 1, {"renewed": 3})
    assert acts.ran[0].at == datetime(2026, 11, 15, 18, tzinfo=UTC)
    clock.set(START + timedelta(days=1, minutes=1))
    assert await one.turn() == 1


async def test_two_schedulers_run_each_slot_once(
    scheduler: Callable[..., Scheduler], clock: ManualClock, acts: Acts
) -> None:
    both = [scheduler(cron="*/5 * * * *"), scheduler(cron="*/5 * * * *")]
    for one in both:
        await one.declare()
    for minutes in range(1, 62, 5):
        clock.set(START + timedelta(minutes=minutes))
        await asyncio.gather(*(one.turn() for one in both))
    slots = [slot.at for slot in acts.ran]
    assert len(slots) == len(set(slots)) == 13


async def test_a_failing_act_is_tried_again_with_growing_waits_and_then_given_up(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock, acts: Acts
) -> None:
    one = scheduler(retries=2, back_off=BackOff(first_s=10))
    await one.declare()
    acts.failures = 99
    clock.set(START + timedelta(minutes=1))
    assert await one.turn() == 1
    clock.set(START + timedelta(minutes=1, seconds=9))
    assert await one.turn() == 0
    clock.set(START + timedelta(minutes=1, seconds=10))
    assert await one.turn() == 1
    clock.set(START + timedelta(minutes=1, seconds=30))
    assert await one.turn() == 1
    (run,) = await _runs(kit_store)
    assert (run.status, run.attempts, run.error) == ("failed", 3, "the provider is away")
    assert [slot.attempt for slot in acts.ran] == [1, 2, 3]
    clock.set(START + timedelta(days=1, minutes=1))
    acts.failures = 0
    assert await one.turn() == 1
    assert (await _runs(kit_store))[0].status == "done"


async def test_an_act_that_takes_too_long_is_stopped(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock
) -> None:
    stopped = asyncio.Event()

    async def hang(slot: Slot) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    one = scheduler(act=hang, retries=0, time_limit_s=0.05)
    await one.declare()
    clock.set(START + timedelta(minutes=1))
    await one.turn()
    (run,) = await _runs(kit_store)
    assert stopped.is_set()
    assert run.status == "failed"
    assert "took longer than 0.05 s" in run.error


@pytest.mark.parametrize(
    ("missed", "ran"), [("once", ["21"]), ("skip", []), ("all", ["18", "19", "20", "21"])]
)
async def test_slots_missed_while_nobody_ran_follow_the_policy(
    scheduler: Callable[..., Scheduler],
    kit_store: Store,
    clock: ManualClock,
    acts: Acts,
    missed: str,
    ran: list[str],
) -> None:
    one = scheduler(cron="0 * * * *", missed=missed)
    await one.declare()
    clock.set(START + timedelta(hours=3, minutes=30))
    while await one.turn():
        pass
    assert [f"{slot.at:%H}" for slot in acts.ran] == ran
    by_slot = {f"{run.slot_at:%H}": run.status for run in await _runs(kit_store)}
    assert by_slot == {hour: "done" if hour in ran else "missed" for hour in ("18", "19", "20", "21")}


async def test_a_worker_that_died_is_replaced_and_its_try_is_counted(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock, acts: Acts
) -> None:
    async def die(slot: Slot) -> None:
        raise asyncio.CancelledError

    dying, healthy = scheduler(act=die), scheduler()
    await dying.declare()
    clock.set(START + timedelta(minutes=1))
    with pytest.raises(asyncio.CancelledError):
        await dying.turn()
    assert await healthy.turn() == 0, "its lease still holds"
    clock.set(START + timedelta(minutes=1, seconds=31))
    assert await healthy.turn() == 1
    assert acts.ran[0].attempt == 2
    (run,) = await _runs(kit_store)
    assert run.status == "done"


async def test_the_late_commit_of_a_replaced_worker_is_refused(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock
) -> None:
    slots: list[Slot] = []

    async def remember(slot: Slot) -> None:
        slots.append(slot)
        await kit_store.privileged().commit(create(Mark(id=f"by-{slot.attempt}")), slot.guard())

    one = scheduler(act=remember)
    await one.declare()
    clock.set(START + timedelta(minutes=1))
    await one.turn()
    clock.set(START + timedelta(days=1, minutes=1))
    await one.turn()
    with pytest.raises(LeaseLostError):
        await kit_store.privileged().commit(put(Mark(id="late")), slots[0].guard())
    assert await kit_store.get(Mark, "late") is None


async def test_run_now_runs_besides_the_slots(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock, acts: Acts
) -> None:
    one = scheduler()
    await one.declare()
    await one.run_now("-_renew")
    assert await one.turn() == 1
    assert acts.ran[0].at == START
    clock.set(START + timedelta(minutes=1))
    assert await one.turn() == 1
    assert len(await _runs(kit_store)) == 2


async def test_a_schedule_switched_off_stays_silent_until_switched_on(
    scheduler: Callable[..., Scheduler], clock: ManualClock, acts: Acts
) -> None:
    one = scheduler()
    await one.declare()
    await one.switch("-_renew", on=False)
    clock.set(START + timedelta(days=2))
    assert await one.turn() == 0
    await one.declare()
    assert await one.turn() == 0
    await one.switch("-_renew", on=True)
    clock.set(START + timedelta(days=2, minutes=1))
    assert await one.turn() == 1
    assert len(acts.ran) == 1
    with pytest.raises(NotFoundError):
        await one.switch("-_nobody", on=True)


async def test_a_changed_cron_expression_takes_effect(
    scheduler: Callable[..., Scheduler], clock: ManualClock, acts: Acts
) -> None:
    await scheduler().declare()
    one = scheduler(cron="30 18 * * *")
    await one.declare()
    clock.set(START + timedelta(minutes=1))
    assert await one.turn() == 0
    clock.set(START + timedelta(minutes=31))
    assert await one.turn() == 1


async def test_the_loop_wakes_for_run_now_and_stops_when_told(live_store: Store, acts: Acts) -> None:
    one = Scheduler(live_store, [Job(name="renew", cron="0 0 1 1 *", act=acts)])
    stop = asyncio.Event()
    loop = asyncio.create_task(one.run(stop))
    await one.declare()
    await one.run_now("-_renew")
    await asyncio.wait_for(acts.began.wait(), 60)
    stop.set()
    await asyncio.wait_for(loop, 60)


async def test_a_slow_act_does_not_delay_what_comes_due_meanwhile(live_store: Store, acts: Acts) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def wait(slot: Slot) -> None:
        began.set()
        await go.wait()

    slow = Job(name="slow", cron="0 0 1 1 *", act=wait)
    one = Scheduler(live_store, [slow, Job(name="renew", cron="0 0 1 1 *", act=acts)])
    stop = asyncio.Event()
    loop = asyncio.create_task(one.run(stop))
    await one.declare()
    await one.run_now(slow.id)
    await asyncio.wait_for(began.wait(), 60)
    await one.run_now("-_renew")
    await asyncio.wait_for(acts.began.wait(), 60)
    await until(lambda: one.under_way == 1)
    stop.set()
    go.set()
    await asyncio.wait_for(loop, 60)
    runs = Query(SlotRun).where("schedule_id", "==", slow.id).order_by("-slot_at")
    assert [run.status for run in (await live_store.tenant("-").query(runs)).docs] == ["done"]


async def test_a_loop_that_is_cut_off_leaves_its_slot_to_the_next_try(live_store: Store) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(slot: Slot) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    one = Scheduler(live_store, [Job(name="renew", cron="0 0 1 1 *", act=hang)])
    loop = asyncio.create_task(one.run(asyncio.Event()))
    await one.declare()
    await one.run_now("-_renew")
    await asyncio.wait_for(began.wait(), 60)
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert (ended.is_set(), one.under_way) == (True, 0)
    (run,) = await _runs(live_store)
    assert (run.status, run.attempts) == ("running", 1)


async def test_an_act_whose_result_cannot_be_kept_has_failed(
    scheduler: Callable[..., Scheduler], kit_store: Store, clock: ManualClock
) -> None:
    async def strange(slot: Slot) -> object:
        return object()

    one = scheduler(act=strange, retries=0)
    await one.declare()
    clock.set(START + timedelta(minutes=1))
    assert await one.turn() == 1
    (run,) = await _runs(kit_store)
    assert run.status == "failed"
    assert "result can't be stored" in run.error


async def test_two_jobs_of_one_name_are_refused(kit_store: Store, acts: Acts) -> None:
    job = Job(name="a", cron="* * * * *", act=acts)
    with pytest.raises(BadQueryError, match="same name"):
        Scheduler(kit_store, [job, job])
