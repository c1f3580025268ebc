"""Runs from the outside: start, read, cancel, wake, retry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, get_args

import msgspec

from holdfast.errors import ConflictError, DeclarationError, InvalidError, NotFoundError, TooLargeError
from holdfast.kit import NO_TENANT
from holdfast.kit.checkpoints import Checkpoints
from holdfast.kit.runs.decision import End
from holdfast.kit.runs.models import KIT, RunFields, RunModels, RunStatus, StepFields
from holdfast.kit.runs.transitions import Join, end_transition, retry_transition
from holdfast.kit.runs.workflow import StepWaits, Workflow
from holdfast.model import ProvidedId, schema_of
from holdfast.store.commit import Write, create, patch
from holdfast.store.query import Query, QueryPage
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction

RUN_INPUT_BYTES_MAX: Final = 256 * 1024


class Runs:
    """The runs of one tenant, or runs without tenants; a privileged handle reads those of all tenants.

    Example:
        runs = Runs(store.tenant("acme"))
        run, writes = runs.writes_start(autopilot, input={"pr": 42})
        await acme.commit(patch(Candidate, "c-1", changes={"status": "applying"}), *writes)
    """

    def __init__(self, store: Store, *, models: RunModels = KIT, joins: Sequence[Join] = ()) -> None:
        self._tenant_id = store.tenant_id or NO_TENANT
        self._store = store if store.crosses_tenants else store.tenant(self._tenant_id)
        self._models = models
        self._joins = tuple(joins)
        self._checkpoints = Checkpoints(self._store, kind=models.checkpoint)

    @property
    def collection(self) -> str:
        return self._store.catalog.table(schema_of(self._models.run))

    def writes_start(
        self,
        workflow: Workflow,
        *,
        input: Any = None,
        delay_s: float = 0.0,
        fields: Mapping[str, Any] | None = None,
    ) -> tuple[RunFields, list[Write]]:
        """A new run and the writes that start it; `fields` are those a service's own class adds."""
        if not workflow.steps:
            raise DeclarationError(f"workflow {workflow.name} has no steps")
        size = len(msgspec.json.encode(input))
        if size > RUN_INPUT_BYTES_MAX:
            raise TooLargeError(
                f"an input has at most {RUN_INPUT_BYTES_MAX:,} bytes; this one has {size:,}", "input"
            )
        now = self._store.clock.now()
        run = self._models.run(
            tenant_id=self._tenant_id, type=workflow.name, input=msgspec.to_builtins(input),
            due_at=now + timedelta(seconds=delay_s), created_at=now, updated_at=now, **(fields or {}),
        )  # fmt: skip
        schema_of(self._models.run).assign_id(run)
        steps = self._steps_of(run, workflow)
        run.steps = [self._models.summary(id=one.id, run_id=run.id, name=one.name) for one in steps]
        return run, [create(run), *map(create, steps)]

    async def start(
        self,
        workflow: Workflow,
        *,
        input: Any = None,
        delay_s: float = 0.0,
        fields: Mapping[str, Any] | None = None,
    ) -> RunFields:
        """Start a run in a commit of its own."""
        run, writes = self.writes_start(workflow, input=input, delay_s=delay_s, fields=fields)
        await self._store.commit(*writes)
        return run

    async def get(self, run_id: str) -> RunFields | None:
        stored = await self._store.get(self._models.run, run_id)
        return None if stored is None else stored.doc

    async def page(
        self,
        *,
        status: RunStatus | None = None,
        type: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> QueryPage[RunFields]:
        """Runs, newest first; their class must declare `RUN_INDEXES`."""
        query = Query(self._models.run).order_by("-created_at").limit(limit).after(cursor)
        if type is not None:
            query = query.where("type", "==", type)
        if status is not None:
            query = query.where("status", "==", status)
        elif self._store.crosses_tenants:
            # The indexes over all tenants begin with the status: fewer of them make writes cheaper.
            query = query.where("status", "in", get_args(RunStatus))
        return await self._store.query(query)

    async def count(self, status: RunStatus, *, since: datetime | None = None) -> int:
        """How many runs have this status, of those created at `since` or later where it is given."""
        query = Query(self._models.run).where("status", "==", status).order_by("-created_at")
        return await self._store.count(query if since is None else query.where("created_at", ">=", since))

    async def steps(self, run_id: str) -> list[StepFields]:
        """The steps with their full inputs and outputs, in order."""
        query = Query(self._models.step).under(run_id).order_by("number")
        return list((await self._store.query(query)).docs)

    async def cancel(
        self,
        run_id: str,
        transaction: Transaction | None = None,
        *,
        reason: str = "cancelled",
        fields: Mapping[str, Any] | None = None,
    ) -> RunStatus:
        """Let no further step begin, in the caller's transaction if given; return the run's status.

        `fields` are changes of those that a service's own class adds.

        A run that nobody holds ends at once. One that a worker holds ends when its present step does or calls
        `raise_if_cancelled`; one whose last step is running may still complete.
        """
        if transaction is None:
            return await self._store.transact(
                lambda own: self.cancel(run_id, own, reason=reason, fields=fields)
            )
        stored = await transaction.get(self._models.run, run_id)
        if stored is None:
            raise NotFoundError(f"run {run_id!r} does not exist")
        run, now = stored.doc, self._store.clock.now()
        if run.completed_at is not None:
            return run.status
        if run.held_by:
            changes: dict[str, Any] = {
                "cancel_requested_at": now, "cancel_reason": reason, "updated_at": now, **(fields or {}),
            }  # fmt: skip
            transaction.write(patch(self._models.run, run_id, changes=changes))
            return run.status
        return await self._end(transaction, run, End("cancelled", reason), fields=fields)

    async def raise_if_cancelled(self, run_id: str) -> None:
        """Called by a long step now and then: ends the step there once the run is to be cancelled.

        What the step has committed so far stays.
        """
        stored = await self._store.get(self._models.run, run_id)
        if stored is not None and stored.doc.cancel_requested_at is not None:
            # Released in the middle of a step, the run is ended instead of continued.
            raise StepWaits(0)

    async def _end(
        self, transaction: Transaction, run: RunFields, end: End, *, fields: Mapping[str, Any] | None
    ) -> RunStatus:
        transition = end_transition(run, end, now=self._store.clock.now(), fields=fields)
        transaction.write(*transition.writes(run, self._models, None))
        last = await self._checkpoints.latest(run.id)
        if last is not None:
            transaction.write(*self._checkpoints.writes_retire(last))
        result = transition.result(run)
        for join in self._joins:
            await join(transaction, result)
        return result.run.status

    @property
    def retriable(self) -> bool:
        """Whether failed runs may be retried: whether their lifecycle declares that move."""
        lifecycle = schema_of(self._models.run).lifecycle
        return lifecycle is not None and "pending" in lifecycle.moves.get("failed", ())

    async def retry(self, run_id: str, transaction: Transaction | None = None) -> RunStatus:
        """Retry a failed run from the failed step, in the caller's transaction if given; return its status.

        Completed steps stay completed; the others have all their attempts again, and the run its full time
        limit. Only runs whose class declares `RETRIED_RUN_LIFE` can be retried, while the checkpoint to
        resume from is stored.
        """
        if transaction is None:
            return await self._store.transact(lambda own: self.retry(run_id, own))
        stored = await transaction.get(self._models.run, run_id)
        if stored is None:
            raise NotFoundError(f"run {run_id!r} does not exist")
        run = stored.doc
        if run.status != "failed":
            return run.status
        if not self.retriable:
            raise InvalidError(f"runs in {self.collection} can't be retried after a failure; start another")
        transition = retry_transition(run, now=self._store.clock.now())
        transaction.write(*transition.writes(run, self._models, None), *await self._revive_writes(run))
        for join in self._joins:
            await join(transaction, transition.result(run))
        return "pending"

    async def _revive_writes(self, run: RunFields) -> list[Write]:
        if not any(step.status == "completed" for step in run.steps):
            return []
        last = await self._checkpoints.latest(run.id)
        if last is None:
            raise ConflictError(
                f"the checkpoint that run {run.id} would resume from was deleted; start another"
            )
        return self._checkpoints.writes_revive(last)

    async def wake(
        self, run_id: str, transaction: Transaction | None = None, *, fields: Mapping[str, Any] | None = None
    ) -> bool:
        """Make a waiting run due, in the caller's transaction, in the commit of what it waited for.

        False where there is no such run, or where it has ended. `fields` are changes of those that a
        service's own class adds.
        """
        if transaction is None:
            return await self._store.transact(lambda own: self.wake(run_id, own, fields=fields))
        stored = await transaction.get(self._models.run, run_id)
        if stored is None or stored.doc.completed_at is not None:
            return False
        changes: dict[str, Any] = {"wakes": stored.doc.wakes + 1, **(fields or {})}
        # A run that is about to wait is still held by its worker, which will see the count.
        if not stored.doc.held_by:
            changes["due_at"] = self._store.clock.now()
        transaction.write(patch(self._models.run, run_id, changes=changes))
        return True

    def _steps_of(self, run: RunFields, workflow: Workflow) -> list[StepFields]:
        """The steps, with ids as their class declares them; provided ones are of the number and the name."""
        schema, steps = schema_of(self._models.step), list[StepFields]()
        provided = isinstance(schema.declared.id, ProvidedId)
        for number, name in enumerate(workflow.steps, 1):
            id = f"step-{number:03}-{name}" if provided else ""
            step = self._models.step(id=id, run_id=run.id, tenant_id=run.tenant_id, name=name, number=number)
            schema.assign_id(step)
            steps.append(step)
        return steps
