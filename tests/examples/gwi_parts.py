"""Parts of the kit under the names, ids and fields of one service's given collections."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

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
    indexes=[Index("month", "at")], access=MEMBERS_READ,
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
