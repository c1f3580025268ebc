"""The worker that executes runs: claims what is due, renews the leases, works on many at once.

One runner serves the workflows of a whole process. It claims from each collection by lane, a lane for each
workflow and tenant: runs of workflows that it does not know are left to other processes, a workflow has its
share of the slots whatever others do, and within it tenants take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from holdfast.errors import DeclarationError, HoldfastError, LeaseLostError, RetryLaterError
from holdfast.kit.runs.execution import Execution
from holdfast.kit.runs.models import KIT, RunFields, RunModels
from holdfast.kit.runs.run_queue import RunQueue, room_for
from holdfast.kit.runs.transitions import Join
from holdfast.kit.runs.workflow import Workflow
from holdfast.kit.worker_loop import IDLE_S_MIN, WorkerLoop, cancel_all
from holdfast.model import Document
from holdfast.store.commit import Committed, Outcome, Snapshot
from holdfast.store.store import Store

# Between two claims at the least, so that a worker's own commits don't make it claim without pause.
GAP_S: Final = 0.01
CLAIM_MAX: Final = 50


class RunnerStatus(msgspec.Struct, kw_only=True):
    """A runner's state and its counts since it was created, of all workflows or of one."""

    last_turn_at: datetime | None = None
    held: int = 0
    claimed: int = 0
    settled: int = 0
    lost: int = 0
    faults: int = 0
    last_fault: str | None = None


class RunCollection:
    """The queues of one collection of runs, and when to look into it next."""

    def __init__(self, kind: type[RunFields]) -> None:
        self.kind = kind
        self.queues: list[RunQueue] = []
        self.look_at_s = 0.0
        # Whether there may be due runs for which this process had no room.
        self.has_more = False


class Runner(WorkerLoop[RunFields]):
    """Executes the runs that a store handle reaches: all tenants' with a privileged one.

    Example: `await Runner(store.privileged(), [autopilot, triage]).run(stop)`
    """

    def __init__(
        self,
        store: Store,
        workflows: Iterable[Workflow] = (),
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
        self._renew_s = renew_s
        self._collections: dict[type[RunFields], RunCollection] = {}
        self._queues: dict[tuple[type[RunFields], str], RunQueue] = {}
        self._executions: dict[asyncio.Task[None], Execution] = {}
        self._held: dict[asyncio.Task[None], tuple[RunQueue, str]] = {}
        self.add(workflows, models=models, joins=joins)

    def add(
        self, workflows: Iterable[Workflow], *, models: RunModels = KIT, joins: Sequence[Join] = ()
    ) -> None:
        """Execute the runs of these workflows, too, in the collection of these models; before it runs."""
        for workflow in workflows:
            if (models.run, workflow.name) in self._queues:
                raise DeclarationError(
                    f"two workflows are named {workflow.name!r} in {models.run.__name__}; rename one"
                )
            queue = self._queues[models.run, workflow.name] = RunQueue(workflow, models, joins)
            self._collections.setdefault(models.run, RunCollection(models.run)).queues.append(queue)

    @property
    def queues(self) -> Sequence[RunQueue]:
        return list(self._queues.values())

    @property
    def kinds(self) -> Sequence[type[RunFields]]:
        """The document classes of the runs that it executes."""
        return list(self._collections)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing was due when it last looked into each collection."""
        now_s = self._clock.monotonic()
        rest = (one.look_at_s > now_s and not one.has_more for one in self._collections.values())
        return not self._tasks and all(rest)

    def status(self, workflow: Workflow | None = None) -> RunnerStatus:
        queues = [one for one in self._queues.values() if workflow in (None, one.workflow)]
        return RunnerStatus(
            last_turn_at=self.last_turn_at, held=sum(one.under_way for one in queues),
            claimed=sum(one.claimed for one in queues), settled=sum(one.settled for one in queues),
            lost=sum(one.lost for one in queues), faults=sum(one.faults for one in queues),
            last_fault=self.last_error or None,
        )  # fmt: skip

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then finish the steps under way, or give them back after `stop_s`."""
        renewing = asyncio.create_task(self._renew_leases())
        try:
            await super().run(stop)
        finally:
            await cancel_all([renewing])

    def _subscribed(self) -> Mapping[type[Document], Callable[[], None]]:
        return {one.kind: partial(self._look_now, one) for one in self._collections.values()}

    def _look_now(self, collection: RunCollection) -> None:
        collection.look_at_s = 0.0
        self._wake.set()

    async def _step(self) -> float:
        for one in self._collections.values():
            if one.look_at_s <= self._clock.monotonic():
                await self._look(one)
        next_s = min((one.look_at_s for one in self._collections.values()), default=math.inf)
        return min(self._poll_s, next_s - self._clock.monotonic())

    async def _look(self, collection: RunCollection) -> None:
        """Start the due runs of a collection, and say when to look again."""
        now_s, now = self._clock.monotonic(), self._clock.now()
        # Before reading: a notification that comes meanwhile must not be lost.
        collection.look_at_s = now_s + self._poll_s
        due = await self._store.next_due(collection.kind)
        if due is not None and due <= now:
            while await self._start(self._concurrency, collection):
                pass
            # What is still due is another process's, or waits for room.
            due = await self._store.next_due(collection.kind, after=now)
        if due is not None:
            left_s = max(IDLE_S_MIN, (due - now).total_seconds())
            collection.look_at_s = min(collection.look_at_s, now_s + left_s)

    async def _start(self, room: int, collection: RunCollection | None = None) -> list[asyncio.Task[None]]:
        self.last_turn_at = self._clock.now()
        started: list[asyncio.Task[None]] = []
        for one in self._collections.values() if collection is None else (collection,):
            one.has_more = False
            for queue in one.queues:
                started += await self._start_queue(one, queue, room - len(started))
        return started

    async def _start_queue(
        self, collection: RunCollection, queue: RunQueue, room: int
    ) -> list[asyncio.Task[None]]:
        allowed = min(room, CLAIM_MAX, room_for(queue, self._queues.values(), concurrency=self._concurrency))
        if allowed < 1:
            collection.has_more = True
            return []
        until_s = self._clock.monotonic() + self._lease_s
        full = queue.full_lanes(allowed) if self._store.tenant_id is None else []
        collection.has_more = collection.has_more or bool(full)
        claimed = await self._claim_queue(queue, allowed, full)
        lanes = [one.doc.lane for one in claimed]
        queue.take(lanes)
        tasks = [self._spawn(self._act(one, until_s)) for one in claimed]
        self._held.update((task, (queue, lane)) for task, lane in zip(tasks, lanes, strict=True))
        return tasks

    async def _claim_queue(
        self, queue: RunQueue, room: int, full: Sequence[str]
    ) -> list[Snapshot[RunFields]]:
        """Claim in turn from each tenant, so that one with many runs doesn't keep the others waiting."""
        return await self._store.claim_due(
            queue.models.run, limit=room, lease_s=self._lease_s, owner=self.owner, skip_lanes=full,
            lane_prefix=queue.lane_prefix, after_lane=queue.after_lane,
            per_lane=max(1, room // 4) if self._store.tenant_id is None else None,
        )  # fmt: skip

    def _ended(self, task: asyncio.Task[None]) -> None:
        queue, lane = self._held.pop(task)
        queue.give_back(lane)
        for one in self._collections.values():
            if one.has_more:
                self._look_now(one)
        super()._ended(task)

    async def _act(self, claimed: Snapshot[RunFields], until_s: float) -> None:
        queue, task = self._queues[type(claimed.doc), claimed.doc.type], asyncio.current_task()
        assert task is not None
        execution = self._executions[task] = Execution(
            claimed, self._store.tenant(claimed.doc.tenant_id), models=queue.models, joins=queue.joins,
            workflow=queue.workflow, lease_s=self._lease_s, until_s=until_s,
        )  # fmt: skip
        try:
            await execution.work()
            queue.settled += 1
        except asyncio.CancelledError:
            await self._give_back(queue, execution, 0.0, forget=True)
        except LeaseLostError:
            queue.lost += 1
        except Exception as fault:
            queue.faults += 1
            self._note(fault)
            await self._give_back(queue, execution, self._poll_s, forget=False)
        finally:
            del self._executions[task]

    async def _give_back(
        self, queue: RunQueue, execution: Execution, after_s: float, *, forget: bool
    ) -> None:
        """Give the run back; where that fails too, its lease ends, and it goes on from its checkpoint."""
        if execution.lost:
            queue.lost += 1
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
