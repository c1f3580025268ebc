"""The documents of the suite: one class per feature of a declaration."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.model import Claim, CompositeId, Document, Index, Lifecycle, Retention, UlidId, document

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Spot(msgspec.Struct):
    """A struct inside a document."""

    city: str
    street: str | None = None


@document(
    "notes/{id}",
    indexes=[
        Index("text"), Index("whole"), Index("part"), Index("at"), Index("blob"), Index("flag"),
        Index("mixed"), Index("moment"), Index("maybe"), Index("spot.city"), Index("labels[]"),
        Index("flag", "whole"), Index("text", "-whole"), Index("labels[]", "-whole"),
        Index("whole", "part"), Index("flag", "mixed", "-text"), Index("text", "part"),
        Index("scores[]"),
    ],
)  # fmt: skip
class Note(Document):
    """Every kind of value, and no tenant."""

    id: str
    text: str = ""
    whole: int = 0
    part: float = 0.0
    flag: bool = False
    at: datetime | None = None
    blob: bytes = b""
    mixed: int | float | str | bool | None = None
    moment: datetime | int | bool | None = None
    maybe: int | UnsetType | None = UNSET
    spot: Spot | None = None
    labels: list[str] = []
    scores: list[int | float | str | bool | None] = []
    anything: Any = None
    table: dict[str, Any] = {}


@document(
    "accounts/{id}",
    tenant="tenant_id",
    indexes=[
        Index(), Index("name"), Index("balance"), Index("name", "-balance"), Index("labels[]"),
        Index("name", across="tenants"), Index("balance", across="tenants"),
    ],
)  # fmt: skip
class Account(Document, rename="camel"):
    """A tenant's document in a collection of all tenants."""

    id: str
    tenant_id: str
    name: str = ""
    balance: int = 0
    labels: list[str] = []


@document(
    "tenants/{tenant_id}/letters/{id}",
    tenant="tenant_id",
    path_only=["tenant_id"],
    indexes=[Index("subject"), Index("subject", across="tenants")],
)
class Letter(Document):
    """A document under its tenant, which only the path names."""

    tenant_id: str
    id: str
    subject: str = ""


@document(
    "boards/{board_id}/cards/{id}",
    tenant="tenant_id",
    indexes=[Index("rank"), Index("rank", across="parents"), Index("rank", across="tenants")],
)
class Card(Document):
    """A tenant's document under a parent without tenants."""

    board_id: str
    id: str
    tenant_id: str
    rank: int = 0


@document(
    "trees/{tree}/branches/{branch}/leaves/{id}",
    indexes=[Index("size"), Index("size", across="parents"), Index(across="parents")],
)
class Leaf(Document):
    """A document under two parents."""

    tree: str
    branch: str
    id: str
    size: int = 0


@document(
    "jobs/{id}",
    tenant="tenant_id",
    claim=Claim(due="due", fence="fence", owner="owner", lane="lane", state=("status", "working")),
    indexes=[Index("status"), Index("status", across="tenants")],
)
class QueuedJob(Document):
    """A document claimed lane by lane."""

    id: str
    tenant_id: str
    lane: str = "main"
    status: Literal["waiting", "working", "done"] = "waiting"
    due: datetime | None = None
    fence: int = 0
    owner: str | None = None
    result: str = ""


@document("chores/{id}", claim=Claim(due="due"))
class Chore(Document):
    """The least that a claim needs: no lane, no owner, no state, no tenant."""

    id: str
    due: datetime | None = None
    fence: int = 0
    done: int = 0


@document(
    "orders/{id}",
    lifecycle=Lifecycle("status", initial=["open"], moves={"open": ["paid", "dropped"], "paid": ["sent"]}),
    immutable=["opened_at"],
    indexes=[Index("status")],
)
class Parcel(Document, rename="camel"):
    """A lifecycle and an immutable field."""

    id: str
    opened_at: int
    status: Literal["open", "paid", "sent", "dropped"] = "open"
    total: int = 0


@document("entries/{id}", id=UlidId(), append_only=True, retention=Retention("at", after_s=60))
class LogEntry(Document):
    """Append-only, with retention."""

    at: datetime
    text: str = ""
    id: str = ""


@document(
    "visits/{id}",
    tenant="tenant_id",
    indexes=[Index("state", "seen_at_ms")],
    retention=Retention("seen_at_ms", after_s=3600, when={"state": "ended"}),
)
class Visit(Document):
    """Expires an hour after its end, which is in milliseconds."""

    id: str
    tenant_id: str
    seen_at_ms: int
    state: Literal["here", "ended"] = "here"


@document(
    "errands/{id}",
    tenant="tenant_id",
    indexes=[Index("queue", "turn", sparse="queue")],
    retention=Retention("finished_at", after_s=60, when={"state": "done"}),
)
class Errand(Document, rename="camel"):
    """Expires by a time that it has only once it is finished, and is not always in a queue."""

    id: str
    tenant_id: str
    state: Literal["open", "done"] = "open"
    finished_at: datetime | None = None
    queue: str = ""
    turn: int = 0


@document(
    "rooms/{room_id}/guests/{id}",
    tenant="tenant_id",
    retention=Retention("leaves_at"),
    indexes=[Index("leaves_at", across="parents")],
)
class GuestDocument(Document):
    """A sub-collection with retention."""

    room_id: str
    id: str
    tenant_id: str
    leaves_at: datetime


@document("seats/{id}", id=CompositeId("row", "number"))
class Seat(Document):
    """A composite id."""

    row: str
    number: int
    taken_by: str = ""
    id: str = ""


ALL: tuple[type[Document], ...] = (
    Note, Account, Letter, Card, Leaf, QueuedJob, Chore, Parcel, LogEntry, Visit, Errand, GuestDocument, Seat,
)  # fmt: skip
