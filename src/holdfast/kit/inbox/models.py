"""The inbox's documents."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from holdfast.kit.ordered_queue import OrderedQueueFields
from holdfast.model import SERVICE_ONLY, Claim, CompositeId, Document, Index, Lifecycle, Retention, document

KEEP_FINISHED_S: Final = 14 * 86_400

Status = Literal["pending", "processing", "done", "parked", "ignored"]


@document(
    "holdfast_inbox/{id}",
    id=CompositeId("source", "message_id"),
    tenant="tenant_id",
    indexes=[
        Index("status", "-received_at"),
        Index("source", "status", "-received_at"),
        Index("status", "-received_at", across="tenants"),
        Index("lane", "status", "turn", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["pending", "ignored"],
        moves={
            "pending": ["processing", "done", "parked"],
            "processing": ["pending", "done", "parked"],
            "parked": ["pending"],
            "done": ["pending"],
        },
    ),
    claim=Claim(due="due_at", fence="fence", owner="owner", state=("status", "processing")),
    retention=Retention("finished_at", after_s=KEEP_FINISHED_S),
    immutable=["source", "message_id", "body", "received_at"],
    access=SERVICE_ONLY,
)
class InboxItem(Document, rename="camel"):
    """A received message with its raw body; its id is source and message id, so it is stored once."""

    id: str = ""
    tenant_id: str
    source: str
    message_id: str
    received_at: datetime
    headers: dict[str, str] = {}
    body: bytes = b""
    status: Status = "pending"
    due_at: datetime | None = None
    tries: int = 0
    returned: int = 0  # the fencing number under which it was last released
    reason: str = ""
    lane: str = ""
    turn: int = 0
    finished_at: datetime | None = None
    trace: str = ""
    fence: int = 0
    owner: str = ""


@document("holdfast_inbox_lanes/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class InboxLane(OrderedQueueFields, rename="camel"):
    """The order of one source's messages with the same order key."""
