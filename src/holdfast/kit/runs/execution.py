"""The execution of one claimed run, from the claim until its release."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from holdfast.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    LeaseLostError,
    LimitReachedError,
    OutcomeUnknownError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.kit.checkpoints import CheckpointFields, Checkpoints
from holdfast.kit.runs import decision
from holdfast.kit.runs.decision import (
    Begin,
    End,
    Outcome,
    StepCompleted,
    StepFailed,
    StepWaiting,
    next_action,
)
from holdfast.kit.runs.models import RunFields, RunModels
from holdfast.kit.runs.transitions import Join, Transition, end_transition
from holdfast.kit.runs.workflow import Step, StepDefinition, Workflow
from holdfast.store.commit import Fence, Snapshot, Version, Write, patch
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction

T = TypeVar("T")
UNKNOWN: Final = -1
# Errors with which a step's own writes may be refused; a lost claim is not among them.
_REFUSALS = (ConflictError, ForbiddenError, InvalidError, LimitReachedError)


class Execution:
    """Begins steps, runs them and commits their outcomes, each only while the claim holds."""

    def __init__(
        self,
        claimed: Snapshot[RunFields],
        store: Store,
        *,
        workflow: Workflow,
        models: RunModels,
        joins: Sequence[Join],
        lease_s: float,
        until_s: float,
    ) -> None:
        self.run = claimed.doc
        self._fence = claimed.doc.fence
        self.good_until_s = until_s
        self.stopping = False
        self.lost = False
        self._version = claimed.version
        self._store = store
        self._clock = store.clock
        self._workflow = workflow
        self._models = models
        self._joins = joins
        self._lease = timedelta(seconds=lease_s)
        self._checkpoints = Checkpoints(store, kind=models.checkpoint)
        self._checkpoint: CheckpointFields | None = None
        self._input: Any = None

    async def work(self) -> None:
        """Resume from the last checkpoint until the run ends, waits, or must be released."""
        action = await self._resume() or next_action(self.run, self._clock.now())
        while isinstance(action, Begin):
            if self.stopping:
                return await self.release(0.0)
            if await self._begin(action):
                step, outcome = await self._run_step(action.place)
                if not await self._settle(action.place, outcome, step=step):
                    return None
            action = next_action(self.run, self._clock.now())
        return await self._commit(
            end_transition(self.run, action, now=self._clock.now()), *self._retire_writes()
        )

    def renewal(self) -> Write:
        """The write that renews the claim."""
        changes = {"due_at": self._clock.now() + self._lease}
        return patch(self._models.run, self.run.id, changes=changes, expect=Fence(self._fence))

    @property
    def holds_claim(self) -> bool:
        """Whether the claim is still ours: ending or releasing a run raises its fence."""
        return self.run.fence == self._fence

    async def release(self, after_s: float, *, forget: bool = True) -> None:
        """Release the run for another worker; with `forget` a running step's attempt does not count."""
        while True:
            # A commit in flight when this was called may have landed: only the stored run knows.
            await self._refresh()
            now = self._clock.now()
            changes = decision.release_claim(self.run, due_at=now + timedelta(seconds=after_s))
            running = {n: step for n, step in enumerate(self.run.steps) if step.status == "running"}
            steps = {n: decision.reset_attempt(step, forget=forget) for n, step in running.items()}
            if await self._commit_if_unchanged(Transition(changes | {"updated_at": now}, steps)):
                return

    async def _begin(self, action: Begin) -> bool:
        """Mark the step as running; False when the run was written meanwhile and must be read again."""
        now, summary = self._clock.now(), self.run.steps[action.place]
        changes: dict[str, Any] = {"current_step": summary.id, "updated_at": now, "due_at": now + self._lease}
        changes["started_at"] = self.run.started_at or now
        if self.run.deadline_at is None:
            changes["deadline_at"] = now + timedelta(seconds=self._workflow.limit_s)
        transition = Transition(
            changes, {action.place: decision.begin_step(summary, input=self._input, now=now)}, action.place
        )
        # By version, not only by fence: a cancel that was stored before lets no step begin.
        if self._version != UNKNOWN and await self._commit_if_unchanged(transition):
            return True
        await self._refresh()
        return False

    async def _run_step(self, place: int) -> tuple[Step, Outcome]:
        summary = self.run.steps[place]
        plan = self._workflow.steps.get(summary.name)
        state = {} if self._checkpoint is None else copy.deepcopy(self._checkpoint.state)
        step = Step(self.run, summary.name, input=self._input, state=state, attempt=summary.attempts)
        if plan is None:
            return step, StepFailed(f"workflow {self._workflow.name} has no step {summary.name}", again=False)
        return step, await self._run_limited(plan, step)

    async def _run_limited(self, plan: StepDefinition, step: Step) -> Outcome:
        assert self.run.deadline_at is not None
        left_s = (self.run.deadline_at - self._clock.now()).total_seconds()
        limit_s = max(0.0, min(plan.limit_s, left_s))
        task = asyncio.ensure_future(plan.act(step))
        timer = asyncio.ensure_future(self._clock.sleep(limit_s))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return StepFailed(f"{plan.name} took longer than {limit_s:g} s")
            if task.cancelled():
                return StepFailed(f"{plan.name} cancelled itself")
            fault = task.exception()
            if fault is not None:
                return decision.classify_error(fault)
            return decision.check_output(task.result(), step.state)
        finally:
            task.cancel()
            timer.cancel()
            await asyncio.gather(task, timer, return_exceptions=True)

    async def _settle(self, place: int, outcome: Outcome, *, step: Step) -> bool:
        """Commit a step's outcome; False when this worker is done with the run."""
        if isinstance(outcome, StepCompleted):
            try:
                return await self._finish(place, outcome, step=step)
            except _REFUSALS as refusal:
                outcome = decision.classify_error(refusal)
        if isinstance(outcome, StepWaiting):
            await self._wait(place, outcome)
        elif isinstance(outcome, StepFailed):
            await self._fail(place, outcome, step=step)
        return False

    async def _finish(self, place: int, outcome: StepCompleted, *, step: Step) -> bool:
        now, summary = self._clock.now(), self.run.steps[place]
        last = place == len(self.run.steps) - 1
        changes: dict[str, Any] = step.changes | {
            "tokens": self.run.tokens + step.tokens, "current_step": None, "updated_at": now,
            "due_at": now + self._lease,
        }  # fmt: skip
        if last:
            changes |= decision.end_run(self.run, End("completed"), now=now)
            changes["result"] = decision.drop_if_large(outcome.output, decision.RESULT_BYTES_MAX)
        transition = Transition(
            changes, {place: decision.complete_step(summary, outcome, step=step, now=now)}, place
        )
        new = self._checkpoints.next(
            self.run.id, step_id=summary.id, state=outcome.state, after=self._checkpoint,
            expires_at=self._checkpoints.expiry() if last else None,
        )  # fmt: skip
        checkpoint = self._checkpoints.writes_checkpoint(new, after=self._checkpoint)
        await self._commit(transition, *checkpoint, *step.writes)
        self._checkpoint, self._input = new, outcome.output
        return not last

    async def _fail(self, place: int, outcome: StepFailed, *, step: Step) -> None:
        now, summary = self._clock.now(), self.run.steps[place]
        plan = self._workflow.steps.get(summary.name)
        wait_s = None if plan is None else decision.retry_after_s(outcome, summary.failures + 1, plan=plan)
        again = wait_s is not None
        changes = {place: decision.fail_step(summary, outcome, step=step, now=now, again=again)}
        tokens = {"tokens": self.run.tokens + step.tokens, "updated_at": now}
        if wait_s is not None:
            due = now + timedelta(seconds=wait_s)
            await self._commit(
                Transition(decision.release_claim(self.run, due_at=due) | tokens, changes, place)
            )
            return
        end = end_transition(self.run, End("failed", f"{summary.name}: {outcome.error}"), now=now)
        await self._commit(Transition(end.run | tokens, end.steps | changes, place), *self._retire_writes())

    async def _wait(self, place: int, outcome: StepWaiting) -> None:
        """Park the run, unless it was woken since the step began."""
        wakes = self.run.wakes
        while True:
            due = self._due_after(outcome, woken=self.run.wakes != wakes)
            changes = decision.release_claim(self.run, due_at=due)
            changes |= {"deadline_at": None, "updated_at": self._clock.now()}
            transition = Transition(changes, {place: decision.reset_attempt(self.run.steps[place])}, place)
            if await self._commit_if_unchanged(transition):
                return
            await self._refresh()

    def _due_after(self, outcome: StepWaiting, *, woken: bool) -> datetime | None:
        if woken or self.run.cancel_requested_at is not None:
            return self._clock.now()
        return None if outcome.after_s is None else self._clock.now() + timedelta(seconds=outcome.after_s)

    async def _commit(self, transition: Transition, *others: Write) -> None:
        """Commit a transition while the claim holds."""
        writes = [*transition.writes(self.run, self._models, Fence(self.run.fence)), *others]
        if not self._joins:
            await self._send(transition, writes)
            # A fence admits what others wrote meanwhile, such as a cancel: the next step reads first.
            self._version = UNKNOWN
            return
        result = transition.result(self.run)

        async def act(transaction: Transaction) -> None:
            transaction.write(*writes)
            for join in self._joins:
                await join(transaction, result)

        await self._retry_commit(transition, lambda: self._store.transact(act))
        # A transaction does not return the new version, so the next step reads first.
        self.run, self._version = result.run, UNKNOWN

    async def _commit_if_unchanged(self, transition: Transition) -> bool:
        """Commit a transition only if nobody wrote the run since it was read."""
        try:
            await self._send(transition, transition.writes(self.run, self._models, Version(self._version)))
        except VersionConflictError:
            return False
        return True

    async def _send(self, transition: Transition, writes: list[Write]) -> None:
        committed = await self._retry_commit(transition, lambda: self._store.commit(*writes))
        self.run = transition.apply(self.run)
        self._version = UNKNOWN if committed is None else committed.versions[0]

    async def _retry_commit(self, transition: Transition, commit: Callable[[], Awaitable[T]]) -> T | None:
        """Retry while the store is unreachable and the claim holds; None when it had landed after all."""
        while True:
            try:
                return await commit()
            except RetryLaterError as later:
                if isinstance(later, OutcomeUnknownError) and await self._has_landed(transition):
                    return None
                await self._pause(later.after_s)

    async def _has_landed(self, transition: Transition) -> bool:
        stored = await self._store.get(self._models.run, self.run.id)
        return stored is not None and stored.doc.updated_at == transition.run["updated_at"]

    async def _pause(self, seconds: float) -> None:
        if self._clock.monotonic() + seconds >= self.good_until_s:
            raise LeaseLostError(f"run {self.run.id}: the store was unreachable for longer than the claim")
        await self._clock.sleep(seconds)

    async def _refresh(self) -> None:
        stored = await self._store.get(self._models.run, self.run.id)
        if stored is None or stored.doc.fence != self.run.fence:
            raise LeaseLostError(f"run {self.run.id} was claimed by another worker since")
        self.run, self._version = stored.doc, stored.version

    async def _resume(self) -> End | None:
        """Load what the completed steps left: the last state and the last output."""
        self._input = self.run.input
        finished = [step for step in self.run.steps if step.status == "completed"]
        if not finished:
            return None
        self._checkpoint = await self._checkpoints.latest(self.run.id)
        last = await self._store.get(self._models.step, self.run.id, finished[-1].id)
        if self._checkpoint is None or last is None:
            return End("failed", "the checkpoint to resume from was deleted")
        self._input = last.doc.output
        return None

    def _retire_writes(self) -> list[Write]:
        return [] if self._checkpoint is None else self._checkpoints.writes_retire(self._checkpoint)
