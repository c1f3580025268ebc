"""Records: the audit trail and the usage ledger with its sums, of the kit under this service's names."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from msgspec import field

from holdfast.kit.audit import AUDIT_INDEXES, AuditFields, AuditHeadFields, AuditModels
from holdfast.kit.metering import (
    AllowanceFields,
    MeterModels,
    PeriodModels,
    UsageDayFields,
    UsageEventFields,
    UsageMonthFields,
    UsageSnapshotFields,
)
from holdfast.model import ADMINS_READ, MEMBERS_READ, CompositeId, Index, TimestampId, document

# What runs record; operations record their own actions besides.
RunEventType = Literal[
    "run_started", "run_completed", "run_failed", "step_started", "step_completed", "step_failed",
    "approval_requested", "approval_granted", "approval_rejected", "github_comment_posted",
    "branch_created", "commit_pushed", "pr_created", "pr_updated",
]  # fmt: skip
UsageEventType = Literal["run_completed", "tokens_used", "api_call"]


@document(
    "gwi_audit_events/{id}",
    id=TimestampId("evt"),
    tenant="tenant_id",
    append_only=True,
    indexes=[*AUDIT_INDEXES, Index("run_id", "-sequence")],
    access=ADMINS_READ,
)
class AuditRecord(AuditFields, rename="camel"):
    """An audited event; `run_id` is empty where it is about no run."""

    run_id: str = ""
    action: str = field(name="eventType")
    at: datetime = field(name="timestamp")
    actor: str = ""
    details: dict[str, Any] = {}
    intent: str = ""
    change_summary: str = ""
    scope: str = ""
    policy_approval: str = ""
    evidence_text: str = ""

    def __post_init__(self) -> None:
        self.details = self.details or {}


@document("gwi_audit_heads/{tenant_id}", tenant="tenant_id", access=ADMINS_READ)
class AuditRecordHead(AuditHeadFields, rename="camel"):
    """The end of a tenant's chain."""


@document(
    "gwi_usage_events/{id}",
    id=CompositeId("tenant_id", "fact"),
    tenant="tenant_id",
    append_only=True,
    indexes=[Index("-at")],
    access=MEMBERS_READ,
)
class UsageFact(UsageEventFields, rename="camel"):
    """A fact in the ledger."""

    run_id: str | None = None
    kind: UsageEventType = field(name="eventType")
    at: datetime = field(name="timestamp")
    metadata: dict[str, Any] | None = None


@document(
    "gwi_usage_daily/{id}",
    id=CompositeId("tenant_id", "date"),
    tenant="tenant_id",
    indexes=[Index("date")],
    access=MEMBERS_READ,
)
class UsageDaily(UsageDayFields, rename="camel"):
    """The usage of one day."""

    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    api_calls: int = 0


@document(
    "gwi_usage_monthly/{id}",
    id=CompositeId("tenant_id", "month"),
    tenant="tenant_id",
    indexes=[Index("month")],
    access=MEMBERS_READ,
)
class UsageMonthly(UsageMonthFields, rename="camel"):
    """The usage of one month."""

    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    api_calls: int = 0


@document("gwi_usage_snapshots/{tenant_id}", tenant="tenant_id", access=MEMBERS_READ)
class UsageSnapshot(UsageSnapshotFields, rename="camel"):
    """The usage of the current month."""

    runs_this_month: int = 0
    input_tokens_this_month: int = 0
    output_tokens_this_month: int = 0


@document(
    "gwi_allowances/{id}",
    id=CompositeId("tenant_id", "name"),
    tenant="tenant_id",
    indexes=[Index("name")],
    access=MEMBERS_READ,
)
class PlanAllowance(AllowanceFields, rename="camel"):
    """What is taken of a plan's limit."""


AUDIT: Final = AuditModels(event=AuditRecord, head=AuditRecordHead)
METER: Final = MeterModels(
    event=UsageFact,
    allowance=PlanAllowance,
    sums=PeriodModels(day=UsageDaily, month=UsageMonthly, snapshot=UsageSnapshot),
)
