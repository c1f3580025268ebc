"""Parts of the kit under the names, ids and fields of one service's given collections."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import field

from holdfast.kit.audit import AUDIT_INDEXES, AuditFields, AuditHeadFields, AuditModels
from holdfast.kit.checkpoints import CHECKPOINT_INDEXES, CheckpointFields
from holdfast.kit.connections import CONNECTION_INDEXES, CONNECTION_LIFE, ConnectionFields, ConnectionModels
from holdfast.kit.idempotency import IDEMPOTENCY_CLAIM, IdempotencyFields
from holdfast.kit.leases import LEASE_CLAIM, LeaseFields
from holdfast.kit.metering import (
    AllowanceFields,
    MeterModels,
    PeriodModels,
    UsageDayFields,
    UsageEventFields,
    UsageMonthFields,
    UsageSnapshotFields,
)
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
from holdfast.model import ADMINS_READ, MEMBERS_READ, CompositeId, Index, Retention, TimestampId, document


@document(
    "gwi_audit_events/{id}", id=TimestampId("evt"), tenant="tenant_id", append_only=True, access=ADMINS_READ,
    indexes=[*AUDIT_INDEXES, Index("run_id", "at")],
)  # fmt: skip
class ReviewEvent(AuditFields, rename="camel"):
    """An audited event, with the given names of its kind and time."""

    run_id: str = ""
    action: str = field(name="eventType")
    at: datetime = field(name="timestamp")
    details: dict[str, Any] | None = None


@document("gwi_audit_heads/{tenant_id}", tenant="tenant_id", access=ADMINS_READ)
class ReviewHead(AuditHeadFields, rename="camel"):
    """The end of a tenant's chain of reviews."""


@document(
    "gwi_usage_events/{id}", id=CompositeId("tenant_id", "fact"), tenant="tenant_id", append_only=True,
    indexes=[Index("-at")], access=MEMBERS_READ,
)  # fmt: skip
class ReviewUsage(UsageEventFields, rename="camel"):
    """A fact in the ledger."""

    run_id: str | None = None
    kind: str = field(name="eventType")
    at: datetime = field(name="timestamp")


@document(
    "gwi_usage_daily/{id}", id=CompositeId("tenant_id", "date"), tenant="tenant_id", access=MEMBERS_READ
)
class ReviewUsageDaily(UsageDayFields, rename="camel"):
    """The usage of one day."""

    runs: int = 0
    input_tokens: int = 0
    api_calls: int = 0


@document(
    "gwi_usage_monthly/{id}", id=CompositeId("tenant_id", "month"), tenant="tenant_id", access=MEMBERS_READ
)
class ReviewUsageMonthly(UsageMonthFields, rename="camel"):
    """The usage of one month."""

    runs: int = 0
    input_tokens: int = 0
    api_calls: int = 0


@document("gwi_usage_snapshots/{tenant_id}", tenant="tenant_id", access=MEMBERS_READ)
class ReviewUsageNow(UsageSnapshotFields, rename="camel"):
    """The usage of the current month."""

    runs_this_month: int = 0
    input_tokens_this_month: int = 0


@document(
    "gwi_allowances/{id}", id=CompositeId("tenant_id", "name"), tenant="tenant_id", indexes=[Index("name")],
    access=MEMBERS_READ,
)  # fmt: skip
class ReviewAllowance(AllowanceFields, rename="camel"):
    """What is taken of a plan's limit."""


AUDIT: Final = AuditModels(event=ReviewEvent, head=ReviewHead)
METER: Final = MeterModels(
    event=ReviewUsage,
    allowance=ReviewAllowance,
    sums=PeriodModels(day=ReviewUsageDaily, month=ReviewUsageMonthly, snapshot=ReviewUsageNow),
)


class ReviewStepSummary(StepSummary, rename="camel", kw_only=True):
    """A step within its run."""

    name: str = field(name="agent")


@document(
    "gwi_runs/{id}", id=TimestampId("run"), tenant="tenant_id", lifecycle=RUN_LIFE, claim=RUN_CLAIM,
    indexes=[*RUN_INDEXES, Index("repo_id", "-created_at")], access=MEMBERS_READ,
)  # fmt: skip
class ReviewRun(RunFields, rename="camel"):
    """A run with the fields that its service gives it."""

    repo_id: str
    steps: list[ReviewStepSummary] = []  # type: ignore[assignment]


@document(
    "gwi_runs/{run_id}/steps/{id}", id=TimestampId("step"), tenant="tenant_id", lifecycle=STEP_LIFE,
    indexes=STEP_INDEXES, access=MEMBERS_READ,
)  # fmt: skip
class ReviewStep(StepFields, rename="camel"):
    """A step, done by an agent."""

    name: str = field(name="agent")


@document("gwi_run_locks/{lock_id}", tenant="tenant_id", claim=LEASE_CLAIM, retention=Retention("expires_at"))
class ReviewLock(LeaseFields, rename="camel"):
    """A lock of a run."""


@document(
    "gwi_idempotency/{id}", tenant="tenant_id", claim=IDEMPOTENCY_CLAIM, retention=Retention("expires_at")
)
class ReviewIdempotency(IdempotencyFields, rename="camel"):
    """The answer to a request that may come again; its key is the id of its document."""

    id: str = field(name="key")
    key: str = field(name="requestKey")


@document(
    "gwi_checkpoints/{checkpoint_id}", tenant="tenant_id", indexes=CHECKPOINT_INDEXES,
    retention=Retention("expires_at"),
)  # fmt: skip
class ReviewCheckpoint(CheckpointFields, rename="camel"):
    """A state to resume from."""


RUNS: Final = RunModels(
    run=ReviewRun, step=ReviewStep, summary=ReviewStepSummary, checkpoint=ReviewCheckpoint
)


@document(
    "google_connections/{id}", id=CompositeId("tenant_id", "account", separator=":"), tenant="tenant_id",
    indexes=[*CONNECTION_INDEXES, Index("account", across="tenants"), Index("name", across="tenants")],
    lifecycle=CONNECTION_LIFE,
)  # fmt: skip
class GoogleConnection(ConnectionFields, rename=str):
    """A Google account of a chat, with the given names; some fields are derived from the kit's."""

    tenant_id: str = field(name="chat_id")
    account: str = field(name="google_sub")
    name: str = field(name="google_email", default="")
    refresh_token: str = field(name="refresh_token_encrypted", default="")
    connected_at: datetime = field(name="created_at")
    scopes: list[str] = field(name="granted_scopes", default_factory=list)
    scope_text: str = field(name="scopes", default="")
    revoked: int = 0
    connected_by_telegram_user_id: int | None = None

    def __post_init__(self) -> None:
        self.scope_text = " ".join(self.scopes)
        self.revoked = int(self.status == "revoked")
        self.connected_by_telegram_user_id = self.payload.get("user")


GOOGLE: Final = ConnectionModels(connection=GoogleConnection)
