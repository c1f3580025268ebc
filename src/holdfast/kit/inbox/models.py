"""The inbox's documents."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from holdfast.kit.ordered_queue import OrderedQueueFields
from holdfast.model import (
    HIDDEN,
    SERVICE_ONLY,
    Claim,
    CompositeId,
    Document,
    Index,
    Lifecycle,
    Retention,
    document,
)

KEEP_FINISHED_S: Final = 14 * 86_400
# No request takes as long: what is older was left behind by a process that died.
UPLOAD_S_MAX: Final = 3_600

Status = Literal["pending", "processing", "done", "parked", "ignored"]


@document("holdfast_inbox_chunks/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class InboxChunk(Document, rename="camel"):
    """A piece of a body that is too large for its item."""

    id: str
    tenant_id: str
    data: Annotated[bytes, HIDDEN]


def chunk_ids(upload_id: str, count: int) -> list[str]:
    """The ids of a body's chunks, in order."""
    return [f"{upload_id}-{number:03}" for number in range(count)]


def _chunks_of_upload(upload: InboxUpload) -> Iterator[tuple[type[Document], str]]:
    return ((InboxChunk, id) for id in chunk_ids(upload.id, upload.chunks))


@document(
    "holdfast_inbox_uploads/{id}",
    tenant="tenant_id",
    retention=Retention("started_at", after_s=UPLOAD_S_MAX, dependents=_chunks_of_upload),
    access=SERVICE_ONLY,
)
class InboxUpload(Document, rename="camel"):
    """A body whose chunks are being stored; the commit of its item deletes it. One left behind is pruned."""

    id: str
    tenant_id: str
    chunks: int
    started_at: datetime


def _chunks_of_item(item: InboxItem) -> Iterator[tuple[type[Document], str]]:
    return ((InboxChunk, id) for id in chunk_ids(item.upload_id, item.chunks))


@document(
    "holdfast_inbox/{id}",
    id=CompositeId("source", "message_id"),
    tenant="tenant_id",
    indexes=[
        Index("status", "-received_at"),
        Index("status", "-received_at", across="tenants"),
        Index("queue", "status", "turn", across="tenants", sparse="queue"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["pending", "processing"],
        moves={
            "pending": ["processing", "done", "parked", "ignored"],
            "processing": ["pending", "done", "parked", "ignored"],
            "parked": ["pending"],
            "done": ["pending"],
            "ignored": ["pending"],
        },
    ),
    claim=Claim(due="due_at", fence="fence", owner="owner", lane="lane", state=("status", "processing")),
    retention=Retention("finished_at", after_s=KEEP_FINISHED_S, dependents=_chunks_of_item),
    immutable=["source", "message_id", "body", "upload_id", "chunks", "received_at"],
    access=SERVICE_ONLY,
)
class InboxItem(Document, rename="camel"):
    """A received message with its raw body; its id is source and message id, so it is stored once.

    `lane` is its source and tenant, between which claims are shared; `queue` is what it is in order with. A
    body of several `chunks` is stored beside it; a handler is given it whole.
    """

    id: str = ""
    tenant_id: str
    source: str
    message_id: str
    received_at: datetime
    headers: Annotated[dict[str, str], HIDDEN] = {}
    body: Annotated[bytes, HIDDEN] = b""
    body_bytes: int = 0
    upload_id: str = ""
    chunks: int = 0
    status: Status = "pending"
    due_at: datetime | None = None
    tries: int = 0
    returned: int = 0  # the fencing number under which it was last released
    reason: str = ""
    lane: str = ""
    queue: str = ""
    turn: int = 0
    finished_at: datetime | None = None
    trace: str = ""
    fence: int = 0
    owner: str = ""

    @classmethod
    def received(cls, **fields: Any) -> InboxItem:
        """Return a new message with what follows from its fields: the lane and the size of its body.

        Not done by a method that runs after decoding: such a class is validated and patched more slowly.
        """
        item = cls(**fields)
        item.lane = item.lane or f"{item.source}:{item.tenant_id}"
        item.body_bytes = item.body_bytes or len(item.body)
        return item


# An idle queue goes when no item of it is left, so that positions may begin anew.
@document(
    "holdfast_inbox_queues/{id}",
    tenant="tenant_id",
    retention=Retention("idle_at", after_s=KEEP_FINISHED_S),
    access=SERVICE_ONLY,
)
class InboxQueue(OrderedQueueFields, rename="camel"):
    """The order of one source's messages with the same order key."""
