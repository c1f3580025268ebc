"""Runs: how far each is, cancelling one, letting one that waits or has failed go on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from holdfast.errors import ConflictError, NotFoundError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.runs import RunFields, Runs, StepSummary
from holdfast.kit.runs.models import RunStatus, StepStatus
from holdfast.operations.act import run_audited
from holdfast.routing import Actor, Cursor, Limit, RequestBody, TenantId, action_route, read_route
from holdfast.runtime import Runtime
from holdfast.store import Transaction

KIT_RUNS: Final = "holdfast_runs"
REASON_CHARACTERS_MAX: Final = 500
_RUN: Final = "/runs/{collection:str}/{run_id:str}"


class StepRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step without what it was given and gave, which may hold what only the service should see."""

    name: str
    status: StepStatus
    attempts: int
    failures: int
    error: str | None
    started_at: datetime | None
    completed_at: datetime | None
    duration_ms: int | None


class RunRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run: where it stands, and whose hands it is in. `due_at` ends the claim of whoever holds it; where
    nobody does, it is when the run goes on."""

    id: str
    collection: str
    type: str
    status: RunStatus
    current_step: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration_ms: int | None
    deadline_at: datetime | None
    due_at: datetime | None
    held_by: str
    fence: int
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    steps: list[StepRow]


class RunPage(msgspec.Struct, frozen=True):
    items: list[RunRow]
    cursor: str | None


class CancelRun(RequestBody, frozen=True):
    """`reason` is shown with the run."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARACTERS_MAX)] = (
        "cancelled by an operator"
    )


def row(run: RunFields, collection: str) -> RunRow:
    names = set(RunRow.__struct_fields__) - {"collection", "steps"}
    return RunRow(
        collection=collection, steps=[_step(one) for one in run.steps],
        **{name: getattr(run, name) for name in names},
    )  # fmt: skip


def _step(step: StepSummary) -> StepRow:
    return StepRow(**{name: getattr(step, name) for name in StepRow.__struct_fields__})


def runs_in(runtime: Runtime, tenant_id: str, collection: str) -> Runs:
    """A tenant's runs of one collection, or `NotFoundError` with those there are."""
    there = runtime.runs(tenant_id)
    if collection not in there:
        raise NotFoundError(f"no runs are kept in {collection!r}; they are in {', '.join(there)}")
    return there[collection]


async def run_in(runs: Runs, run_id: str) -> RunFields:
    found = await runs.get(run_id)
    if found is None:
        raise NotFoundError(f"no run {run_id!r} in {runs.collection}")
    return found


async def cancel_run(
    runtime: Runtime, tenant_id: str, runs: Runs, *, run_id: str, actor: str, reason: str
) -> RunRow:
    """Cancel it and put that on record, in one commit."""

    async def act(tx: Transaction) -> None:
        await _under_way(runs, run_id)
        # It may also end between this look and the kit's own.
        if await runs.cancel(run_id, tx, reason=reason) in ("completed", "failed"):
            raise _ended(run_id)

    await run_audited(
        runtime, tenant_id, act, actor=actor, action="run.cancelled", subject=run_id,
        details={"reason": reason},
    )  # fmt: skip
    return row(await run_in(runs, run_id), runs.collection)


async def wake_run(runtime: Runtime, tenant_id: str, runs: Runs, *, run_id: str, actor: str) -> RunRow:
    """Let it go on now and put that on record, in one commit."""

    async def act(tx: Transaction) -> None:
        await _under_way(runs, run_id)
        if not await runs.wake(run_id, tx):
            raise _ended(run_id)

    await run_audited(runtime, tenant_id, act, actor=actor, action="run.woken", subject=run_id)
    return row(await run_in(runs, run_id), runs.collection)


async def retry_run(runtime: Runtime, tenant_id: str, runs: Runs, *, run_id: str, actor: str) -> RunRow:
    """Let one that failed go on and put that on record with what it failed of, in one commit."""
    error = (await run_in(runs, run_id)).error

    async def act(tx: Transaction) -> None:
        before = await run_in(runs, run_id)
        if before.status != "failed" or await runs.retry(run_id, tx) != "pending":
            raise ConflictError(f"run {run_id} is {before.status}; only one that failed can be tried again")

    await run_audited(
        runtime, tenant_id, act, actor=actor, action="run.retried", subject=run_id, details={"error": error}
    )
    return row(await run_in(runs, run_id), runs.collection)


async def _under_way(runs: Runs, run_id: str) -> None:
    if (await run_in(runs, run_id)).completed_at is not None:
        raise _ended(run_id)


def _ended(run_id: str) -> ConflictError:
    return ConflictError(f"run {run_id} has ended; there is nothing left to do")


@read_route("/runs", "viewer", area="runs")
async def runs(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    collection: Annotated[
        str, QueryParameter(description="Where they are kept: the kit's own, or a service's.", max_length=200)
    ] = KIT_RUNS,
    status: FromQuery[RunStatus | None] = None,
    type: Annotated[
        str | None, QueryParameter(description="Only of this workflow.", min_length=1, max_length=200)
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunPage:
    """Runs of one collection, newest first, with their steps."""
    kept = runs_in(runtime, tenant_id, collection)
    page = await kept.listed(status=status, type=type, limit=limit, cursor=cursor)
    return RunPage([row(doc, collection) for doc in page.docs], page.cursor)


@read_route(_RUN, "viewer", area="runs")
async def run(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    collection: FromPath[str],
    run_id: FromPath[str],
) -> RunRow:
    """One run with its steps."""
    kept = runs_in(runtime, tenant_id, collection)
    return row(await run_in(kept, run_id), collection)


@action_route(f"{_RUN}/cancel", "admin", area="runs", action="cancel")
async def cancel(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    collection: FromPath[str],
    run_id: FromPath[str],
    data: JSONBody[CancelRun],
) -> RunRow:
    """Let no further step begin. A run that nobody holds ends at once, another when its present step does."""
    kept = runs_in(runtime, tenant_id, collection)
    return await cancel_run(runtime, tenant_id, kept, run_id=run_id, actor=actor, reason=data.reason)


@action_route(f"{_RUN}/wake", "admin", area="runs", action="wake")
async def wake(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    collection: FromPath[str],
    run_id: FromPath[str],
) -> RunRow:
    """Let a run that waits, for a time or for something to happen, go on now."""
    kept = runs_in(runtime, tenant_id, collection)
    return await wake_run(runtime, tenant_id, kept, run_id=run_id, actor=actor)


@action_route(f"{_RUN}/retry", "admin", area="runs", action="retry")
async def retry(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    collection: FromPath[str],
    run_id: FromPath[str],
) -> RunRow:
    """Let a run that failed go on from the step that did, with all its tries; finished steps stay done."""
    kept = runs_in(runtime, tenant_id, collection)
    return await retry_run(runtime, tenant_id, kept, run_id=run_id, actor=actor)


ROUTES: Final = (runs, run, cancel, wake, retry)
