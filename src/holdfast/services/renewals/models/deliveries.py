"""Delivery to the RMS: the outbox's documents under the names they have in this platform.

An endpoint has the id of its property, so `property_id` is where a delivery goes and its lane in the
outbox; with the property in the event's id, one event is one delivery. A dead letter has its
delivery's id and keeps it as `webhook_delivery_state_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import field

from holdfast.kit.outbox import (
    DEAD_LETTER_INDEXES,
    DELIVERY_CLAIM,
    DELIVERY_INDEXES,
    ENDPOINT_INDEXES,
    NOTICE_INDEXES,
    Attempt,
    DeadLetter,
    Delivery,
    Endpoint,
    EndpointNotice,
    FifoLane,
    OutboxModels,
)
from holdfast.kit.outbox.models import AttemptChunk, rename_states
from holdfast.model import (
    DEVELOPERS_READ,
    MEMBERS_READ,
    SERVICE_ONLY,
    Document,
    Index,
    Retention,
    UlidId,
    document,
    schema_of,
)
from holdfast.services.renewals.models.source_tables import PROPERTY_ID

EVENT_TYPE: Final = "renewal.risk_flagged"
DELIVERED_KEPT_S: Final = 2 * 365 * 86_400
DLQ: Final = "dlq"
RmsDeliveryStatus = Literal["pending", "sending", "delivered", "failed", "dlq", "skipped", "cancelled"]
_STATE_NAMES: Final = {"dead": DLQ}
_SNAKE: Final = {
    "occurredAt": "occurred_at", "contentType": "content_type", "replayCount": "replay_count",
    "lastStatus": "last_status", "finishedAt": "finished_at", "resolvedAt": "resolved_at",
}  # fmt: skip
_ENDPOINT: Final = schema_of(Endpoint).declared
_DELIVERY: Final = schema_of(Delivery).declared
assert _DELIVERY.lifecycle is not None
_NOTICE: Final = schema_of(EndpointNotice).declared


@document(
    "renewal_rms_endpoints/{id}",
    id=PROPERTY_ID,
    tenant="tenant_id",
    indexes=ENDPOINT_INDEXES,
    lifecycle=_ENDPOINT.lifecycle,
    immutable=_ENDPOINT.immutable,
    access=SERVICE_ONLY,
)
class RmsEndpoint(Endpoint, rename="camel"):
    """Where a property's events go; has the property's id."""


def _readable(body: bytes) -> dict[str, Any]:
    """The payload as JSON, for whoever reads it with SQL; what is sent are the bytes."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"text": body.decode(errors="replace")}


def _upgrade_delivery(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had two styles of names, the outbox's word for dlq, and only the payload's bytes."""
    fields = {_SNAKE.get(name, name): value for name, value in fields.items()}
    if "payload_bytes" not in fields:
        fields["payload_bytes"] = fields.pop("payload")
    if fields.get("status") == "dead":
        fields["status"] = DLQ
    return fields


@document(
    "webhook_delivery_state/{id}",
    tenant="tenant_id",
    indexes=[
        *DELIVERY_INDEXES,
        Index("event_id"),
        Index("endpoint_id", "-created_at"),
        Index("status", "next_attempt_at"),
        Index("resident_id", "-created_at"),
    ],
    lifecycle=rename_states(_DELIVERY.lifecycle, _STATE_NAMES),
    immutable=[*_DELIVERY.immutable, "resident_id"],
    # What did not arrive stays: its dead letter may be replayed at any time. What did is remembered for as
    # long as somebody might trigger it again, so that it is not sent twice.
    retention=Retention("finished_at", after_s=DELIVERED_KEPT_S, when={"status": "delivered"}),
    claim=DELIVERY_CLAIM,
    access=MEMBERS_READ,
    upgrades={1: _upgrade_delivery},
    all_columns=True,
)
class DeliveryState(Delivery):
    """One event on its way to one RMS, with every attempt."""

    id: str
    tenant_id: str = field(default="-", name="tenant_id")
    endpoint_id: str = field(name="property_id")
    resident_id: str = field(name="resident_id")
    event_id: str = field(name="event_id")
    event_type: str = field(name="event_type")
    body: bytes = field(name="payload_bytes")
    payload: dict[str, Any] | None = None
    occurred_at: datetime = field(name="occurred_at")
    content_type: str = field(default="application/json", name="content_type")
    status: RmsDeliveryStatus = "pending"  # type: ignore[assignment] # it names its states itself
    replay_count: int = field(default=0, name="replay_count")
    attempt_count: int = field(default=0, name="attempt_count")
    last_attempt_at: datetime | None = field(default=None, name="last_attempt_at")
    next_attempt_at: datetime | None = field(default=None, name="next_retry_at")
    last_status: int | None = field(default=None, name="last_status")
    rms_response: str | None = field(default=None, name="rms_response")
    created_at: datetime = field(name="created_at")
    finished_at: datetime | None = field(default=None, name="finished_at")
    attempt_chunks: int = field(default=0, name="attempt_chunks")
    schema_version: int = field(default=2, name="schema_version")

    state_names: ClassVar[Mapping[str, str]] = _STATE_NAMES
    attempt_fields: ClassVar[tuple[str, ...]] = ("rms_response",)

    def __post_init__(self) -> None:
        if self.payload is None:
            self.payload = _readable(self.body)

    def on_attempt(self, attempt: Attempt) -> None:
        said = attempt.excerpt or "an empty answer"
        self.rms_response = f"{attempt.failure or attempt.status}: {said}"


def _upgrade_dead_letter(fields: dict[str, Any]) -> dict[str, Any]:
    return {_SNAKE.get(name, name): value for name, value in fields.items()}


@document(
    "webhook_dead_letter_queue/{id}",
    tenant="tenant_id",
    indexes=DEAD_LETTER_INDEXES,
    access=MEMBERS_READ,
    upgrades={1: _upgrade_dead_letter},
    all_columns=True,
)
class DeadLetterRow(DeadLetter):
    """Why a delivery is dead, for people to review, replay or mark as resolved."""

    id: str = field(name="webhook_delivery_state_id")
    tenant_id: str = field(default="-", name="tenant_id")
    endpoint_id: str = field(name="property_id")
    event_id: str = field(name="event_id")
    event_type: str = field(name="event_type")
    reason: str
    died_at: datetime = field(name="created_at")
    resolved_at: datetime | None = field(default=None, name="resolved_at")
    schema_version: int = field(default=2, name="schema_version")


@document("webhook_delivery_attempts/{id}", tenant="tenant_id", append_only=True, access=MEMBERS_READ)
class RmsAttemptChunk(AttemptChunk):
    """Attempts that no longer fit into their delivery."""

    tenant_id: str = field(default="-", name="tenant_id")
    delivery_id: str = field(name="webhook_delivery_state_id")
    last_at: datetime = field(name="last_at")


@document(
    "renewal_rms_endpoint_notices/{id}",
    id=UlidId(),
    tenant="tenant_id",
    indexes=NOTICE_INDEXES,
    append_only=True,
    retention=_NOTICE.retention,
    access=DEVELOPERS_READ,
)
class RmsEndpointNotice(EndpointNotice, rename="camel"):
    """A change of an RMS endpoint's state: who or what made it, and why."""


@document("renewal_rms_fifo_lanes/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class RmsFifoLane(FifoLane, rename="camel"):
    """The lane of an RMS endpoint that keeps order."""


OUTBOX_MODELS: Final = OutboxModels(
    endpoint=RmsEndpoint, delivery=DeliveryState, dead_letter=DeadLetterRow, notice=RmsEndpointNotice,
    fifo_lane=RmsFifoLane, attempts=RmsAttemptChunk,
)  # fmt: skip
DOCUMENTS: Final[tuple[type[Document], ...]] = OUTBOX_MODELS.all
