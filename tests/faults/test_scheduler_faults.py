"""Slots under several processes."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.store import Query, create
from tests.faults.scheduler_worker import CRON, DOCUMENTS, SlotMark

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
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.scheduler_worker", url, f"p{n}",
            stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
        )
        for n in range(2)
    ]  # fmt: skip
    answers = await asyncio.gather(*(p.communicate() for p in processes))
    ran = [int(out) for out, _ in answers]
    marks = [s.doc async for s in store.scan(Query(SlotMark).limit(1_000))]
    runs = [s.doc async for s in store.privileged().tenant("-").scan(
        Query(SlotRun).where("schedule_id", "==", "-_job-0").order_by("-slot_at").limit(1_000))]  # fmt: skip
    await store.close()
    assert sum(ran) == len(marks) == len(runs) >= SLOTS
    assert {run.status for run in runs} == {"done"}
    assert all(run.attempts == 1 for run in runs)
    assert all(one > 0 for one in ran)
