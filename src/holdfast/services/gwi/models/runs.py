"""Runs of agents: the kit's runs, locks, idempotency records and checkpoints under this service's names."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct, field

from holdfast.kit.checkpoints import CHECKPOINT_INDEXES, CheckpointFields
from holdfast.kit.idempotency import IDEMPOTENCY_CLAIM, IdempotencyFields
from holdfast.kit.leases import LEASE_CLAIM, LeaseFields
from holdfast.kit.runs import (
    RUN_CLAIM,
    RUN_INDEXES,
    RUN_LIFE,
    STEP_INDEXES,
    STEP_LIFE,
    RunFields,
    RunModels,
    StepFields,
    StepSummary,
)
from holdfast.model import (
    ADMINS_READ,
    MEMBERS_READ,
    SERVICE_ONLY,
    Document,
    Index,
    Retention,
    TimestampId,
    document,
)
from holdfast.services.gwi.domain.patches import ChangeAction
from holdfast.services.gwi.models.tenants import RiskMode

RunType = Literal["triage", "plan", "resolve", "review", "autopilot"]
ApprovalStatus = Literal["none", "pending", "approved", "rejected"]
TriggerSource = Literal["ui", "cli", "webhook", "scheduled", "api"]


class RunTrigger(Struct, rename="camel", kw_only=True):
    """What started a run."""

    source: TriggerSource
    user_id: str | None = None
    webhook_event_id: str | None = None
    command_text: str | None = None


class RunTokens(Struct, rename="camel", kw_only=True):
    """Tokens that a run used, by the kind of work."""

    triage: int = 0
    plan: int = 0
    code: int = 0
    review: int = 0
    total: int = 0


class ProposedChange(Struct, rename="camel", kw_only=True):
    """A change that waits for approval."""

    file: str
    action: ChangeAction
    diff: str | None = None
    summary: str | None = None


class RunEffect(Struct, rename="camel", kw_only=True):
    """Something that a run did at GitHub."""

    kind: Literal["github_comment_posted", "branch_created", "commit_pushed", "pr_created", "pr_updated"]
    url: str
    details: dict[str, Any] | None = None


class AgentStepSummary(StepSummary, rename="camel", kw_only=True):
    """A step within its run, by the agent that does it."""

    name: str = field(name="agent")


@document(
    "gwi_runs/{id}",
    id=TimestampId("run"),
    tenant="tenant_id",
    lifecycle=RUN_LIFE,
    claim=RUN_CLAIM,
    indexes=[
        *RUN_INDEXES,
        Index("repo_id", "-created_at"),
        Index("repo_id", "status", "-created_at"),
        Index("approval_status", "-created_at"),
    ],
    immutable=["created_at", "type", "trigger"],
    access=MEMBERS_READ,
)
class AgentRun(RunFields, rename="camel"):
    """A run of agents on a repository; `risk_mode` is what its steps may do at most."""

    repo_id: str
    pr_id: str = ""
    pr_url: str = ""
    type: RunType
    steps: list[AgentStepSummary] = []  # type: ignore[assignment]
    trigger: RunTrigger
    risk_mode: RiskMode = "comment_only"
    a2a_correlation_id: str | None = None
    tokens_used: RunTokens | None = None
    approval_status: ApprovalStatus | None = None
    approval_reason: str | None = None
    proposed_changes: list[ProposedChange] | None = None
    effects: list[RunEffect] = []
    candidate_id: str | None = None
    work_item_id: str | None = None
    instance_id: str | None = None


@document(
    "gwi_runs/{run_id}/steps/{id}",
    id=TimestampId("step"),
    tenant="tenant_id",
    lifecycle=STEP_LIFE,
    indexes=STEP_INDEXES,
    access=MEMBERS_READ,
)
class AgentStep(StepFields, rename="camel"):
    """A step, with its whole input and output."""

    name: str = field(name="agent")


@document(
    "gwi_runs/{run_id}/logs/{id}",
    id=TimestampId("log"),
    tenant="tenant_id",
    indexes=[Index("at")],
    append_only=True,
    access=MEMBERS_READ,
)
class RunLog(Document, rename="camel"):
    """A line that a run wrote about itself."""

    id: str = ""
    run_id: str
    tenant_id: str
    step_id: str = ""
    at: datetime
    level: Literal["debug", "info", "warning", "error"] = "info"
    message: str
    details: dict[str, Any] | None = None


@document(
    "gwi_approvals/{id}",
    id=TimestampId("appr"),
    tenant="tenant_id",
    indexes=[Index("run_id", "-decided_at"), Index("-decided_at")],
    append_only=True,
    access=ADMINS_READ,
)
class RunApproval(Document, rename="camel"):
    """A decision about the changes that a run proposes."""

    id: str = ""
    run_id: str
    tenant_id: str
    decision: Literal["approved", "rejected"]
    decided_by: str
    decided_at: datetime
    reason: str | None = None
    proposed_changes_snapshot: list[ProposedChange] | None = None


@document(
    "gwi_run_locks/{lock_id}",
    tenant="tenant_id",
    claim=LEASE_CLAIM,
    retention=Retention("expires_at", after_s=7 * 86_400),
    access=SERVICE_ONLY,
)
class RunLock(LeaseFields, rename="camel"):
    """A lock that one run at a time holds."""


@document(
    "gwi_idempotency/{id}",
    tenant="tenant_id",
    claim=IDEMPOTENCY_CLAIM,
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class RequestRecord(IdempotencyFields, rename="camel"):
    """The answer to a request that may come again; its key is the id of its document."""

    id: str = field(name="key")
    key: str = field(name="requestKey")


@document(
    "gwi_checkpoints/{checkpoint_id}",
    tenant="tenant_id",
    indexes=CHECKPOINT_INDEXES,
    immutable=["run_id", "step_id", "number", "state", "created_at"],
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class RunCheckpoint(CheckpointFields, rename="camel"):
    """A state that a run resumes from."""


@document("gwi_run_totals/{tenant_id}", tenant="tenant_id", access=MEMBERS_READ)
class RunTotals(Document, rename="camel"):
    """A tenant's runs by outcome, counted with each: to count a million documents would take too long."""

    tenant_id: str
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    duration_ms: int = 0
    updated_at: datetime


RUNS: Final = RunModels(run=AgentRun, step=AgentStep, summary=AgentStepSummary, checkpoint=RunCheckpoint)
