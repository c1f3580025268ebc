"""Scenarios for the operations on gwi's runs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.operations.runs import RunOperations
from holdfast.store import patch
from tests.operations.commit_log import CommitLog
from tests.operations.scenarios import World, scenario
from tests.services.gwi.run_harness import RunHarness, a_request, run_harness


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
