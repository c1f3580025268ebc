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


class TenantSettings(Struct, rename="camel", kw_only=True):
    default_risk_mode: Literal["comment_only", "suggest_patch", "auto_patch", "auto_push"]
    complexity_threshold: Annotated[int, Meta(ge=1, le=5)]


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
    display_name: str
    status: Literal["active", "suspended", "deactivated"] = "active"
    settings: TenantSettings
    runs_this_month: Count = 0
    last_run_at: datetime | UnsetType = UNSET
    created_at: datetime


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
    github_full_name: str
    display_name: str
    enabled: bool = True
    branch_patterns: list[str] | UnsetType = UNSET


@document("gwi_users/{id}", access=Access(read=["self:id", "service"], write=["self:id", "service"]))
class User(Document, rename="camel"):
    """A person's profile."""

    id: str
    display_name: str
    theme: Literal["light", "dark", "system"] = "system"


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
    accepted_at: datetime | UnsetType = UNSET


@document("gwi_installations/{id}", id=CompositeId("installation_id"), path_only=["id"])
class Installation(Document, rename="camel"):
    """Which tenant an installation of the application belongs to."""

    id: str = ""
    installation_id: Count
    tenant_id: str
    github_org_login: str
    permissions: dict[str, str] = {}


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
    event_type: Literal["run_started", "run_completed", "run_failed"]
    timestamp: datetime
    actor: str | UnsetType = UNSET
    details: dict[str, Any] = {}


class SignalContext(Struct, rename="camel", kw_only=True):
    actor: str | UnsetType = UNSET
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
    external_id: str
    received_at: datetime
    status: Literal["pending", "processed", "ignored", "failed"] = "pending"
    context: SignalContext


@document("gwi_idempotency/{key}", retention=Retention("expires_at"))
class Idempotency(Document, rename="camel"):
    """The answer to a request that may come again."""

    key: str
    result: Any | UnsetType = UNSET
    status: Literal["processing", "completed", "failed"]
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


COLLECTIONS: list[type[Document]] = [
    Tenant, Repo, Run, RunStep, User, TenantMembership, Installation, Approval, AuditEvent, Signal,
    Idempotency, UsageDaily,
]  # fmt: skip
