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
    Repo,
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
    settings = TenantSettings(default_risk_mode="suggest_patch", complexity_threshold=3)
    return Tenant(id=tenant_id, display_name=mark, settings=settings, created_at=THEN)


def repo(tenant_id: str, user: str, *, mark: str) -> Repo:
    return Repo(id="gh-repo-987", tenant_id=tenant_id, github_full_name="acme/site", display_name=mark)


def run(tenant_id: str, user: str, *, mark: str) -> Run:
    return Run(
        id=f"run-of-{tenant_id}", tenant_id=tenant_id, repo_id="gh-repo-987", pr_id="7",
        pr_url="https://example.org/pr/7", type="triage", trigger=Trigger(source="ui", user_id=user),
        error=mark, created_at=THEN, updated_at=THEN,
    )  # fmt: skip


def step(tenant_id: str, user: str, *, mark: str) -> RunStep:
    return RunStep(id="step-1", run_id=f"run-of-{tenant_id}", tenant_id=tenant_id, agent="coder", error=mark)


def user(tenant_id: str, user: str, *, mark: str) -> User:
    return User(id=user, display_name=mark)


def membership(tenant_id: str, user: str, *, mark: str) -> TenantMembership:
    return TenantMembership(
        id=f"{user}_{tenant_id}", user_id=user, tenant_id=tenant_id, role="viewer", github_role=mark
    )


def installation(tenant_id: str, user: str, *, mark: str) -> Installation:
    return Installation(id="98765", installation_id=98765, tenant_id=tenant_id, github_org_login=mark)


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
    context = SignalContext(actor=user)
    return Signal(id="sig-1", tenant_id=tenant_id, external_id=mark, received_at=THEN, context=context)


def idempotency(tenant_id: str, user: str, *, mark: str) -> Idempotency:
    return Idempotency(key="key-1", result=mark, status="processing", expires_at=THEN)


def usage_daily(tenant_id: str, user: str, *, mark: str) -> UsageDaily:
    return UsageDaily(id=f"{tenant_id}_2024-01-15", tenant_id=tenant_id, date="2024-01-15", runs=len(mark))


SAMPLES: dict[type[Document], Callable[..., Document]] = {
    Tenant: tenant, Repo: repo, Run: run, RunStep: step, User: user, TenantMembership: membership,
    Installation: installation, Approval: approval, AuditEvent: audit_event, Signal: signal,
    Idempotency: idempotency, UsageDaily: usage_daily,
}  # fmt: skip
