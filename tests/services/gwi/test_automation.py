"""Instances of templates, and the runs they start by themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.errors import InvalidError, NotFoundError
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.services.gwi.schedule_worker import ScheduleWorker
from holdfast.testing import ManualClock
from tests.services.gwi.run_harness import REPO, TENANT, RunHarness, limits, run_harness


def _worker(harness: RunHarness) -> ScheduleWorker:
    worker = harness.runtime.parts["gwi"].loops["schedules"]
    assert isinstance(worker, ScheduleWorker)
    return worker


async def test_an_instance_runs_when_asked_and_at_its_times_once(any_url: str, tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 16, 8, 30, tzinfo=UTC))
    async with run_harness(any_url, clock, tmp_path, found={"limits": limits(at_once=2)}) as harness:
        automation, dora = harness.gwi.automation, harness.by()
        instance = await automation.create_instance(
            dora, "tmpl-triage", name="Nightly", repo_id=REPO, configuration={"number": 7}
        )
        run = await automation.run_instance(dora, instance.id)
        assert (run.type, run.instance_id, run.input["number"]) == ("triage", instance.id, 7)
        schedule = await automation.create_schedule(dora, instance.id, cron="0 * * * *")
        assert await _worker(harness).turn() == 0
        await clock.advance(1_800)
        assert await _worker(harness).turn() == 1
        assert await _worker(harness).turn() == 0
        await clock.advance(3_600)
        assert await _worker(harness).turn() == 1
        (stored,) = await automation.schedules(TENANT, instance.id)
        assert stored.id == schedule.id
        assert stored.last_error is not None, "two were under way"
        assert stored.due_at == datetime(2026, 11, 16, 11, 0, tzinfo=UTC)
        runs = (await harness.gwi.runs.page(TENANT, RunFilter())).docs
        assert [one.trigger.source for one in runs] == ["scheduled", "api"]
        await automation.enable_schedule(dora, schedule.id, enabled=False)
        await clock.advance(7_200)
        assert await _worker(harness).turn() == 0


async def test_wrong_instances_are_refused(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> None:
    async with run_harness(sqlite_url, clock, tmp_path, found={}) as harness:
        automation, dora = harness.gwi.automation, harness.by()
        with pytest.raises(InvalidError, match="configuration"):
            await automation.create_instance(
                dora, "tmpl-plan", name="x", repo_id=REPO, configuration={"risk": 1}
            )
        with pytest.raises(NotFoundError, match="template"):
            await automation.create_instance(dora, "tmpl-none", name="x", repo_id=REPO)
        with pytest.raises(NotFoundError, match="repository"):
            await automation.create_instance(dora, "tmpl-plan", name="x", repo_id="gh-repo-9")
        instance = await automation.create_instance(dora, "tmpl-plan", name="x", repo_id=REPO)
        with pytest.raises(InvalidError, match="cron"):
            await automation.create_schedule(dora, instance.id, cron="often")
        assert [one.id for one in await automation.templates()][:2] == ["tmpl-triage", "tmpl-plan"]
