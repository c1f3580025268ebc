"""Delivery to the RMS: the outbox's documents under the names they have in this platform.

An endpoint has the id of its property, so `property_id` is where a delivery goes and its lane in the
outbox; with the property in the event's id, one event is one delivery. A dead letter has its
delivery's id and keeps it as `webhook_delivery_state_id`.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Final

from msgspec import field

from holdfast.kit.outbox import (
    Attempt,
    DeadLetter,
    Delivery,
    Endpoint,
    EndpointNotice,
    FifoLane,
    OutboxModels,
)
from holdfast.kit.outbox.models import DeliveryStatus
from holdfast.model import (
    DEVELOPERS_READ,
    MEMBERS_READ,
    SERVICE_ONLY,
    Claim,
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
# What the outbox calls dead is called dlq wherever this service shows it.
DLQ: Final = "dlq"
_ENDPOINT: Final = schema_of(Endpoint).declared
_DELIVERY: Final = schema_of(Delivery).declared
_DEAD_LETTER: Final = schema_of(DeadLetter).declared
_NOTICE: Final = schema_of(EndpointNotice).declared


@document(
    "renewal_rms_endpoints/{id}",
    id=PROPERTY_ID,
    tenant="tenant_id",
    indexes=_ENDPOINT.indexes,
    lifecycle=_ENDPOINT.lifecycle,
    immutable=_ENDPOINT.immutable,
    access=SERVICE_ONLY,
)
class RmsEndpoint(Endpoint, rename="camel"):
    """Where a property's events go; has the property's id."""


@document(
    "webhook_delivery_state/{id}",
    tenant="tenant_id",
    indexes=[
        Index("status", "-created_at"),
        Index("endpoint_id", "status", "-created_at"),
        Index("endpoint_id", "-created_at"),
        Index("status", "next_attempt_at"),
        Index("event_id"),
        Index("resident_id", "-created_at"),
    ],
    lifecycle=_DELIVERY.lifecycle,
    immutable=[*_DELIVERY.immutable, "resident_id"],
    # What did not arrive stays: its dead letter may be replayed at any time. What did is remembered for as
    # long as somebody might trigger it again, so that it is not sent twice.
    retention=Retention("finished_at", after_s=DELIVERED_KEPT_S, when={"status": "delivered"}),
    claim=Claim(
        due="next_attempt_at", fence="fence", owner="owner", lane="endpoint_id", state=("status", "sending")
    ),
    access=MEMBERS_READ,
)
class DeliveryState(Delivery):
    """One event on its way to one RMS, with every attempt."""

    id: str
    tenant_id: str = field(default="-", name="tenant_id")
    endpoint_id: str = field(name="property_id")
    resident_id: str = field(name="resident_id")
    event_id: str = field(name="event_id")
    event_type: str = field(name="event_type")
    body: bytes = field(name="payload")
    status: DeliveryStatus = "pending"
    attempt_count: int = field(default=0, name="attempt_count")
    last_attempt_at: datetime | None = field(default=None, name="last_attempt_at")
    next_attempt_at: datetime | None = field(default=None, name="next_retry_at")
    rms_response: str | None = field(default=None, name="rms_response")
    created_at: datetime = field(name="created_at")

    attempt_fields: ClassVar[tuple[str, ...]] = ("rms_response",)

    def on_attempt(self, attempt: Attempt) -> None:
        said = attempt.excerpt or "an empty answer"
        self.rms_response = f"{attempt.failure or attempt.status}: {said}"


@document(
    "webhook_dead_letter_queue/{id}",
    tenant="tenant_id",
    indexes=_DEAD_LETTER.indexes,
    access=MEMBERS_READ,
)
class DeadLetterRow(DeadLetter):
    """Why a delivery was given up, for people to review, replay or mark as resolved."""

    id: str = field(name="webhook_delivery_state_id")
    tenant_id: str = field(default="-", name="tenant_id")
    endpoint_id: str = field(name="property_id")
    event_id: str = field(name="event_id")
    event_type: str = field(name="event_type")
    reason: str
    died_at: datetime = field(name="created_at")


@document(
    "renewal_rms_endpoint_notices/{id}",
    id=UlidId(),
    tenant="tenant_id",
    indexes=[Index("endpoint_id", "-at")],
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
    fifo_lane=RmsFifoLane,
)  # fmt: skip
DOCUMENTS: Final[tuple[type[Document], ...]] = OUTBOX_MODELS.all
