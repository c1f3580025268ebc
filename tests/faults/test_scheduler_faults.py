"""Slots under several processes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.app import open_store
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.store import Query, Store, create
from tests.faults.controlled_process import run_processes
from tests.faults.scheduler_worker import CRON, DOCUMENTS, SlotMark
from tests.kit.eventually import until_found

SLOTS = 120


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_two_processes_run_each_of_many_slots_once(url: str) -> None:
    first = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=SLOTS)
    store = await open_store(url, DOCUMENTS)
    await store.migrate()
    schedule = Schedule(
        tenant_id="-", name="job-0", cron=CRON, zone="UTC", missed="all", slot_at=first, next_at=first
    )
    await store.privileged().commit(create(schedule))
    orders = [{"url": url, "me": f"p{n}"} for n in range(2)]
    async with run_processes("tests.faults.scheduler_worker", "run_slots", *orders) as pair:
        for one in pair:
            assert await one.hear() == "ready"
        for one in pair:
            one.say("go")
        await until_found(lambda: _all_done(store), within_s=60)
        for one in pair:
            one.say("stop")
        ran = [int(await one.hear()) for one in pair]
    marks = [s.doc async for s in store.scan(Query(SlotMark).limit(1_000))]
    runs = [s.doc async for s in store.privileged().tenant("-").scan(
        Query(SlotRun).where("schedule_id", "==", "-_job-0").order_by("-slot_at").limit(1_000))]  # fmt: skip
    await store.close()
    assert sum(ran) == len(marks) == len(runs) >= SLOTS
    assert {run.status for run in runs} == {"done"}
    assert all(run.attempts == 1 for run in runs)
    assert all(one > 0 for one in ran)


async def _all_done(store: Store) -> bool:
    return await store.count(Query(SlotMark)) >= SLOTS
