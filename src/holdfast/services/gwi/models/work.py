"""Work: signals as they come in, the items made of them, and candidates for pull requests."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from holdfast.model import MEMBERS_READ, Document, Index, Lifecycle, TimestampId, document

SignalSource = Literal[
    "github_issue", "github_pr", "github_comment", "webhook", "scheduled", "manual", "api"
]  # fmt: skip
SignalStatus = Literal["pending", "processed", "ignored", "failed"]
ResourceType = Literal["issue", "pr", "comment", "commit"]
WorkType = Literal["issue_to_code", "pr_review", "pr_resolve", "docs_update", "test_gen", "custom"]
WorkStatus = Literal[
    "queued", "in_progress", "awaiting_approval", "approved", "rejected", "completed", "dismissed"
]  # fmt: skip
CandidateStatus = Literal["draft", "ready", "approved", "rejected", "applied", "failed"]
RiskLevel = Literal["low", "medium", "high", "critical"]
ChangeAction = Literal["create", "modify", "delete"]
Percent = Annotated[int, Meta(ge=0, le=100)]


class SourceRepo(Struct, rename="camel", kw_only=True):
    """A repository as its event names it."""

    owner: str
    name: str
    full_name: str
    id: int | None = None


class SignalContext(Struct, rename="camel", kw_only=True):
    """What a signal is about, as far as its event says."""

    repo: SourceRepo | None = None
    resource_number: int | None = None
    resource_type: ResourceType | None = None
    resource_url: str | None = None
    actor: str | None = None
    action: str | None = None
    title: str | None = None
    body: str | None = None
    labels: list[str] | None = None


class ProcessingMeta(Struct, rename="camel", kw_only=True):
    """What became of a signal."""

    processed_at: datetime | None = None
    work_item_id: str | None = None
    ignored_reason: str | None = None
    error_message: str | None = None


@document(
    "gwi_tenants/{tenant_id}/signals/{id}",
    id=TimestampId("sig"),
    tenant="tenant_id",
    indexes=[
        Index("status", "received_at"),
        Index("status", "received_at", across="tenants"),
        Index("-received_at"),
        Index("status", "-received_at"),
        Index("source", "-received_at"),
        Index("source", "external_id"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["pending", "ignored"],
        moves={"pending": ["processed", "ignored", "failed"], "failed": ["pending"]},
    ),
    immutable=["source", "external_id", "received_at"],
    access=MEMBERS_READ,
)
class WorkSignal(Document, rename="camel"):
    """An event as it came in; `external_id` is unique among those of its source."""

    id: str = ""
    tenant_id: str
    source: SignalSource
    external_id: str
    occurred_at: datetime
    received_at: datetime
    status: SignalStatus = "pending"
    payload: dict[str, Any] = {}
    context: SignalContext
    processing_meta: ProcessingMeta | None = None


class ScoreModifier(Struct, rename="camel", kw_only=True, frozen=True):
    """One part of a score."""

    name: str
    value: int
    reason: str


class ScoreBreakdown(Struct, rename="camel", kw_only=True):
    """How a score came about."""

    base_score: int
    modifiers: list[ScoreModifier] = []
    final_score: Percent
    explanation: str


class Evidence(Struct, rename="camel", kw_only=True):
    """What a work item rests on."""

    source_urls: list[str] = []
    related_prs: list[str] | None = field(name="relatedPRs", default=None)
    related_issues: list[str] | None = None
    files: list[str] | None = None
    additional_context: dict[str, Any] | None = None


@document(
    "gwi_tenants/{tenant_id}/work_items/{id}",
    id=TimestampId("wi"),
    tenant="tenant_id",
    indexes=[
        Index("status", "-score"),
        Index("status", "-score", across="tenants"),
        Index("-score"),
        Index("dedupe_key", "status"),
        Index("status"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["queued"],
        moves={
            "queued": ["in_progress", "awaiting_approval", "completed", "dismissed"],
            "in_progress": ["queued", "awaiting_approval", "completed", "dismissed"],
            "awaiting_approval": ["queued", "in_progress", "approved", "rejected", "completed", "dismissed"],
            "approved": ["in_progress", "awaiting_approval", "completed", "dismissed"],
            "rejected": ["queued", "dismissed"],
        },
    ),
    immutable=["created_at"],
    access=MEMBERS_READ,
)
class WorkItem(Document, rename="camel"):
    """A scored unit of work; it absorbs further signals with its `dedupe_key` until it is finished."""

    id: str = ""
    tenant_id: str
    type: WorkType
    title: str
    summary: str
    status: WorkStatus = "queued"
    dedupe_key: str
    score: Percent
    score_breakdown: ScoreBreakdown
    signal_ids: list[str] = []
    evidence: Evidence
    repo: SourceRepo | None = None
    resource_number: int | None = None
    resource_url: str | None = None
    assigned_to: str | None = None
    candidate_id: str | None = None
    snoozed_until: datetime | None = None
    created_at: datetime
    updated_at: datetime
    due_at: datetime | None = None


class PlannedStep(Struct, rename="camel", kw_only=True):
    """One step of a candidate's plan."""

    order: int
    description: str
    files: list[str] | None = None
    action: Literal["create", "modify", "delete", "review", "test"]


class ChangePlan(Struct, rename="camel", kw_only=True):
    """What a candidate is going to do."""

    summary: str
    steps: list[PlannedStep] = []
    complexity: Annotated[int, Meta(ge=1, le=5)]
    affected_files: list[str] = []
    estimated_minutes: int | None = None


class FileChange(Struct, rename="camel", kw_only=True):
    """One file of a patch, as a whole or as a diff."""

    file: str
    action: ChangeAction
    content: str | None = None
    diff: str | None = None


class Patchset(Struct, rename="camel", kw_only=True):
    """The change itself, on top of a commit."""

    branch_name: str
    base_commit: str
    changes: list[FileChange] = []
    commit_message: str


class RiskFactor(Struct, rename="camel", kw_only=True, frozen=True):
    """One reason why a change is risky."""

    name: str
    severity: int
    description: str


class RiskAssessment(Struct, rename="camel", kw_only=True):
    """How risky a change is, and why."""

    level: RiskLevel
    score: Percent
    factors: list[RiskFactor] = []
    mitigations: list[str] | None = None


class Vote(Struct, rename="camel", kw_only=True):
    """A person's decision about the patch with this hash."""

    user_id: str
    decision: Literal["approved", "rejected", "changes_requested"]
    comment: str | None = None
    timestamp: datetime
    patch_hash: str = ""


class IntentReceipt(Struct, rename="camel", kw_only=True):
    """Who changes what, when, where, why and on what grounds."""

    intent: str
    change_summary: str
    actor: str
    when: str
    scope: str
    policy_approval: str
    evidence: str


@document(
    "gwi_tenants/{tenant_id}/pr_candidates/{id}",
    id=TimestampId("cand"),
    tenant="tenant_id",
    indexes=[
        Index("-created_at"),
        Index("status", "-created_at"),
        Index("work_item_id", "-created_at"),
        Index("id", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["draft", "ready"],
        moves={
            "draft": ["ready", "rejected", "failed"],
            "ready": ["draft", "approved", "rejected", "failed"],
            "approved": ["draft", "ready", "applied", "failed", "rejected"],
            "failed": ["approved", "draft", "ready"],
        },
    ),
    immutable=["work_item_id", "created_at"],
    access=MEMBERS_READ,
)
class Candidate(Document, rename="camel"):
    """A plan and its patch, which people decide about; `patch_hash` is what their votes are bound to."""

    id: str = ""
    work_item_id: str
    tenant_id: str
    status: CandidateStatus = "draft"
    plan: ChangePlan
    patchset: Patchset | None = None
    risk: RiskAssessment
    confidence: Percent
    required_approvals: int
    approvals: list[Vote] = []
    intent_receipt: IntentReceipt
    created_by: str = ""
    patch_hash: str = ""
    failure_reason: str | None = None
    created_at: datetime
    updated_at: datetime
    applied_at: datetime | None = None
    resulting_pr_url: str | None = field(name="resultingPRUrl", default=None)
    run_id: str | None = None
