"""Tenants and their people: organisations, repositories, connectors, installations, profiles, members.

gwi_tenants/{gh-org-1}                                 an organisation
gwi_tenants/{gh-org-1}/repos/{gh-repo-2}               a repository of it
gwi_tenants/{gh-org-1}/connector_configs/{name}        settings of a system it is connected to
gwi_users/{user id}                                    a person's profile
gwi_memberships/{user id}_{gh-org-1}                   gives a person a role
gwi_invites/{hash of the token}                        an e-mail address that may become a member
gwi_installations/{installation id}                    the tenant of an installation of the GitHub App
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from holdfast.model import (
    ADMINS_READ,
    HIDDEN,
    SERVICE_ONLY,
    Access,
    CompositeId,
    Document,
    Index,
    Lifecycle,
    Membership,
    ProvidedId,
    Retention,
    document,
)
from holdfast.services.gwi.domain.plans import PlanLimits, PlanName

Count = Annotated[int, Meta(ge=0)]
RiskMode = Literal["comment_only", "suggest_patch", "auto_patch", "auto_push"]
MemberRole = Literal["owner", "admin", "developer", "viewer"]
TENANT_PATTERN: Final = r"gh-org-[0-9]{1,18}"
REPO_PATTERN: Final = r"gh-repo-[0-9]{1,18}"
INVITE_S: Final = 7 * 86_400
ADMINS_WRITE: Final = Access(read=["viewer", "service"], write=["admin", "service"])


def tenant_id_of(github_org_id: int) -> str:
    """The tenant of a GitHub organisation, however it was created."""
    return f"gh-org-{github_org_id}"


def repo_id_of(github_repo_id: int) -> str:
    """The id of a repository, everywhere."""
    return f"gh-repo-{github_repo_id}"


class TenantSettings(Struct, rename="camel", kw_only=True):
    """The settings that repositories inherit; `complexity_threshold` is where a larger model takes over."""

    default_risk_mode: RiskMode = "suggest_patch"
    default_triage_model: str = ""
    default_code_model: str = ""
    complexity_threshold: Annotated[int, Meta(ge=1, le=5)] = 3
    auto_run_on_conflict: bool = False
    auto_run_on_pr_open: bool = False


class TenantPolicy(Struct, rename="camel", kw_only=True):
    """A policy as it was saved; one that is not `valid` is stored with its errors and does not apply."""

    document: dict[str, Any]
    version: Count
    updated_at: datetime
    updated_by: str
    valid: bool
    validation_errors: list[str] | None = None


@document(
    "gwi_tenants/{id}",
    id=ProvidedId(pattern=TENANT_PATTERN),
    tenant="id",
    indexes=[
        Index("-created_at", across="tenants"),
        Index("status", "-created_at", across="tenants"),
        Index("github_org_login", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["active"],
        moves={
            "active": ["suspended", "deactivated"],
            "suspended": ["active", "deactivated"],
            "deactivated": ["active"],
        },
    ),
    immutable=["github_org_id", "created_at"],
    access=ADMINS_WRITE,
)
class Tenant(Document, rename="camel"):
    """A GitHub organisation. `installation_id` is 0 while the GitHub App is not installed.

    `paused_at` is set while no run may start. A deleted tenant has no members; its records stay.
    """

    id: str
    github_org_id: Count
    github_org_login: str
    display_name: str
    installation_id: Count = 0
    installed_at: datetime
    installed_by: str = ""
    status: Literal["active", "suspended", "deactivated"] = "active"
    plan: PlanName = "free"
    plan_limits: PlanLimits
    settings: TenantSettings
    policy: TenantPolicy | None = None
    runs_this_month: Count = 0
    last_run_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    created_by: str = ""
    paused_at: datetime | None = None
    paused_reason: str = ""
    status_reason: str = ""
    deleted_at: datetime | None = None
    schema_version: int = 1


class RepoSettings(Struct, rename="camel", kw_only=True):
    """Settings of one repository, over those of its tenant."""

    risk_mode_override: RiskMode | None = None
    auto_triage: bool = False
    auto_review: bool = False
    auto_resolve: bool = False
    branch_patterns: list[str] | None = None


@document(
    "gwi_tenants/{tenant_id}/repos/{id}",
    id=ProvidedId(pattern=REPO_PATTERN),
    tenant="tenant_id",
    indexes=[
        Index("github_full_name"),
        Index("enabled", "github_full_name"),
        Index("github_full_name", across="tenants"),
    ],
    immutable=["github_repo_id", "added_at"],
    access=ADMINS_WRITE,
)
class Repo(Document, rename="camel"):
    """A connected repository; a removed one is not `enabled`."""

    id: str
    tenant_id: str
    github_repo_id: Count
    github_full_name: str
    display_name: str
    enabled: bool = True
    last_sync_at: datetime | None = None
    settings: RepoSettings
    total_runs: Count = 0
    successful_runs: Count = 0
    failed_runs: Count = 0
    last_run_id: str | None = None
    default_branch: str = "main"
    added_at: datetime
    updated_at: datetime
    schema_version: int = 1


@document(
    "gwi_tenants/{tenant_id}/connector_configs/{id}",
    tenant="tenant_id",
    indexes=[Index("id")],
    access=SERVICE_ONLY,
)
class ConnectorConfig(Document, rename="camel"):
    """The settings of a connector; the vault seals `secrets`, a JSON object."""

    id: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
    tenant_id: str
    enabled: bool = True
    settings: dict[str, Any] = {}
    secrets: Annotated[str, HIDDEN] = ""
    secret_names: list[str] = []
    version: Count = 1
    created_at: datetime
    updated_at: datetime
    updated_by: str = ""


@document(
    "gwi_installations/{id}",
    id=CompositeId("installation_id"),
    path_only=["id"],
    tenant="tenant_id",
    indexes=[Index("installation_id")],
    access=SERVICE_ONLY,
)
class Installation(Document, rename="camel"):
    """The tenant that an installation of the GitHub App belongs to, for webhooks.

    `changed_at` is when GitHub last changed it, by its newest event.
    """

    id: str = ""
    installation_id: Count
    tenant_id: str
    github_org_id: Count
    github_org_login: str
    installed_at: datetime
    installed_by: str | None = None
    permissions: dict[str, str] = {}
    events: list[str] = []
    suspended_at: datetime | None = None
    deleted_at: datetime | None = None
    changed_at: datetime | None = None
    created_at: datetime
    updated_at: datetime


class Preferences(Struct, rename="camel", kw_only=True):
    """What a person chose for themselves."""

    default_tenant_id: str | None = None
    notifications_enabled: bool = True
    theme: Literal["light", "dark", "system"] = "system"


@document(
    "gwi_users/{id}",
    indexes=[Index("github_user_id"), Index("github_login")],
    access=Access(read=["self:id", "service"], write=["self:id", "service"]),
)
class UserProfile(Document, rename="camel"):
    """A person's profile; `github_user_id` is 0 while their GitHub account is not known."""

    id: str
    github_user_id: Count = 0
    github_login: str = ""
    github_avatar_url: str | None = None
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
    indexes=[
        Index("status"),
        Index("user_id", "status", across="tenants"),
        Index("role", "status"),
        Index("status", "created_at"),
        Index("created_at"),
    ],
    immutable=["user_id", "created_at"],
    access=Access(read=["self:user_id", "admin", "service"], write=["admin", "service"]),
)
class Member(Document, rename="camel"):
    """A person's role in a tenant; it counts while it is active."""

    id: str = ""
    user_id: str
    tenant_id: str
    role: MemberRole
    github_role: str | None = None
    status: Literal["active", "invited", "suspended"] = "active"
    invited_by: str | None = None
    invited_at: datetime | None = None
    accepted_at: datetime | None = None
    created_at: datetime
    updated_at: datetime


@document(
    "gwi_invites/{id}",
    tenant="tenant_id",
    indexes=[Index("status", "expires_at"), Index("email", "status"), Index("-created_at")],
    lifecycle=Lifecycle(
        "status", initial=["pending"], moves={"pending": ["accepted", "cancelled", "expired"]}
    ),
    immutable=["email", "role", "created_at"],
    retention=Retention("expires_at", after_s=30 * 86_400),
    access=ADMINS_READ,
)
class Invite(Document, rename="camel"):
    """An invitation, bound to an e-mail address; its id is the hash of the token that accepts it."""

    id: str
    tenant_id: str
    email: str
    role: MemberRole
    status: Literal["pending", "accepted", "cancelled", "expired"] = "pending"
    invited_by: str
    created_at: datetime
    expires_at: datetime
    accepted_by: str | None = None
    accepted_at: datetime | None = None
