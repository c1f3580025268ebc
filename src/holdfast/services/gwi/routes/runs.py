"""Runs over HTTP: start, list, show, decide, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from holdfast.kit.runs.models import RunStatus
from holdfast.projection import project
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId
from holdfast.services.gwi.models.records import AuditRecord
from holdfast.services.gwi.models.runs import (
    AgentRun,
    AgentStep,
    ApprovalStatus,
    RunApproval,
    RunLog,
    RunTrigger,
    RunType,
)
from holdfast.services.gwi.models.tenants import RiskMode
from holdfast.services.gwi.operations.runs import CANCELLED, RunFilter, RunOperations, RunStats
from holdfast.services.gwi.routes.dependencies import (
    TENANT,
    TENANT_PATH,
    Operations,
    action_route,
    read_route,
)
from holdfast.services.gwi.run_starts import RunRequest

_RUN: Final = f"{TENANT_PATH}/runs/{{run_id:str}}"
Reason = Annotated[str, Meta(max_length=500)]


class StartRequest(RequestBody, frozen=True):
    """A run to start; `number` is that of the issue or pull request it is about."""

    type: RunType
    repo_id: Annotated[str, Meta(min_length=1, max_length=100)]
    number: Annotated[int, Meta(ge=1)] | None = None
    pr_url: Annotated[str, Meta(max_length=2_000)] = ""
    title: Annotated[str, Meta(max_length=200)] = ""
    instructions: Annotated[str, Meta(max_length=10_000)] = ""
    risk_mode: RiskMode | None = None
    source: Literal["api", "ui", "cli"] = "api"


class DecisionRequest(RequestBody, frozen=True):
    """Why somebody decides so."""

    reason: Reason = ""


class RunsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs."""

    runs: list[AgentRun]
    cursor: str | None


class StepsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a run with their inputs and outputs, and what it wrote about itself."""

    steps: Sequence[AgentStep]
    logs: Sequence[RunLog]


class RunAuditResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The audit events of a run, newest first, and the decisions about it."""

    events: Sequence[AuditRecord]
    approvals: Sequence[RunApproval]
    cursor: str | None


@action_route(f"{TENANT_PATH}/runs", RunOperations.start_run, tenant=TENANT, status=202)
async def start_run(operations: Operations, by: By, data: JSONBody[StartRequest]) -> AgentRun:
    """Start a run, within the limits of the plan."""
    request = project(data, RunRequest, trigger=RunTrigger(source=data.source, user_id=by.actor))
    return await operations.runs.start_run(by, request)


@read_route(f"{TENANT_PATH}/runs", tenant=TENANT)
async def runs(
    operations: Operations,
    tenant_id: TenantId,
    status: FromQuery[RunStatus | None] = None,
    type: FromQuery[RunType | None] = None,
    repo: Annotated[str | None, QueryParameter(description="About this repository, by its id.")] = None,
    approval: Annotated[
        ApprovalStatus | None, QueryParameter(description="By the state of their approval.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunsResponse:
    """Runs, newest first: all, or by status, type, type and status, repository, repository and status."""
    wanted = RunFilter(status=status, type=type, repo_id=repo, approval_status=approval)
    page = await operations.runs.page(tenant_id, wanted, limit=limit, cursor=cursor)
    return RunsResponse(runs=list(page.docs), cursor=page.cursor)


@read_route(f"{TENANT_PATH}/run-stats", tenant=TENANT)
async def run_stats(operations: Operations, tenant_id: TenantId) -> RunStats:
    """The tenant's runs by outcome."""
    return await operations.runs.stats(tenant_id)


@read_route(_RUN, tenant=TENANT)
async def run(operations: Operations, tenant_id: TenantId, run_id: FromPath[str]) -> AgentRun:
    """A run with its steps."""
    return await operations.runs.get(tenant_id, run_id)


@read_route(f"{_RUN}/steps", tenant=TENANT)
async def run_steps(operations: Operations, tenant_id: TenantId, run_id: FromPath[str]) -> StepsResponse:
    """The steps of a run, whole."""
    return StepsResponse(
        steps=await operations.runs.steps(tenant_id, run_id),
        logs=await operations.runs.logs(tenant_id, run_id),
    )


@read_route(f"{_RUN}/audit", "admin", tenant=TENANT)
async def run_audit(
    operations: Operations,
    tenant_id: TenantId,
    run_id: FromPath[str],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> RunAuditResponse:
    """What is on record about a run."""
    await operations.runs.get(tenant_id, run_id)
    page = await operations.runs.events(tenant_id, run_id, limit=limit, cursor=cursor)
    approvals = await operations.runs.approvals(tenant_id, run_id)
    return RunAuditResponse(events=page.docs, approvals=approvals, cursor=page.cursor)


@action_route(f"{_RUN}/approve", RunOperations.approve, tenant=TENANT)
async def approve_run(
    operations: Operations, by: By, run_id: FromPath[str], data: JSONBody[DecisionRequest]
) -> AgentRun:
    """Let a run go on with the changes that it proposes."""
    return await operations.runs.approve(by, run_id, reason=data.reason)


@action_route(f"{_RUN}/reject", RunOperations.reject, tenant=TENANT)
async def reject_run(
    operations: Operations, by: By, run_id: FromPath[str], data: JSONBody[DecisionRequest]
) -> AgentRun:
    """Cancel a run instead of making the changes that it proposes."""
    return await operations.runs.reject(by, run_id, reason=data.reason)


@action_route(f"{_RUN}/cancel", RunOperations.cancel, tenant=TENANT)
async def cancel_run(
    operations: Operations, by: By, run_id: FromPath[str], data: JSONBody[DecisionRequest]
) -> AgentRun:
    """Let no further step of a run begin."""
    return await operations.runs.cancel(by, run_id, reason=data.reason or CANCELLED)


ROUTES: Final[tuple[Any, ...]] = (
    start_run, runs, run_stats, run, run_steps, run_audit, approve_run, reject_run, cancel_run,
)  # fmt: skip
