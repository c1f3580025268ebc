"""Starts of runs: tenant, repository and plan limits are checked in the commit that starts the run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.errors import ConflictError, ForbiddenError, LimitReachedError, NotFoundError, RetryLaterError
from holdfast.kit.audit import AuditEntry, AuditFactory
from holdfast.kit.metering import MeterFactory, day_of, month_of
from holdfast.kit.runs import Runs, Workflow
from holdfast.plural import plural
from holdfast.services.gwi.domain.plans import concurrent_runs_max
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.runs import RUNS, AgentRun, RunTotals, RunTrigger, RunType
from holdfast.services.gwi.models.tenants import Repo, RiskMode, Tenant
from holdfast.store import Increment, Store, Transaction, patch, upsert

PAUSED_S: Final = 60.0
AT_ONCE_S: Final = 30.0
AUTOMATIC_MAX: Final = 10
AT_ONCE: Final = "runs at once"


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run to start.

    `number` is that of the issue or pull request it is about. A run of an `approved` change waits for no
    approval. An `automatic` one is started by no person, at most ten times a day in each repository.
    """

    type: RunType
    repo_id: str
    trigger: RunTrigger
    number: int | None = None
    pr_url: str = ""
    title: str = ""
    instructions: str = ""
    risk_mode: RiskMode | None = None
    candidate_id: str | None = None
    work_item_id: str | None = None
    instance_id: str | None = None
    approved: bool = False
    automatic: bool = False


class RunStarts:
    """Starts runs in the caller's transaction, with everything that limits them.

    Example: `run = await starts.start(tx, by.tenant_id, request, actor=by.actor)`
    """

    def __init__(
        self,
        store: Store,
        workflows: Mapping[RunType, Workflow],
        *,
        audits: AuditFactory,
        meters: MeterFactory,
    ) -> None:
        self._store, self._workflows, self._audits, self._meters = store, workflows, audits, meters

    async def start(
        self, tx: Transaction, tenant_id: str, request: RunRequest, *, actor: str = ""
    ) -> AgentRun:
        """Start a run; with `actor` its `run_started` event is appended, for acts that record another.

        ForbiddenError for a suspended tenant, RetryLaterError for a paused one, LimitReachedError at the
        monthly limit, the limit of runs at once and that of automatic ones.
        """
        tenant, now = await tenant_in(tx, tenant_id), self._store.clock.now()
        check_active(tenant)
        repo = await _repo_in(tx, tenant_id, request.repo_id)
        await self._take(tx, tenant, request, now=now)
        run, writes = Runs(self._store.tenant(tenant_id), models=RUNS).writes_start(
            self._workflows[request.type], input=msgspec.to_builtins(request),
            fields=_fields(request, tenant, repo=repo),
        )  # fmt: skip
        assert isinstance(run, AgentRun)
        counted = {"runs_this_month": runs_this_month(tenant, now) + 1, "last_run_at": now}
        totals = RunTotals(tenant_id=tenant_id, started=1, updated_at=now)
        stats = {"total_runs": repo.total_runs + 1, "last_run_id": run.id, "updated_at": now}
        tx.write(
            *writes, patch(Tenant, tenant_id, changes=counted),
            patch(Repo, tenant_id, repo.id, changes=stats),
            upsert(totals, {"started": Increment(1), "updated_at": now}),
        )  # fmt: skip
        if actor:
            await self._audits(tenant_id, models=AUDIT).add(tx, started_entry(run, actor))
        return run

    async def _take(self, tx: Transaction, tenant: Tenant, request: RunRequest, *, now: datetime) -> None:
        meter, monthly = self._meters(tenant.id, models=METER), tenant.plan_limits.runs_per_month
        try:
            await meter.take(tx, f"runs {month_of(now)}", limit=monthly)
        except LimitReachedError as fault:
            message = f"all {monthly} runs of this month are used; wait for the next or change the plan"
            raise LimitReachedError(message, usage=fault.usage, limit=monthly, plan=tenant.plan) from None
        await self.take_place(tx, tenant)
        if request.automatic:
            await meter.take(tx, automatic_allowance(request.repo_id, now), limit=AUTOMATIC_MAX)

    async def take_place(self, tx: Transaction, tenant: Tenant) -> None:
        """Take a place among the runs at once, for one that starts or goes on after its approval."""
        plan, at_once = tenant.plan, concurrent_runs_max(tenant.plan, tenant.plan_limits)
        try:
            await self._meters(tenant.id, models=METER).take(tx, AT_ONCE, limit=at_once)
        except LimitReachedError as fault:
            busy = plural(at_once, "run is", "runs are")
            message = f"{busy} under way, as many as the plan {plan} allows; wait for one to end"
            raise LimitReachedError(
                message, usage=fault.usage, limit=at_once, plan=plan, after_s=AT_ONCE_S
            ) from None


def automatic_allowance(repo_id: str, now: datetime) -> str:
    """The allowance of runs that nobody asked for, in one repository on one day."""
    return f"automatic runs {repo_id} {day_of(now)}"


async def tenant_in(tx: Transaction, tenant_id: str) -> Tenant:
    stored = await tx.get(Tenant, tenant_id)
    if stored is None:
        raise NotFoundError(f"no tenant {tenant_id!r}")
    return stored.doc


def check_active(tenant: Tenant) -> None:
    """Raise where the tenant may start nothing at the moment."""
    if tenant.status != "active":
        raise ForbiddenError(f"the tenant is {tenant.status}; ask its owner to activate it")
    if tenant.paused_at is not None:
        raise RetryLaterError("the tenant is paused; resume it to start runs", after_s=PAUSED_S)


def runs_this_month(tenant: Tenant, now: datetime) -> int:
    """The runs that a tenant has started this month: none where its last was in an earlier one."""
    current = tenant.last_run_at is not None and month_of(tenant.last_run_at) == month_of(now)
    return tenant.runs_this_month if current else 0


def started_entry(run: AgentRun, actor: str) -> AuditEntry:
    return AuditEntry(
        action="run_started", actor=actor, subject=run.id, details=started_details(run),
        fields=receipt_of(run),
    )  # fmt: skip


def started_details(run: AgentRun) -> dict[str, Any]:
    return {
        "type": run.type, "repoId": run.repo_id, "riskMode": run.risk_mode, "source": run.trigger.source,
    }  # fmt: skip


def receipt_of(run: AgentRun, *, change: str = "", evidence: str = "") -> dict[str, Any]:
    """The receipt fields of an audit event about a run: what it is to do, where, and on what grounds."""
    request = run.input or {}
    about = request.get("title") or (f"number {request['number']}" if request.get("number") else run.repo_id)
    return {
        "run_id": run.id, "intent": f"{run.type} {about}", "change_summary": change, "scope": run.repo_id,
        "policy_approval": run.approval_status or "none", "evidence_text": evidence or run.pr_url or run.id,
    }  # fmt: skip


async def _repo_in(tx: Transaction, tenant_id: str, repo_id: str) -> Repo:
    stored = await tx.get(Repo, tenant_id, repo_id)
    if stored is None:
        raise NotFoundError(f"no repository {repo_id!r} is connected", "repoId")
    if not stored.doc.enabled:
        raise ConflictError(f"{stored.doc.github_full_name} is not enabled; enable it first", "repoId")
    return stored.doc


def _fields(request: RunRequest, tenant: Tenant, *, repo: Repo) -> dict[str, Any]:
    mode = request.risk_mode or repo.settings.risk_mode_override or tenant.settings.default_risk_mode
    return {
        "repo_id": repo.id, "pr_url": request.pr_url, "trigger": request.trigger, "risk_mode": mode,
        "pr_id": "" if request.number is None else f"{repo.id}-{request.number}",
        "approval_status": "approved" if request.approved else "none",
        "candidate_id": request.candidate_id, "work_item_id": request.work_item_id,
        "instance_id": request.instance_id,
    }  # fmt: skip
