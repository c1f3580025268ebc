"""The worker that carries runs: claims what is due, keeps the claims alive, works many at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import HoldfastError, LeaseLostError, RetryLaterError
from holdfast.kit.runs.execution import Execution
from holdfast.kit.runs.models import KIT, RunFields, RunModels
from holdfast.kit.runs.transitions import Join
from holdfast.kit.runs.workflow import Workflow
from holdfast.kit.worker_loop import wait_first, wait_for_wake
from holdfast.store.commit import Committed, Outcome, Snapshot
from holdfast.store.store import Store

# Between two claims at the least, so that a worker's own commits don't make it ask without pause.
TURN_S_MIN: Final = 0.01
CLAIM_MAX: Final = 50


class RunnerStatus(msgspec.Struct, kw_only=True):
    """How the worker is doing; all counts since it was made."""

    last_turn_at: datetime | None = None
    held: int = 0
    claimed: int = 0
    settled: int = 0
    lost: int = 0
    faults: int = 0
    last_fault: str | None = None


class Runner:
    """Carries the runs that a store handle reaches: all tenants' with a privileged one.

    Example: `await Runner(store.privileged(), [autopilot, triage]).run(stop)`
    """

    def __init__(
        self,
        store: Store,
        workflows: Iterable[Workflow],
        *,
        models: RunModels = KIT,
        joins: Sequence[Join] = (),
        owner: str | None = None,
        concurrency: int = 200,
        lease_s: float = 60.0,
        renew_s: float = 20.0,
        poll_s: float = 5.0,
        stop_s: float = 3.0,
    ) -> None:
        self.owner = owner or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._store = store
        self._clock = store.clock
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._models = models
        self._joins = tuple(joins)
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._poll_s = poll_s
        self._stop_s = stop_s
        self._held: dict[asyncio.Task[None], Execution] = {}
        self._nudge = asyncio.Event()
        self._lane: str | None = None
        self._status = RunnerStatus()

    @property
    def last_turn_at(self) -> datetime | None:
        return self._status.last_turn_at

    @property
    def under_way(self) -> int:
        """How many runs are in this worker's hands."""
        return len(self._held)

    def status(self) -> RunnerStatus:
        return msgspec.structs.replace(self._status, held=len(self._held))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then finish the steps under way, or give them back after `stop_s`."""
        subscription = self._store.watch(self._models.run)
        keeper = asyncio.create_task(self._keep())
        try:
            while not stop.is_set():
                self._nudge.clear()
                idle_s = await self._turn()
                await wait_for_wake(self._clock, TURN_S_MIN, stop=stop)
                await wait_first(
                    wait_for_wake(self._clock, idle_s, wake=subscription, stop=stop), self._nudge.wait()
                )
        except asyncio.CancelledError:
            # Whoever cancels does not want to wait for steps to finish.
            self._stop_s = 0.0
            raise
        finally:
            subscription.close()
            try:
                await self._wind_down()
            finally:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)

    # -- claiming ---------------------------------------------------------------------------------

    async def _turn(self) -> float:
        """Claim what is due and there is room for; gives how long nothing new can come due."""
        self._status.last_turn_at = self._clock.now()
        try:
            while (free := self._concurrency - len(self._held)) > 0:
                claimed = await self._claim(min(free, CLAIM_MAX))
                for one in claimed:
                    self._take(one)
                if not claimed:
                    due = await self._store.next_due(self._models.run)
                    left_s = self._poll_s if due is None else (due - self._clock.now()).total_seconds()
                    return min(self._poll_s, max(0.0, left_s))
        except RetryLaterError as later:
            self._note(later)
        return self._poll_s

    async def _claim(self, limit: int) -> list[Snapshot[RunFields]]:
        """In turn from each tenant, so that one with a crowd of runs doesn't keep the others waiting."""
        fair = max(1, limit // 4) if self._store.tenant_id is None else None
        claimed = await self._store.claim_due(
            self._models.run, limit=limit, lease_s=self._lease_s, owner=self.owner, per_lane=fair,
            after_lane=self._lane,
        )  # fmt: skip
        if claimed:
            self._lane = max(
                (one.doc.tenant_id for one in claimed), key=lambda lane: (lane <= (self._lane or ""), lane)
            )
        return claimed

    def _take(self, claimed: Snapshot[RunFields]) -> None:
        self._status.claimed += 1
        kind = claimed.doc.type
        execution = Execution(
            claimed, self._store.tenant(claimed.doc.tenant_id), models=self._models, joins=self._joins,
            workflow=self._workflows.get(kind) or Workflow(kind), lease_s=self._lease_s,
        )  # fmt: skip
        task = asyncio.create_task(self._carry(execution, known=kind in self._workflows))
        self._held[task] = execution
        task.add_done_callback(self._held.pop)

    # -- carrying ---------------------------------------------------------------------------------

    async def _carry(self, execution: Execution, *, known: bool) -> None:
        try:
            # Left to workers that know its workflow, and looked at again when they might be there.
            await (execution.work() if known else execution.release(self._lease_s))
            self._status.settled += 1
        except asyncio.CancelledError:
            await self._let_go(execution, 0.0, forget=True)
        except LeaseLostError:
            self._status.lost += 1
        except Exception as fault:
            self._note(fault)
            await self._let_go(execution, self._poll_s, forget=False)
        self._nudge.set()

    async def _let_go(self, execution: Execution, after_s: float, *, forget: bool) -> None:
        """Give the run back; where that fails too, its claim runs out, and it goes on from its checkpoint."""
        if execution.lost:
            self._status.lost += 1
            return
        with contextlib.suppress(HoldfastError):
            await execution.release(after_s, forget=forget)

    def _note(self, fault: Exception) -> None:
        self._status.faults += 1
        self._status.last_fault = f"{type(fault).__name__}: {fault}"

    # -- keeping ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Renew all claims together; a run whose claim is lost is dropped where it stands."""
        while True:
            await self._clock.sleep(self._renew_s)
            # A run that has just ended must not come due again by being renewed.
            held = {task: execution for task, execution in self._held.items() if execution.holds_claim}
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
        for execution in self._held.values():
            execution.stopping = True
        try:
            if self._held:
                await wait_first(asyncio.wait(set(self._held)), self._clock.sleep(self._stop_s))
        finally:
            # Also when whoever told us to stop has no patience left: what is held must be given back.
            under_way = list(self._held)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
