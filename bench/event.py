"""The document all store workloads use: about 1 KB of JSON, three indexes, and a claim."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec

from holdfast import ids
from holdfast.model import Claim, Document, Index, document

DUE = datetime(2026, 1, 1, tzinfo=UTC)


class Source(msgspec.Struct):
    system: str
    account: str
    request_id: str
    attempt: int
    verified: bool


class EventFields(Document):
    """What an incoming event has."""

    id: str
    kind: str
    subject: str
    received_ms: int
    source: Source
    labels: list[str]
    weight: float
    note: str | None
    payload: str


@document("events/{id}", indexes=[Index("kind", "received_ms"), Index("subject"), Index("received_ms")])
class Event(EventFields):
    """An incoming event."""


@document("events_by_kind/{id}", indexes=[Index("kind", "received_ms")])
class EventByKind(EventFields):
    """An event with the one index that a page by kind needs."""


@document(
    "deliveries/{id}",
    claim=Claim(due="due", owner="owner", state=("status", "sending")),
    indexes=[Index("status", "received_ms"), Index("subject"), Index("received_ms")],
)
class Delivery(Document):
    """A task: claimed in batches, then settled."""

    id: str
    subject: str
    received_ms: int
    payload: str
    source: Source
    status: Literal["pending", "sending", "delivered"] = "pending"
    due: datetime | None = None
    fence: int = 0
    owner: str = ""


def _source(n: int) -> Source:
    return Source("calendar", f"account-{n % 97}", secrets.token_hex(8), n % 5, True)


E = TypeVar("E", bound=EventFields)


def events(count: int) -> list[Event]:
    """New documents with time-ordered ids."""
    return events_of(Event, count)


def events_of(cls: type[E], count: int) -> list[E]:
    """The same of another class."""
    return [
        cls(
            id=ids.ulid(), kind=f"kind-{n % 20}", subject=f"subject-{n * 7919 % 10_007}",
            received_ms=1_760_000_000_000 + n, source=_source(n), labels=["inbound", f"l{n % 10}"],
            weight=n / 8, note=None, payload=secrets.token_urlsafe(480),
        )
        for n in range(count)
    ]  # fmt: skip


def deliveries(count: int) -> list[Delivery]:
    return [
        Delivery(
            id=ids.ulid(), subject=f"subject-{n * 7919 % 10_007}", received_ms=1_760_000_000_000 + n,
            payload=secrets.token_urlsafe(540), source=_source(n), due=DUE,
        )
        for n in range(count)
    ]  # fmt: skip
