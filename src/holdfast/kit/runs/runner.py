"""The worker that executes runs: claims what is due, renews the leases, works on many at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import HoldfastError, LeaseLostError, RetryLaterError
from holdfast.kit.runs.execution import Execution
from holdfast.kit.runs.models import KIT, RunFields, RunModels
from holdfast.kit.runs.transitions import Join
from holdfast.kit.runs.workflow import Workflow
from holdfast.kit.worker_loop import WorkerLoop, cancel_all, last_lane
from holdfast.store.commit import Committed, Outcome, Snapshot
from holdfast.store.store import Store

# Between two claims at the least, so that a worker's own commits don't make it claim without pause.
GAP_S: Final = 0.01
CLAIM_MAX: Final = 50


class RunnerStatus(msgspec.Struct, kw_only=True):
    """A runner's state and its counts since it was created."""

    last_turn_at: datetime | None = None
    held: int = 0
    claimed: int = 0
    settled: int = 0
    lost: int = 0
    faults: int = 0
    last_fault: str | None = None


class Runner(WorkerLoop[RunFields]):
    """Executes the runs that a store handle reaches: all tenants' with a privileged one.

    Example: `await Runner(store.privileged(), [autopilot, triage]).run(stop)`
    """

    def __init__(
        self,
        store: Store,
        workflows: Iterable[Workflow],
        *,
        models: RunModels = KIT,
        joins: Sequence[Join] = (),
        owner: str = "",
        concurrency: int = 200,
        lease_s: float = 60.0,
        renew_s: float = 20.0,
        poll_s: float = 5.0,
        stop_s: float = 3.0,
    ) -> None:
        super().__init__(
            store, models.run, concurrency=concurrency, lease_s=lease_s, poll_s=poll_s, gap_s=GAP_S,
            stop_s=stop_s, owner=owner,
        )  # fmt: skip
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._models, self._joins, self._renew_s = models, tuple(joins), renew_s
        self._executions: dict[asyncio.Task[None], Execution] = {}
        self._lane: str | None = None
        self._claimed = self._settled = self._lost = 0

    def status(self) -> RunnerStatus:
        return RunnerStatus(
            last_turn_at=self.last_turn_at, held=self.under_way, claimed=self._claimed, settled=self._settled,
            lost=self._lost, faults=self.errors, last_fault=self.last_error or None,
        )  # fmt: skip

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then finish the steps under way, or give them back after `stop_s`."""
        renewing = asyncio.create_task(self._renew_leases())
        try:
            await super().run(stop)
        finally:
            await cancel_all([renewing])

    async def _claim(self, room: int) -> list[Snapshot[RunFields]]:
        """Claim in turn from each tenant, so that one with many runs doesn't keep the others waiting."""
        limit = min(room, CLAIM_MAX)
        fair = max(1, limit // 4) if self._store.tenant_id is None else None
        claimed = await self._store.claim_due(
            self._kind, limit=limit, lease_s=self._lease_s, owner=self.owner, per_lane=fair,
            after_lane=self._lane,
        )  # fmt: skip
        self._lane = last_lane((one.doc.tenant_id for one in claimed), after=self._lane)
        self._claimed += len(claimed)
        return claimed

    async def _act(self, claimed: Snapshot[RunFields], until_s: float) -> None:
        name, task = claimed.doc.type, asyncio.current_task()
        assert task is not None
        workflow = self._workflows.get(name)
        execution = self._executions[task] = Execution(
            claimed, self._store.tenant(claimed.doc.tenant_id), models=self._models, joins=self._joins,
            workflow=workflow or Workflow(name), lease_s=self._lease_s, until_s=until_s,
        )  # fmt: skip
        try:
            # An unknown workflow is left to workers that know it, for as long as they may take to come.
            await (execution.work() if workflow is not None else execution.release(self._lease_s))
            self._settled += 1
        except asyncio.CancelledError:
            await self._give_back(execution, 0.0, forget=True)
        except LeaseLostError:
            self._lost += 1
        except Exception as fault:
            self._note(fault)
            await self._give_back(execution, self._poll_s, forget=False)
        finally:
            del self._executions[task]

    async def _give_back(self, execution: Execution, after_s: float, *, forget: bool) -> None:
        """Give the run back; where that fails too, its lease ends, and it goes on from its checkpoint."""
        if execution.lost:
            self._lost += 1
            return
        with contextlib.suppress(HoldfastError):
            await execution.release(after_s, forget=forget)

    async def _renew_leases(self) -> None:
        """Renew all leases together; a run whose lease is lost is dropped where it stands."""
        while True:
            await self._clock.sleep(self._renew_s)
            # A run that has just ended must not come due again by being renewed.
            held = {task: execution for task, execution in self._executions.items() if execution.holds_claim}
            sent_s = self._clock.monotonic()
            outcomes = await self._renew(list(held.values()))
            for (task, execution), outcome in zip(held.items(), outcomes, strict=True):
                if isinstance(outcome, Committed):
                    execution.good_until_s = sent_s + self._lease_s
                elif isinstance(outcome, LeaseLostError) or execution.good_until_s <= self._clock.monotonic():
                    execution.lost = True
                    task.cancel()

    async def _renew(self, held: list[Execution]) -> list[Outcome]:
        try:
            return await self._store.settle([execution.renewal()] for execution in held)
        except RetryLaterError as later:
            return [later] * len(held)

    async def _wind_down(self) -> None:
        for execution in self._executions.values():
            execution.stopping = True
        await super()._wind_down()
