"""Runs of every service's workflows: list, show, cancel, wake, retry."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from holdfast.errors import ConflictError, NotFoundError
from holdfast.kit.runs import RunFields, Runs
from holdfast.kit.runs.models import RunStatus, StepStatus
from holdfast.operation import Operator, operation
from holdfast.projection import project
from holdfast.runtime import Runtime
from holdfast.store import Transaction

KIT_RUNS: Final = "holdfast_runs"
REASON_CHARACTERS_MAX: Final = 500
CANCELLED: Final = "cancelled by an operator"

CancelReason = Annotated[str, msgspec.Meta(min_length=1, max_length=REASON_CHARACTERS_MAX)]


class StepRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step without its input and output, which may hold what only the service should see."""

    name: str
    status: StepStatus
    attempts: int
    failures: int
    error: str | None
    started_at: datetime | None
    completed_at: datetime | None
    duration_ms: int | None


class RunRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run and its claim: `due_at` ends the lease of `held_by`; without a holder, the run is due then."""

    id: str
    tenant_id: str
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


def row(run: RunFields, collection: str) -> RunRow:
    steps = [project(one, StepRow) for one in run.steps]
    return project(run, RunRow, collection=collection, steps=steps)


def runs_in(runtime: Runtime, tenant_id: str, collection: str) -> Runs:
    """Return a tenant's runs of one collection or raise NotFoundError, naming those there are."""
    collections = runtime.runs(tenant_id)
    if collection not in collections:
        raise NotFoundError(f"no runs are stored in {collection!r}; they are in {', '.join(collections)}")
    return collections[collection]


async def get(runtime: Runtime, tenant_id: str, collection: str, run_id: str) -> RunFields:
    """Return one run as it is stored, or raise NotFoundError."""
    return await _get(runs_in(runtime, tenant_id, collection), run_id)


async def _get(runs: Runs, run_id: str) -> RunFields:
    run = await runs.get(run_id)
    if run is None:
        raise NotFoundError(f"no run {run_id!r} in {runs.collection}")
    return run


async def list_runs(
    runtime: Runtime,
    tenant_id: str,
    collection: str = KIT_RUNS,
    *,
    status: RunStatus | None = None,
    type: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> RunPage:
    """Runs of one collection, newest first, with their steps."""
    runs = runs_in(runtime, tenant_id, collection)
    page = await runs.page(status=status, type=type, limit=limit, cursor=cursor)
    return RunPage([row(doc, collection) for doc in page.docs], page.cursor)


@operation("run.cancelled", area="runs", verb="cancel", needs="admin", subject="run_id")
async def cancel(
    runtime: Runtime, by: Operator, collection: str, run_id: str, *, reason: str = CANCELLED
) -> RunRow:
    """Let no further step begin. A run without a holder ends at once, another when its current step does."""
    runs = runs_in(runtime, by.tenant_id, collection)

    async def act(tx: Transaction) -> None:
        # It may also end between this read and the kit's own.
        await _require_unfinished(runs, run_id)
        if await runs.cancel(run_id, tx, reason=reason) in ("completed", "failed"):
            raise _ended(run_id)

    await by.commit(act, details={"reason": reason})
    return row(await _get(runs, run_id), collection)


@operation("run.woken", area="runs", verb="wake", needs="admin", subject="run_id")
async def wake(runtime: Runtime, by: Operator, collection: str, run_id: str) -> RunRow:
    """Make a run that waits, for a time or for an event, due now."""
    runs = runs_in(runtime, by.tenant_id, collection)

    async def act(tx: Transaction) -> None:
        await _require_unfinished(runs, run_id)
        if not await runs.wake(run_id, tx):
            raise _ended(run_id)

    await by.commit(act)
    return row(await _get(runs, run_id), collection)


@operation("run.retried", area="runs", verb="retry", needs="admin", subject="run_id")
async def retry(runtime: Runtime, by: Operator, collection: str, run_id: str) -> RunRow:
    """Resume a failed run at the step that failed, with all its attempts; finished steps stay done."""
    runs = runs_in(runtime, by.tenant_id, collection)
    error = (await _get(runs, run_id)).error

    async def act(tx: Transaction) -> None:
        before = await _get(runs, run_id)
        if before.status != "failed" or await runs.retry(run_id, tx) != "pending":
            raise ConflictError(f"run {run_id} is {before.status}; only a failed run can be retried")

    await by.commit(act, details={"error": error})
    return row(await _get(runs, run_id), collection)


async def _require_unfinished(runs: Runs, run_id: str) -> None:
    if (await _get(runs, run_id)).completed_at is not None:
        raise _ended(run_id)


def _ended(run_id: str) -> ConflictError:
    return ConflictError(f"run {run_id} has ended; nothing can be changed in it")
