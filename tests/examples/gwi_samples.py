"""One valid document of each collection, for a tenant and a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.model import Document
from tests.examples.gwi import (
    Approval,
    AuditEvent,
    Idempotency,
    Installation,
    PlanLimits,
    Preferences,
    Repo,
    RepoSettings,
    Signal,
    SignalContext,
    Tenant,
    TenantMembership,
    TenantSettings,
    UsageDaily,
    User,
)
from tests.examples.gwi_runs import Run, RunStep, Trigger

THEN = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)


def tenant(tenant_id: str, user: str, *, mark: str) -> Tenant:
    return Tenant(
        id=tenant_id, github_org_id=1, github_org_login="acme", display_name=mark, installation_id=2,
        installed_at=THEN, installed_by=user, created_at=THEN, updated_at=THEN,
        plan_limits=PlanLimits(runs_per_month=1000, repos_max=50, members_max=25),
        settings=TenantSettings(
            default_risk_mode="suggest_patch", default_triage_model="small", default_code_model="large",
            complexity_threshold=3, auto_run_on_conflict=True, auto_run_on_pr_open=False,
        ),
    )  # fmt: skip


def repo(tenant_id: str, user: str, *, mark: str) -> Repo:
    return Repo(
        id="gh-repo-987", tenant_id=tenant_id, github_repo_id=987, github_full_name="acme/site",
        display_name=mark, settings=RepoSettings(), added_at=THEN, updated_at=THEN,
    )  # fmt: skip


def run(tenant_id: str, user: str, *, mark: str) -> Run:
    return Run(
        id=f"run-of-{tenant_id}", tenant_id=tenant_id, repo_id="gh-repo-987", pr_id="7",
        pr_url="https://example.org/pr/7", type="triage", trigger=Trigger(source="ui", user_id=user),
        error=mark, created_at=THEN, updated_at=THEN,
    )  # fmt: skip


def step(tenant_id: str, user: str, *, mark: str) -> RunStep:
    return RunStep(id="step-1", run_id=f"run-of-{tenant_id}", tenant_id=tenant_id, agent="coder", error=mark)


def user(tenant_id: str, user: str, *, mark: str) -> User:
    return User(
        id=user, github_user_id=5, github_login=user, display_name=mark, email="a@example.org",
        preferences=Preferences(), created_at=THEN, last_login_at=THEN, updated_at=THEN,
    )  # fmt: skip


def membership(tenant_id: str, user: str, *, mark: str) -> TenantMembership:
    return TenantMembership(
        id=f"{user}_{tenant_id}", user_id=user, tenant_id=tenant_id, role="viewer", github_role=mark,
        created_at=THEN, updated_at=THEN,
    )  # fmt: skip


def installation(tenant_id: str, user: str, *, mark: str) -> Installation:
    return Installation(
        id="98765", installation_id=98765, tenant_id=tenant_id, github_org_id=1, github_org_login=mark,
        installed_at=THEN, created_at=THEN, updated_at=THEN,
    )  # fmt: skip


def approval(tenant_id: str, user: str, *, mark: str) -> Approval:
    return Approval(
        id=f"appr-of-{tenant_id}", run_id="run-1", tenant_id=tenant_id, decision="approved",
        decided_by=user, decided_at=THEN, reason=mark,
    )  # fmt: skip


def audit_event(tenant_id: str, user: str, *, mark: str) -> AuditEvent:
    return AuditEvent(
        id=f"evt-of-{tenant_id}", run_id="run-1", tenant_id=tenant_id, event_type="run_started",
        timestamp=THEN, actor=user, details={"mark": mark},
    )  # fmt: skip


def signal(tenant_id: str, user: str, *, mark: str) -> Signal:
    return Signal(
        id="sig-1", tenant_id=tenant_id, source="manual", external_id=mark, occurred_at=THEN,
        received_at=THEN, context=SignalContext(actor=user),
    )  # fmt: skip


def idempotency(tenant_id: str, user: str, *, mark: str) -> Idempotency:
    return Idempotency(key="key-1", result=mark, status="processing", created_at=THEN, expires_at=THEN)


def usage_daily(tenant_id: str, user: str, *, mark: str) -> UsageDaily:
    return UsageDaily(
        id=f"{tenant_id}_2024-01-15", tenant_id=tenant_id, date="2024-01-15", updated_at=THEN, runs=len(mark)
    )


SAMPLES: dict[type[Document], Callable[..., Document]] = {
    Tenant: tenant, Repo: repo, Run: run, RunStep: step, User: user, TenantMembership: membership,
    Installation: installation, Approval: approval, AuditEvent: audit_event, Signal: signal,
    Idempotency: idempotency, UsageDaily: usage_daily,
}  # fmt: skip
