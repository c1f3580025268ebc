"""The outbox's documents: endpoints, one delivery per event and endpoint, dead letters, notices."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, cast

import msgspec
from msgspec import Meta

from holdfast.kit import NO_TENANT
from holdfast.kit.model_checks import check_model
from holdfast.kit.ordered_queue import OrderedQueueFields
from holdfast.kit.outbox.retry_policy import RetryPolicy
from holdfast.model import (
    DEVELOPERS_READ,
    HIDDEN,
    MEMBERS_READ,
    SERVICE_ONLY,
    Claim,
    Document,
    Index,
    Lifecycle,
    ProvidedId,
    Retention,
    UlidId,
    document,
    schema_of,
)

DeliveryStatus = Literal["pending", "sending", "delivered", "failed", "dead", "skipped", "cancelled"]
EndpointStatus = Literal["active", "paused", "disabled"]
NoticeKind = Literal["paused", "resumed", "disabled", "enabled"]

UNDELIVERED: Final = ("pending", "sending", "failed", "dead")
EVERY_STATUS: Final = ("pending", "sending", "delivered", "failed", "dead", "skipped", "cancelled")
# A delivery holds its last attempts; older ones are moved to documents of their own, so many to each.
ATTEMPTS_IN_DELIVERY_MAX: Final = 20
EXCERPT_BYTES_MAX: Final = 1_024
HEADERS_CHARACTERS_MAX: Final = 1_024
URL_CHARACTERS_MAX: Final = 500
FINISHED_KEPT_S: Final = 30 * 86_400
# Why a delivery is skipped, where it is not for its type; such deliveries can be replayed together.
DISABLED_REASON: Final = "the endpoint is disabled"
# Joins an event's and an endpoint's id; an endpoint's id can't hold it, so no two pairs share one.
JOINT: Final = "~"

# What sending needs, and the lists of one tenant and of all; a service's own classes declare them too.
ENDPOINT_INDEXES: Final = (
    Index("status", "-created_at"),
    Index("-created_at"),
    Index("status", "-created_at", across="tenants"),
)
DELIVERY_INDEXES: Final = (
    Index("status", "-created_at"),
    Index("status", "-created_at", across="tenants"),
    Index("endpoint_id", "status", "-created_at"),
)
DEAD_LETTER_INDEXES: Final = (
    Index("resolved", "-died_at"),
    Index("resolved", "-died_at", across="tenants"),
    Index("endpoint_id", "resolved", "-died_at"),
)
NOTICE_INDEXES: Final = (Index("endpoint_id", "-at"),)
DELIVERY_CLAIM: Final = Claim(
    due="next_attempt_at", fence="fence", owner="owner", lane="endpoint_id", state=("status", "sending")
)

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class BreakerPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """After so many failures in a row nothing is sent for `open_s`; then a few probes decide."""

    failures: Positive = 10
    open_s: Seconds = 15.0
    probes: Positive = 1


class Rate(msgspec.Struct, frozen=True, rename="camel"):
    """At most `burst` at once and `per_s` a second after that, over all processes together."""

    per_s: Seconds
    burst: Positive = 1


class EndpointSecret(msgspec.Struct, frozen=True, rename="camel"):
    """A sealed signing secret. During a rotation there are two, until one expires."""

    sealed: str
    expires_at: datetime | None = None


@document(
    "holdfast_endpoints/{id}",
    id=ProvidedId(pattern=rf"[^{JOINT}/]{{1,200}}"),
    tenant="tenant_id",
    indexes=ENDPOINT_INDEXES,
    lifecycle=Lifecycle(
        "status",
        initial=["active", "paused", "disabled"],
        moves={
            "active": ["paused", "disabled"],
            "paused": ["active", "disabled"],
            "disabled": ["active", "paused"],
        },
    ),
    immutable=["created_at", "fifo"],
    access=SERVICE_ONLY,
)
class Endpoint(Document, rename="camel"):
    """A receiver of events and its limits. Empty `event_types` take all; `invoice.*` takes a family."""

    id: str
    tenant_id: str = NO_TENANT
    url: str
    created_at: datetime
    status: EndpointStatus = "active"
    reason: str = ""
    event_types: list[str] = []
    secrets: Annotated[list[EndpointSecret], HIDDEN] = []
    fifo: bool = False
    concurrency: Positive = 10
    rate: Rate | None = None
    breaker: BreakerPolicy = BreakerPolicy()
    retry: RetryPolicy = RetryPolicy()
    timeout_s: Annotated[float, Meta(gt=0, le=60)] = 5.0
    response_bytes_max: Positive = 65_536

    def takes(self, event_type: str) -> bool:
        """Whether the endpoint wants events of this type."""
        return not self.event_types or any(_matches(wanted, event_type) for wanted in self.event_types)


def _matches(wanted: str, event_type: str) -> bool:
    return wanted == event_type or (wanted.endswith("*") and event_type.startswith(wanted[:-1]))


class Attempt(msgspec.Struct, rename="camel", omit_defaults=True):
    """One attempt: an HTTP status and the first KB of the response, or the reason there was none.

    `url` is without its secrets. Headers are a line each, the first KB of them; of the request's those that
    can't be derived from the delivery (`attempt_record`).
    """

    at: datetime
    latency_ms: int
    fence: int
    status: int | None = None
    failure: str | None = None
    excerpt: str = ""
    url: str = ""
    request_headers: str = ""
    response_headers: str = ""


@document(
    "holdfast_deliveries/{id}",
    tenant="tenant_id",
    indexes=DELIVERY_INDEXES,
    lifecycle=Lifecycle(
        "status",
        # A delivery sent in a dispatcher's process, where it has room, is created as claimed by it.
        initial=["pending", "sending", "skipped"],
        moves={
            "pending": ["sending", "cancelled"],
            "sending": ["pending", "delivered", "failed", "dead"],
            "failed": ["sending", "pending", "cancelled"],
            "delivered": ["pending"],
            "dead": ["pending"],
            "skipped": ["pending"],
            "cancelled": ["pending"],
        },
    ),
    immutable=["event_id", "endpoint_id", "event_type", "body", "content_type", "occurred_at", "created_at"],
    retention=Retention("finished_at", after_s=FINISHED_KEPT_S),
    claim=DELIVERY_CLAIM,
    access=MEMBERS_READ,
    # Processes of an earlier release look for an event's deliveries by it, in an index of theirs.
    columns=["event_id"],
)
class Delivery(Document, rename="camel"):
    """One event for one endpoint, with all that sending it needs and its history.

    `next_attempt_at` is null where it is finished or waits its turn in an ordered queue.
    """

    id: str
    tenant_id: str = NO_TENANT
    event_id: str
    endpoint_id: str
    event_type: str
    body: bytes
    occurred_at: datetime
    created_at: datetime
    content_type: str = "application/json"
    status: DeliveryStatus = "pending"
    reason: str = ""
    attempt_count: int = 0
    replay_count: int = 0
    next_attempt_at: datetime | None = None
    last_attempt_at: datetime | None = None
    last_status: int | None = None
    finished_at: datetime | None = None
    fence: int = 0
    owner: str | None = None
    attempts: list[Attempt] = []
    attempt_chunks: int = 0
    trace: str = ""

    # The words that a service's own class stores for states of the outbox, such as {"dead": "dlq"}.
    state_names: ClassVar[Mapping[str, str]] = {}
    # The fields that a service's own class changes in `on_attempt`, stored with the attempt.
    attempt_fields: ClassVar[tuple[str, ...]] = ()

    def on_attempt(self, attempt: Attempt) -> None:
        """Called with each attempt as it is recorded; a service's own class may keep more of it."""

    @classmethod
    def stored_state(cls, state: str) -> Any:
        """Return the word that is stored for a state of the outbox; a word of the class's own is kept."""
        return cls.state_names.get(state, state)

    @property
    def state(self) -> DeliveryStatus:
        """The state as the outbox names it, whatever the class calls it."""
        if not self.state_names:
            return self.status
        named = next((state for state, word in self.state_names.items() if word == self.status), self.status)
        return cast(DeliveryStatus, named)


@document("holdfast_delivery_attempts/{id}", tenant="tenant_id", append_only=True,
          retention=Retention("last_at", after_s=2 * 365 * 86_400), access=MEMBERS_READ)  # fmt: skip
class AttemptChunk(Document, rename="camel"):
    """Attempts that no longer fit into their delivery, in order; the n-th chunk of a delivery."""

    id: str
    tenant_id: str = NO_TENANT
    delivery_id: str
    attempts: list[Attempt]
    last_at: datetime


def chunk_id(delivery: Delivery, number: int) -> str:
    """Return the id of a delivery's n-th chunk, counted from 1; outboxes may share the collection."""
    name = f"{schema_of(type(delivery)).path.names[0]}/{delivery.id}"
    return f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}{JOINT}{number}"


def rename_states(lifecycle: Lifecycle, names: Mapping[str, str]) -> Lifecycle:
    """Return a lifecycle whose states have other names.

    Example: `rename_states(lifecycle, {"dead": "dlq"})`
    """

    def words(states: Iterable[str]) -> list[str]:
        return [names.get(state, state) for state in states]

    moves = {names.get(state, state): words(to) for state, to in lifecycle.moves.items()}
    return Lifecycle(lifecycle.field, initial=words(lifecycle.initial), moves=moves)


def delivery_id(event_id: str, endpoint_id: str) -> str:
    """Return the id of the delivery of this event to this endpoint."""
    return f"{event_id}{JOINT}{endpoint_id}"


@document(
    "holdfast_dead_letters/{id}",
    tenant="tenant_id",
    indexes=DEAD_LETTER_INDEXES,
    access=MEMBERS_READ,
)
class DeadLetter(Document, rename="camel"):
    """Why a delivery is dead; has its delivery's id, so a delivery has at most one."""

    id: str
    tenant_id: str = NO_TENANT
    event_id: str
    endpoint_id: str
    event_type: str
    reason: str
    died_at: datetime
    deaths: int = 1
    resolved: bool = False
    resolved_at: datetime | None = None
    resolution: str = ""


@document(
    "holdfast_endpoint_notices/{id}",
    id=UlidId(),
    tenant="tenant_id",
    indexes=(*NOTICE_INDEXES, Index("-at")),
    append_only=True,
    retention=Retention("at", after_s=365 * 86_400),
    access=DEVELOPERS_READ,
)
class EndpointNotice(Document, rename="camel"):
    """A change of an endpoint's state, for operators: who or what made it, and why."""

    id: str = ""
    tenant_id: str = NO_TENANT
    endpoint_id: str
    kind: NoticeKind
    reason: str
    by: str
    at: datetime


@document("holdfast_fifo_lanes/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class FifoLane(OrderedQueueFields, rename="camel"):
    """The order of one endpoint's deliveries; has the endpoint's id."""


@document(
    "holdfast_endpoint_circuits/{id}",
    tenant="tenant_id",
    indexes=[Index("collection", "-probe_at"), Index("collection", "-probe_at", across="tenants")],
    retention=Retention("probe_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class EndpointCircuit(Document, rename="camel"):
    """An endpoint's open circuit, as a dispatcher last reported it: nothing is sent until `probe_at`.

    `collection` is the endpoint's: outboxes share these documents.
    """

    id: str
    tenant_id: str = NO_TENANT
    collection: str
    endpoint_id: str
    failures: int
    probe_at: datetime


class OutboxModels(msgspec.Struct, frozen=True, kw_only=True):
    """The document classes of an outbox; a service gives subclasses declared under its own names.

    `attempts` may stay the kit's: few deliveries have so many that they need it.
    """

    endpoint: type[Endpoint] = Endpoint
    delivery: type[Delivery] = Delivery
    dead_letter: type[DeadLetter] = DeadLetter
    notice: type[EndpointNotice] = EndpointNotice
    fifo_lane: type[FifoLane] = FifoLane
    attempts: type[AttemptChunk] = AttemptChunk

    def __post_init__(self) -> None:
        check_model(self.endpoint, Endpoint, path=("id",), indexes=ENDPOINT_INDEXES)
        check_model(self.delivery, Delivery, path=("id",), indexes=DELIVERY_INDEXES, claim=DELIVERY_CLAIM)
        for name in self.delivery.attempt_fields:
            schema_of(self.delivery).check_field(name)
        check_model(self.dead_letter, DeadLetter, path=("id",), indexes=DEAD_LETTER_INDEXES)
        check_model(self.notice, EndpointNotice, path=("id",), indexes=NOTICE_INDEXES, append_only=True)
        check_model(self.fifo_lane, FifoLane, path=("id",))
        check_model(self.attempts, AttemptChunk, path=("id",), append_only=True)

    @property
    def all(self) -> tuple[type[Document], ...]:
        own = (self.endpoint, self.delivery, self.dead_letter, self.notice, self.fifo_lane)
        if self.delivery is Delivery:
            return (*own, self.attempts, EndpointCircuit)
        return own if self.attempts is AttemptChunk else (*own, self.attempts)


OUTBOX_MODELS: Final = OutboxModels()


def every_status(models: OutboxModels) -> tuple[str, ...]:
    """Return the words that an outbox stores for the states of its deliveries."""
    return tuple(models.delivery.stored_state(state) for state in EVERY_STATUS)
