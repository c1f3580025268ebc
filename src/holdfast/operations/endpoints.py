"""Endpoints of every outbox: list, show, create, update, switch, rotate the secret, test, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Protocol, get_args

import msgspec
from msgspec import Meta

from holdfast import ids
from holdfast.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.outbox import (
    Deliveries,
    Endpoint,
    Endpoints,
    EndpointSecrets,
    Event,
    Outbox,
    OutboxModels,
    Rate,
    Report,
    Selection,
    new_secret,
)
from holdfast.kit.outbox.circuits import circuit_id, circuit_of, describe, open_circuits
from holdfast.kit.outbox.deliveries import CANCELLABLE, skipped_while_disabled
from holdfast.kit.outbox.endpoint_secrets import OVERLAP_S
from holdfast.kit.outbox.models import EndpointCircuit, EndpointStatus, NoticeKind
from holdfast.net import SendFailure
from holdfast.operation import Operator, operation
from holdfast.operations import deliveries
from holdfast.operations.deliveries import DeliveryRow
from holdfast.operations.outboxes import deliveries_in, outbox_named
from holdfast.projection import project
from holdfast.runtime import KIT_PART, Runtime
from holdfast.store import Query, Snapshot, Store, Transaction, put
from holdfast.store import create as create_write
from holdfast.store import delete as delete_write

TEST_EVENT: Final = "holdfast.test"
RATE_MAX: Final = 100_000
CONCURRENCY_MAX: Final = 1_000
EVENT_TYPES_MAX: Final = 100
REASON_CHARACTERS_MAX: Final = 500
NOTICES_SHOWN: Final = 50
REPLAY_MAX: Final = 1_000
SKIPPED_READ_MAX: Final = 500

# A whole type, or the start of a family of types before an asterisk.
EventType = Annotated[str, Meta(max_length=200, pattern=r"^[^\s*]*[^\s]$")]
Reason = Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)]


class EndpointSettings(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Where events go, which, and how fast; without `event_types`, those that the outbox is for."""

    url: Annotated[str, Meta(min_length=8, max_length=2_000)]
    event_types: Annotated[list[EventType], Meta(max_length=EVENT_TYPES_MAX)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = 10
    rate_per_s: Annotated[float, Meta(gt=0, le=RATE_MAX)] | None = None


class NewEndpoint(EndpointSettings, frozen=True, kw_only=True, rename="camel"):
    """Settings of an endpoint, its id (generated where none is given), and whether it keeps order."""

    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    fifo: bool = False


class EndpointRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An endpoint and the number of its secrets; `secret` is shown once, when it is made."""

    id: str
    tenant_id: str
    outbox: str
    url: str
    status: EndpointStatus
    reason: str
    event_types: list[str]
    concurrency: int
    rate_per_s: float | None
    fifo: bool
    secrets: int
    created_at: datetime
    secret: str | None = None


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change of the endpoint's state: what, who or what made it, why, when."""

    kind: NoticeKind
    reason: str
    by: str
    at: datetime


class CircuitRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An open circuit: nothing is sent to the endpoint until the next probe; `summary` says so in words."""

    outbox: str
    tenant_id: str
    endpoint_id: str
    failures: int
    next_probe_at: datetime
    summary: str


class EndpointDetail(EndpointRow, frozen=True, kw_only=True, rename="camel"):
    """An endpoint with its newest notices, and its circuit where that is open."""

    notices: list[NoticeRow]
    circuit: CircuitRow | None = None


class EndpointPage(msgspec.Struct, frozen=True):
    items: list[EndpointRow]
    cursor: str | None


class DeletedEndpoint(msgspec.Struct, frozen=True):
    id: str
    cancelled: int


def row(endpoint: Endpoint, outbox: str, *, secret: str | None = None) -> EndpointRow:
    rate, count = endpoint.rate.per_s if endpoint.rate else None, len(endpoint.secrets)
    return project(endpoint, EndpointRow, outbox=outbox, rate_per_s=rate, secrets=count, secret=secret)


async def get(runtime: Runtime, tenant_id: str, outbox: str, endpoint_id: str) -> EndpointDetail:
    """One endpoint with its newest notices, or NotFoundError."""
    models, store = outbox_named(runtime, outbox).models, runtime.store_of(tenant_id)
    endpoint = (await _require(store, models, endpoint_id)).doc
    query = Query(models.notice).where("endpoint_id", "==", endpoint_id).order_by("-at")
    own = runtime.store.tenant(endpoint.tenant_id)
    page, circuit = await own.query(query.limit(NOTICES_SHOWN)), await circuit_of(own, endpoint)
    notices = [project(one, NoticeRow) for one in page.docs]
    state = None if circuit is None else _circuit_row(circuit, outbox, runtime.clock.now())
    return project(row(endpoint, outbox), EndpointDetail, notices=notices, circuit=state)


def _circuit_row(circuit: EndpointCircuit, outbox: str, now: datetime) -> CircuitRow:
    summary = describe(circuit, now)
    return project(circuit, CircuitRow, outbox=outbox, next_probe_at=circuit.probe_at, summary=summary)


async def list_circuits(
    runtime: Runtime, tenant_id: str, outbox: str = KIT_PART, *, limit: int = 50
) -> list[CircuitRow]:
    """Open circuits of one outbox."""
    now = runtime.clock.now()
    query = open_circuits(outbox_named(runtime, outbox).models.endpoint, now).limit(limit)
    return [_circuit_row(one, outbox, now) for one in (await runtime.store_of(tenant_id).query(query)).docs]


async def list_endpoints(
    runtime: Runtime,
    tenant_id: str,
    outbox: str = KIT_PART,
    *,
    status: EndpointStatus | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> EndpointPage:
    """Endpoints of one outbox, newest first."""
    query = Query(outbox_named(runtime, outbox).models.endpoint)
    if status is not None:
        query = query.where("status", "==", status)
    elif tenant_id == ALL_TENANTS:
        query = query.where("status", "in", get_args(EndpointStatus))
    page = await runtime.store_of(tenant_id).query(query.order_by("-created_at").limit(limit).after(cursor))
    return EndpointPage([row(doc, outbox) for doc in page.docs], page.cursor)


@operation("endpoint.created", area="endpoints", verb="create", needs="admin")
async def create(runtime: Runtime, by: Operator, outbox: str, new: NewEndpoint) -> EndpointRow:
    """Create an endpoint with a fresh secret, which is shown this once."""
    part, rate = outbox_named(runtime, outbox), _checked_rate(runtime, new)
    endpoint = part.models.endpoint(
        id=new.id or ids.ulid(), tenant_id=by.tenant_id, url=new.url, created_at=runtime.clock.now(),
        concurrency=new.concurrency, rate=rate, fifo=new.fifo,
        event_types=list(part.event_types) if new.event_types is None else new.event_types,
    )  # fmt: skip
    secret = new_secret()
    endpoint.secrets = [EndpointSecrets(runtime.vault).seal(endpoint, secret)]

    async def act(tx: Transaction) -> None:
        if await tx.get(part.models.endpoint, endpoint.id) is not None:
            raise AlreadyExistsError(f"there is an endpoint {endpoint.id!r} already; update it instead")
        if part.check_endpoint is not None:
            await part.check_endpoint(tx, endpoint)
        tx.write(create_write(endpoint))

    await by.commit(act, subject=endpoint.id, details={"outbox": outbox, "url": endpoint.url})
    return row(endpoint, outbox, secret=secret)


@operation("endpoint.updated", area="endpoints", verb="update", needs="admin", subject="endpoint_id")
async def update(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, settings: EndpointSettings
) -> EndpointRow:
    """Change where an endpoint sends, what and how fast; its id, order, state and secrets stay."""
    part, rate = outbox_named(runtime, outbox), _checked_rate(runtime, settings)

    async def act(tx: Transaction) -> Endpoint:
        endpoint = (await _require(tx, part.models, endpoint_id)).doc
        endpoint.url, endpoint.concurrency = settings.url, settings.concurrency
        endpoint.event_types = list(
            part.event_types if settings.event_types is None else settings.event_types
        )
        # The same rate may have a burst of its own.
        if endpoint.rate is None or endpoint.rate.per_s != settings.rate_per_s:
            endpoint.rate = rate
        tx.write(put(endpoint))
        return endpoint

    return row(await by.commit(act, details={"outbox": outbox, "url": settings.url}), outbox)


@operation("endpoint.paused", area="endpoints", verb="pause", needs="admin", subject="endpoint_id")
async def pause(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, reason: str = ""
) -> EndpointRow:
    """Send nothing until resumed; new deliveries wait."""
    return await _change(runtime, by, outbox, endpoint_id, kind="paused", reason=reason)


@operation("endpoint.resumed", area="endpoints", verb="resume", needs="admin", subject="endpoint_id")
async def resume(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, reason: str = ""
) -> EndpointRow:
    """Send again, and what has waited."""
    return await _change(runtime, by, outbox, endpoint_id, kind="resumed", reason=reason)


@operation("endpoint.disabled", area="endpoints", verb="disable", needs="admin", subject="endpoint_id")
async def disable(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, reason: str = ""
) -> EndpointRow:
    """Take no more events: new ones are recorded as skipped; open deliveries wait."""
    return await _change(runtime, by, outbox, endpoint_id, kind="disabled", reason=reason)


@operation("endpoint.enabled", area="endpoints", verb="enable", needs="admin", subject="endpoint_id")
async def enable(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, reason: str = ""
) -> EndpointRow:
    """Take events and send again."""
    return await _change(runtime, by, outbox, endpoint_id, kind="enabled", reason=reason)


class StateChange(Protocol):
    async def __call__(
        self, runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, reason: str = ""
    ) -> EndpointRow: ...


async def _change(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, kind: NoticeKind, reason: str
) -> EndpointRow:
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidError(f"a reason has at most {REASON_CHARACTERS_MAX} characters", "reason")
    models, store = outbox_named(runtime, outbox).models, runtime.store.tenant(by.tenant_id)
    endpoints = Endpoints(store, models=models)
    await by.commit(
        lambda tx: endpoints.change(endpoint_id, kind, tx, reason=reason, by=by.actor),
        details={"outbox": outbox, "reason": reason}, action=f"endpoint.{kind}",
    )  # fmt: skip
    return row((await _require(store, models, endpoint_id)).doc, outbox)


@operation("endpoint.secret_rotated", area="endpoints", verb="rotate", needs="admin", subject="endpoint_id")
async def rotate(
    runtime: Runtime, by: Operator, outbox: str, endpoint_id: str, *, end_others: bool = False
) -> EndpointRow:
    """Give an endpoint a fresh secret, shown this once; the old one signs too for a day.

    With `end_others` every other secret ends at once: for one that has leaked.
    """
    models, secret = outbox_named(runtime, outbox).models, new_secret()
    overlap_s = 0.0 if end_others else OVERLAP_S

    async def act(tx: Transaction) -> Endpoint:
        endpoint = (await _require(tx, models, endpoint_id)).doc
        endpoint.secrets = EndpointSecrets(runtime.vault).rotated(
            endpoint, secret, now=runtime.clock.now(), overlap_s=overlap_s
        )
        tx.write(put(endpoint))
        return endpoint

    details = {"outbox": outbox, "endOthers": end_others}
    return row(await by.commit(act, details=details), outbox, secret=secret)


@operation("endpoint.tested", area="endpoints", verb="test", needs="admin", subject="endpoint_id")
async def send_test(runtime: Runtime, by: Operator, outbox: str, endpoint_id: str) -> DeliveryRow:
    """Send a `holdfast.test` event to this endpoint alone, whatever types it takes."""
    part, store = outbox_named(runtime, outbox), runtime.store.tenant(by.tenant_id)
    body = {"type": TEST_EVENT, "endpointId": endpoint_id, "sentAt": runtime.clock.now()}
    event = Event(type=TEST_EVENT, body=msgspec.json.encode(body), fields=part.test_fields)

    async def act(tx: Transaction) -> str:
        endpoint = (await _require(tx, part.models, endpoint_id)).doc
        if endpoint.status == "disabled":
            raise ConflictError(f"endpoint {endpoint_id} is disabled; enable it to send to it")
        endpoint.event_types = []
        (delivery_id,) = await Outbox(store, models=part.models).add(tx, event, [endpoint])
        return delivery_id

    delivery_id = await by.commit(act, details=lambda id: {"outbox": outbox, "delivery": id})
    return await deliveries.get_row(runtime, by.tenant_id, outbox, delivery_id)


class SkippedCount(msgspec.Struct, frozen=True):
    """How many deliveries were skipped while the endpoint was disabled; there may be more than were read."""

    count: int
    may_be_more: bool


async def skipped_count(runtime: Runtime, tenant_id: str, outbox: str, endpoint_id: str) -> SkippedCount:
    """What an endpoint missed while it was disabled, among the oldest that were skipped."""
    page = await deliveries_in(runtime, tenant_id, outbox).find(
        skipped_while_disabled(endpoint_id), limit=SKIPPED_READ_MAX
    )
    return SkippedCount(len(page.items), page.cursor is not None)


@operation("endpoint.skipped_replayed", area="endpoints", verb="replay", needs="admin", subject="endpoint_id")
async def replay_skipped(
    runtime: Runtime,
    by: Operator,
    outbox: str,
    endpoint_id: str,
    *,
    dry_run: bool = True,
    limit: int | None = REPLAY_MAX,
) -> Report:
    """Send what was skipped while the endpoint was disabled, at most `limit`.

    Each commit has its audit event. Events of types that the endpoint does not take stay skipped.
    """
    models, store = outbox_named(runtime, outbox).models, runtime.store.tenant(by.tenant_id)
    endpoint = (await _require(store, models, endpoint_id)).doc
    if endpoint.status == "disabled" and not dry_run:
        raise ConflictError(f"endpoint {endpoint_id} is disabled; enable it, then replay what was skipped")

    async def record(tx: Transaction, count: int) -> None:
        await by.record(tx, details={"outbox": outbox, "changed": count})

    return await Deliveries(store, models=models).replay(
        skipped_while_disabled(endpoint_id), dry_run=dry_run, limit=limit, also=record
    )


@operation("endpoint.deleted", area="endpoints", verb="delete", needs="admin", subject="endpoint_id")
async def delete(runtime: Runtime, by: Operator, outbox: str, endpoint_id: str) -> DeletedEndpoint:
    """Disable an endpoint, cancel what waits for it, then delete it; refused while something is being sent.

    Its dead letters and finished deliveries stay.
    """
    models, store = outbox_named(runtime, outbox).models, runtime.store.tenant(by.tenant_id)
    await _change(runtime, by, outbox, endpoint_id, kind="disabled", reason="to be deleted")

    async def record(tx: Transaction, count: int) -> None:
        await by.record(tx, details={"outbox": outbox, "cancelled": count}, action="deliveries.cancelled")

    waiting = Selection(statuses=CANCELLABLE, endpoint_id=endpoint_id)
    report = await Deliveries(store, models=models).cancel(waiting, dry_run=False, also=record)
    sending = Query(models.delivery).where("endpoint_id", "==", endpoint_id).where("status", "==", "sending")
    if await store.count(sending.order_by("-created_at")):
        raise ConflictError(
            f"a delivery to endpoint {endpoint_id} is being sent; it is disabled now: delete it in a minute"
        )

    async def act(tx: Transaction) -> None:
        await _require(tx, models, endpoint_id)
        lane = await tx.get(models.fifo_lane, endpoint_id)
        tx.write(delete_write(models.endpoint, endpoint_id))
        tx.write(delete_write(EndpointCircuit, circuit_id(models.endpoint, endpoint_id)))
        if lane is not None:
            tx.write(delete_write(models.fifo_lane, endpoint_id))

    await by.commit(act, details={"outbox": outbox, "cancelled": report.changed})
    return DeletedEndpoint(endpoint_id, report.changed)


async def _require(source: Store | Transaction, models: OutboxModels, endpoint_id: str) -> Snapshot[Endpoint]:
    found = await source.get(models.endpoint, endpoint_id)
    if found is None:
        raise NotFoundError(f"no endpoint {endpoint_id!r}")
    return found


def _checked_rate(runtime: Runtime, settings: EndpointSettings) -> Rate | None:
    """Raise InvalidError for settings that no event could be sent with; return the rate they mean."""
    try:
        # Also for those that no decoder has checked, as from the command line.
        msgspec.convert(msgspec.to_builtins(settings), type(settings))
        runtime.address_guard.check(settings.url)
    except msgspec.ValidationError as fault:
        raise InvalidError(str(fault)) from None
    except SendFailure as failure:
        raise InvalidError(failure.message, "url") from None
    if settings.rate_per_s is None:
        return None
    return Rate(settings.rate_per_s)
