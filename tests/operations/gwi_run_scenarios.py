"""Scenarios for the operations on gwi's runs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.kit import NO_TENANT
from holdfast.model.access import SERVICE
from holdfast.services.gwi.models.records import UsageMonthly
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.operations.automation import Automation
from holdfast.services.gwi.operations.runs import RunOperations
from holdfast.services.gwi.operations.usage import UsageOperations
from holdfast.store import patch, put
from tests.operations.commit_log import CommitLog
from tests.operations.scenarios import World, scenario
from tests.services.gwi.run_harness import REPO, TENANT, RunHarness, a_request, run_harness


@contextlib.asynccontextmanager
async def _a_tenant(world: World) -> AsyncIterator[RunHarness]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with run_harness(f"sqlite:///{home / 'runs.db'}", SystemClock(), home, found={}) as harness:
            world.log = CommitLog(harness.runtime.store)
            yield harness


async def _a_run(harness: RunHarness, *, pending: bool = False) -> str:
    run = await harness.gwi.runs.start_run(harness.by(), a_request("autopilot"))
    if pending:
        await harness.store.commit(patch(AgentRun, run.id, changes={"approval_status": "pending"}))
    return run.id


@scenario(RunOperations.start_run)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        await world.act(_a_run(harness))


@scenario(RunOperations.approve)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        run_id = await _a_run(harness, pending=True)
        await world.act(harness.gwi.runs.approve(harness.by("adam"), run_id, reason="fine"))


@scenario(RunOperations.reject)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        run_id = await _a_run(harness, pending=True)
        await world.act(harness.gwi.runs.reject(harness.by("adam"), run_id, reason="no"))


@scenario(RunOperations.cancel)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        await world.act(harness.gwi.runs.cancel(harness.by(), await _a_run(harness)))


@scenario(UsageOperations.rebuild)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        month = harness.gwi.usage.current_month
        now = harness.clock.now()
        await harness.store.commit(put(UsageMonthly(tenant_id=TENANT, month=month, runs=3, updated_at=now)))
        await world.act(harness.gwi.usage.rebuild(harness.by("adam"), mend=True))


@scenario(Automation.create_template)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        by = harness.runtime.operator(SERVICE, NO_TENANT, actor="operator")
        await world.act(harness.gwi.automation.create_template(by, "Nightly", run_type="plan"))


async def _an_instance(harness: RunHarness) -> str:
    made = await harness.gwi.automation.create_instance(
        harness.by(), "tmpl-plan", name="Nightly", repo_id=REPO
    )
    return made.id


@scenario(Automation.create_instance)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        await world.act(_an_instance(harness))


@scenario(Automation.run_instance)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        await world.act(harness.gwi.automation.run_instance(harness.by(), await _an_instance(harness)))


@scenario(Automation.create_schedule)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        instance_id = await _an_instance(harness)
        await world.act(harness.gwi.automation.create_schedule(harness.by(), instance_id, cron="0 3 * * *"))


@scenario(Automation.enable_schedule)
async def _(world: World) -> None:
    async with _a_tenant(world) as harness:
        automation = harness.gwi.automation
        made = await automation.create_schedule(harness.by(), await _an_instance(harness), cron="0 3 * * *")
        await world.act(automation.enable_schedule(harness.by(), made.id, enabled=False))
