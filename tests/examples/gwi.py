"""The collections around the runs, one for each kind of access there is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.model import (
    Access,
    CompositeId,
    Document,
    Index,
    Lifecycle,
    Membership,
    ProvidedId,
    Retention,
    TimestampId,
    document,
)
from tests.examples.gwi_runs import MEMBERS_READ, Count, ProposedChange, Run, RunStep

ADMINS_WRITE = Access(read=["viewer"], write=["admin", "service"])
ADMINS_READ = Access(read=["admin"], write=["service"])


class PlanLimits(Struct, rename="camel", kw_only=True):
    runs_per_month: Count
    repos_max: Count
    members_max: Count


class TenantSettings(Struct, rename="camel", kw_only=True):
    default_risk_mode: Literal["comment_only", "suggest_patch", "auto_patch", "auto_push"]
    default_triage_model: str
    default_code_model: str
    complexity_threshold: Annotated[int, Meta(ge=1, le=5)]
    auto_run_on_conflict: bool
    auto_run_on_pr_open: bool


class Policy(Struct, rename="camel", kw_only=True):
    document: dict[str, Any]
    version: Count
    updated_at: datetime
    updated_by: str
    valid: bool
    validation_errors: list[str] | UnsetType = UNSET


@document(
    "gwi_tenants/{id}",
    id=ProvidedId(pattern=r"gh-org-\d+"),
    tenant="id",
    indexes=[Index("status", across="tenants")],
    access=ADMINS_WRITE,
)
class Tenant(Document, rename="camel"):
    """An organisation that has the application installed."""

    id: str
    github_org_id: Count
    github_org_login: str
    display_name: str
    installation_id: Count
    installed_at: datetime
    installed_by: str
    status: Literal["active", "suspended", "deactivated"] = "active"
    plan: Literal["free", "team", "pro", "enterprise"] = "free"
    plan_limits: PlanLimits
    settings: TenantSettings
    policy: Policy | UnsetType = UNSET
    runs_this_month: Count = 0
    last_run_at: datetime | UnsetType = UNSET
    created_at: datetime
    updated_at: datetime


class RepoSettings(Struct, rename="camel", kw_only=True):
    risk_mode_override: str | UnsetType = UNSET
    auto_triage: bool = False
    auto_review: bool = False
    auto_resolve: bool = False
    branch_patterns: list[str] | UnsetType = UNSET


@document(
    "gwi_tenants/{tenant_id}/repos/{id}",
    id=ProvidedId(pattern=r"gh-repo-\d+"),
    tenant="tenant_id",
    indexes=[Index("enabled"), Index("github_full_name", across="tenants")],
    access=ADMINS_WRITE,
)
class Repo(Document, rename="camel"):
    """A connected repository."""

    id: str
    tenant_id: str
    github_repo_id: Count
    github_full_name: str
    display_name: str
    enabled: bool = True
    last_sync_at: datetime | UnsetType = UNSET
    settings: RepoSettings
    total_runs: Count = 0
    successful_runs: Count = 0
    failed_runs: Count = 0
    last_run_id: str | UnsetType = UNSET
    added_at: datetime
    updated_at: datetime


class Preferences(Struct, rename="camel", kw_only=True):
    default_tenant_id: str | UnsetType = UNSET
    notifications_enabled: bool = True
    theme: Literal["light", "dark", "system"] = "system"


@document("gwi_users/{id}", access=Access(read=["self:id", "service"], write=["self:id", "service"]))
class User(Document, rename="camel"):
    """A person's profile."""

    id: str
    github_user_id: Count
    github_login: str
    github_avatar_url: str | UnsetType = UNSET
    display_name: str
    email: str
    preferences: Preferences
    created_at: datetime
    last_login_at: datetime
    updated_at: datetime


@document(
    "gwi_memberships/{id}",
    id=CompositeId("user_id", "tenant_id"),
    tenant="tenant_id",
    membership=Membership(user="user_id", tenant="tenant_id", role="role", when={"status": "active"}),
    indexes=[Index("status"), Index("user_id", "status", across="tenants")],
    access=Access(read=["self:user_id", "admin"], write=["admin", "service"]),
)
class TenantMembership(Document, rename="camel"):
    """Who has which role in which tenant."""

    id: str = ""
    user_id: str
    tenant_id: str
    role: Literal["owner", "admin", "developer", "viewer"]
    github_role: str | UnsetType = UNSET
    status: Literal["active", "invited", "suspended"] = "invited"
    invited_by: str | UnsetType = UNSET
    invited_at: datetime | UnsetType = UNSET
    accepted_at: datetime | UnsetType = UNSET
    created_at: datetime
    updated_at: datetime


@document("gwi_installations/{id}", id=CompositeId("installation_id"), path_only=["id"])
class Installation(Document, rename="camel"):
    """Which tenant an installation of the application belongs to."""

    id: str = ""
    installation_id: Count
    tenant_id: str
    github_org_id: Count
    github_org_login: str
    installed_at: datetime
    installed_by: str | UnsetType = UNSET
    permissions: dict[str, str] = {}
    events: list[str] = []
    created_at: datetime
    updated_at: datetime


@document(
    "gwi_approvals/{id}",
    id=TimestampId("appr"),
    tenant="tenant_id",
    indexes=[Index("run_id", "-decided_at")],
    access=ADMINS_READ,
)
class Approval(Document, rename="camel"):
    """A decision about a run's proposed changes."""

    id: str = ""
    run_id: str
    tenant_id: str
    decision: Literal["approved", "rejected"]
    decided_by: str
    decided_at: datetime
    reason: str | UnsetType = UNSET
    proposed_changes_snapshot: list[ProposedChange] | UnsetType = UNSET


@document(
    "gwi_audit_events/{id}",
    id=TimestampId("evt"),
    tenant="tenant_id",
    append_only=True,
    indexes=[Index("-timestamp"), Index("run_id", "timestamp")],
    access=ADMINS_READ,
)
class AuditEvent(Document, rename="camel"):
    """What happened, for good."""

    id: str = ""
    run_id: str
    tenant_id: str
    event_type: Literal[
        "run_started", "run_completed", "run_failed", "step_started", "step_completed", "step_failed",
        "approval_requested", "approval_granted", "approval_rejected", "github_comment_posted",
        "branch_created", "commit_pushed", "pr_created", "pr_updated",
    ]  # fmt: skip
    timestamp: datetime
    actor: str | UnsetType = UNSET
    details: dict[str, Any] = {}
    intent: str | UnsetType = UNSET
    change_summary: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    policy_approval: str | UnsetType = UNSET
    evidence_text: str | UnsetType = UNSET


class SignalContext(Struct, rename="camel", kw_only=True):
    resource_number: int | UnsetType = UNSET
    resource_type: Literal["issue", "pr", "comment", "commit"] | UnsetType = UNSET
    actor: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    labels: list[str] | UnsetType = UNSET


@document(
    "gwi_tenants/{tenant_id}/signals/{id}",
    id=TimestampId("sig"),
    tenant="tenant_id",
    indexes=[
        Index("status", "received_at"),
        Index("status", "received_at", across="tenants"),
        Index("context.labels[]", "received_at"),
    ],
    lifecycle=Lifecycle("status", initial=["pending"], moves={"pending": ["processed", "ignored", "failed"]}),
    access=MEMBERS_READ,
)
class Signal(Document, rename="camel"):
    """An event as it came in."""

    id: str = ""
    tenant_id: str
    source: Literal["github_issue", "github_pr", "github_comment", "webhook", "scheduled", "manual", "api"]
    external_id: str
    occurred_at: datetime
    received_at: datetime
    status: Literal["pending", "processed", "ignored", "failed"] = "pending"
    payload: dict[str, Any] = {}
    context: SignalContext


@document("gwi_idempotency/{key}", retention=Retention("expires_at"))
class Idempotency(Document, rename="camel"):
    """The answer to a request that may come again."""

    key: str
    result: Any | UnsetType = UNSET
    status: Literal["processing", "completed", "failed"]
    created_at: datetime
    completed_at: datetime | UnsetType = UNSET
    expires_at: datetime


@document(
    "gwi_usage_daily/{id}",
    id=CompositeId("tenant_id", "date"),
    tenant="tenant_id",
    indexes=[Index("-date")],
    access=MEMBERS_READ,
)
class UsageDaily(Document, rename="camel"):
    """What a tenant used on one day."""

    id: str = ""
    tenant_id: str
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d$")]
    runs: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    api_calls: Count = 0
    updated_at: datetime


COLLECTIONS: list[type[Document]] = [
    Tenant, Repo, Run, RunStep, User, TenantMembership, Installation, Approval, AuditEvent, Signal,
    Idempotency, UsageDaily,
]  # fmt: skip
