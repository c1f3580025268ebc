"""Work: signals as they come in, the items made of them, and candidates for pull requests."""

from __future__ import annotations

import hashlib
import itertools
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct, field

from holdfast.model import (
    MEMBERS_READ,
    SERVICE_ONLY,
    Claim,
    Document,
    Index,
    Lifecycle,
    TimestampId,
    document,
)
from holdfast.services.gwi.domain.patches import ChangePlan, Patchset
from holdfast.services.gwi.domain.receipts import IntentReceipt
from holdfast.services.gwi.domain.risk import RiskAssessment
from holdfast.services.gwi.domain.scoring import Percent, ScoreBreakdown
from holdfast.services.gwi.domain.subjects import ResourceType, SignalSource, WorkType
from holdfast.services.gwi.domain.votes import CandidateStatus, Vote

SignalStatus = Literal["pending", "processed", "ignored", "failed"]
WorkStatus = Literal[
    "queued", "in_progress", "awaiting_approval", "approved", "rejected", "completed", "dismissed"
]
# An item in one of these absorbs further signals about its subject.
LIVE: Final[tuple[WorkStatus, ...]] = ("queued", "in_progress", "awaiting_approval", "approved")


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
        Index("source", "-received_at"),
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


class Evidence(Struct, rename="camel", kw_only=True):
    """What a work item rests on."""

    source_urls: list[str] = []
    related_prs: list[str] | None = field(name="relatedPRs", default=None)
    related_issues: list[str] | None = None
    files: list[str] | None = None
    additional_context: dict[str, Any] | None = None


# The filters of the queue, in every combination.
_FILTERS: Final = ("type", "repo.full_name", "assigned_to")
QUEUE_INDEXES: Final = tuple(
    Index("status", "snoozed", *chosen, "-score")
    for count in range(len(_FILTERS) + 1)
    for chosen in itertools.combinations(_FILTERS, count)
)


@document(
    "gwi_tenants/{tenant_id}/work_items/{id}",
    id=TimestampId("wi"),
    tenant="tenant_id",
    indexes=[
        Index("status", "-score", across="tenants"),
        *QUEUE_INDEXES,
        Index("snoozed", "snoozed_until", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["queued"],
        moves={
            "queued": ["in_progress", "awaiting_approval", "completed", "dismissed"],
            "in_progress": ["queued", "awaiting_approval", "completed", "dismissed"],
            "awaiting_approval": ["queued", "in_progress", "approved", "rejected", "completed", "dismissed"],
            "approved": ["in_progress", "awaiting_approval", "completed", "dismissed"],
        },
    ),
    immutable=["created_at", "dedupe_key"],
    access=MEMBERS_READ,
)
class WorkItem(Document, rename="camel"):
    """A scored unit of work; it absorbs further signals with its `dedupe_key` until it is finished.

    `signal_at` is when the newest of its signals occurred: an older one that comes later changes nothing.
    """

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
    snoozed: bool = False
    snoozed_until: datetime | None = None
    signal_at: datetime | None = None
    signal_count: int = 1
    close_reason: str | None = None
    created_at: datetime
    updated_at: datetime
    due_at: datetime | None = None


@document("gwi_tenants/{tenant_id}/dedupe_entries/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class DedupeEntry(Document, rename="camel"):
    """The one document of a key: the signal of a delivery, or the newest item of a subject.

    `closed_at` is when the subject was closed: what occurred before is no longer work.
    """

    id: str
    tenant_id: str
    document_id: str = ""
    created_at: datetime
    closed_at: datetime | None = None


def dedupe_id(*parts: str) -> str:
    """The id of a key's entry; keys may be longer than ids, and hold any characters."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


@document(
    "gwi_signal_queues/{tenant_id}",
    tenant="tenant_id",
    claim=Claim(due="due_at", fence="fence", owner="held_by"),
    access=SERVICE_ONLY,
)
class SignalQueue(Document, rename="camel"):
    """A tenant's pending signals as one claim, so that they are processed one after another.

    `arrivals` counts signals: whoever leaves the queue knows by it whether one came meanwhile.
    """

    tenant_id: str
    arrivals: int = 0
    due_at: datetime | None = None
    fence: int = 0
    held_by: str = ""


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
    """A plan and its patch, which people decide about; `patch_hash` is what their votes are bound to.

    `applying` is whether the run `run_id` is applying it; nothing else may change it meanwhile.
    """

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
    applying: bool = False
