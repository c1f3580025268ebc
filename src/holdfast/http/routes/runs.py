"""Routes for runs."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.runs.models import RunStatus
from holdfast.operations import runs
from holdfast.operations.runs import RunPage, RunRow
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route

_RUN: Final = "/runs/{collection:str}/{run_id:str}"
_Collection = Annotated[
    str, QueryParameter(description="Where they are stored: the kit's own, or a service's.", max_length=200)
]
_Type = Annotated[str | None, QueryParameter(description="Of this workflow.", min_length=1, max_length=200)]


class CancelRun(RequestBody, frozen=True):
    """`reason` is shown with the run."""

    reason: runs.CancelReason = runs.CANCELLED


@read_route("/runs", area="runs", all_tenants=True)
async def list_runs(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    collection: _Collection = runs.KIT_RUNS,
    status: FromQuery[RunStatus | None] = None,
    type: _Type = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunPage:
    """Runs of one collection, newest first, with their steps."""
    return await runs.list_runs(
        runtime, tenant_id, collection, status=status, type=type, limit=limit, cursor=cursor
    )


@read_route(_RUN, area="runs", all_tenants=True)
async def get_run(
    runtime: RuntimeDependency, tenant_id: TenantId, collection: FromPath[str], run_id: FromPath[str]
) -> RunRow:
    """One run with its steps."""
    return runs.row(await runs.get(runtime, tenant_id, collection, run_id), collection)


@action_route(f"{_RUN}/cancel", runs.cancel)
async def cancel(
    runtime: RuntimeDependency,
    by: By,
    collection: FromPath[str],
    run_id: FromPath[str],
    data: JSONBody[CancelRun],
) -> RunRow:
    """Let no further step begin. A run without a holder ends at once, another when its current step does."""
    return await runs.cancel(runtime, by, collection, run_id, reason=data.reason)


@action_route(f"{_RUN}/wake", runs.wake)
async def wake(
    runtime: RuntimeDependency, by: By, collection: FromPath[str], run_id: FromPath[str]
) -> RunRow:
    """Make a run that waits, for a time or for an event, due now."""
    return await runs.wake(runtime, by, collection, run_id)


@action_route(f"{_RUN}/retry", runs.retry)
async def retry(
    runtime: RuntimeDependency, by: By, collection: FromPath[str], run_id: FromPath[str]
) -> RunRow:
    """Resume a failed run at the step that failed, with all its attempts; finished steps stay done."""
    return await runs.retry(runtime, by, collection, run_id)


ROUTES: Final = (list_runs, get_run, cancel, wake, retry)
