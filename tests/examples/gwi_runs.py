"""The runs and steps of the declaring page, as a module."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.model import Access, Document, Index, Lifecycle, TimestampId, document

Count = Annotated[int, Meta(ge=0)]
StepStatus = Literal["pending", "running", "completed", "failed", "skipped"]

MEMBERS_READ = Access(read=["viewer"], write=["service"])


class StepTokens(Struct, rename="camel", kw_only=True):
    input: Count
    output: Count


class StepSummary(Struct, rename="camel", kw_only=True):
    """A step as its run shows it, so that one read shows the whole run."""

    id: str
    run_id: str
    agent: Annotated[str, Meta(description="triage, coder, resolver, reviewer.")]
    status: StepStatus
    input: Any | UnsetType = UNSET
    output: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET
    started_at: datetime | UnsetType = UNSET
    completed_at: datetime | UnsetType = UNSET
    duration_ms: Count | UnsetType = UNSET
    tokens_used: StepTokens | UnsetType = UNSET


class Trigger(Struct, rename="camel", kw_only=True):
    source: Literal["ui", "cli", "webhook", "scheduled", "api"]
    user_id: Annotated[str, Meta(description="Who asked, where it was a person.")] | UnsetType = UNSET
    webhook_event_id: str | UnsetType = UNSET
    command_text: str | UnsetType = UNSET


class RunTokens(Struct, rename="camel", kw_only=True):
    triage: Count
    plan: Count
    code: Count
    review: Count
    total: Count


class ProposedChange(Struct, rename="camel", kw_only=True):
    file: str
    action: Literal["create", "modify", "delete"]
    diff: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET


@document(
    "gwi_runs/{id}",
    id=TimestampId("run"),
    tenant="tenant_id",
    indexes=[
        Index("-created_at"),
        Index("repo_id", "-created_at"),
        Index("status", "-created_at"),
        Index("status", "-created_at", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["pending"],
        moves={"pending": ["running", "cancelled"], "running": ["completed", "failed", "cancelled"]},
    ),
    immutable=["created_at", "trigger"],
    access=MEMBERS_READ,
)
class Run(Document, rename="camel"):
    """One execution of the pipeline on one pull request."""

    id: str = ""
    tenant_id: str
    repo_id: str
    pr_id: str
    pr_url: Annotated[str, Meta(pattern=r"^https?://")]

    type: Literal["triage", "plan", "resolve", "review", "autopilot"]
    status: Literal["pending", "running", "completed", "failed", "cancelled"] = "pending"
    current_step: str | UnsetType = UNSET
    steps: list[StepSummary] = []

    trigger: Trigger
    a2a_correlation_id: str | UnsetType = UNSET
    tokens_used: RunTokens | UnsetType = UNSET

    approval_status: Literal["none", "pending", "approved", "rejected"] | UnsetType = UNSET
    approval_reason: str | UnsetType = UNSET
    proposed_changes: list[ProposedChange] | UnsetType = UNSET

    result: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET

    created_at: datetime
    updated_at: datetime
    completed_at: datetime | UnsetType = UNSET
    duration_ms: Count | UnsetType = UNSET


@document(
    "gwi_runs/{run_id}/steps/{id}",
    id=TimestampId("step"),
    tenant="tenant_id",
    indexes=[
        Index("started_at"),
        Index("agent", "status", across="parents"),
        Index("status", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["pending"],
        moves={"pending": ["running", "skipped"], "running": ["completed", "failed"]},
    ),
    access=MEMBERS_READ,
)
class RunStep(Document, rename="camel"):
    """One agent's part of a run."""

    id: str = ""
    run_id: str
    tenant_id: str
    agent: str
    status: StepStatus = "pending"
    input: Any | UnsetType = UNSET
    output: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET
    started_at: datetime | UnsetType = UNSET
    completed_at: datetime | UnsetType = UNSET
    duration_ms: Count | UnsetType = UNSET
    tokens_used: StepTokens | UnsetType = UNSET
