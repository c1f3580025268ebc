"""Deliveries of every outbox: list, show, replay, cancel."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import BadIdError, ConflictError, NotFoundError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.outbox import Attempt, Delivery, Selection
from holdfast.kit.outbox.circuits import hold_reasons
from holdfast.kit.outbox.models import UNDELIVERED
from holdfast.operation import Operator, operation
from holdfast.operations.outboxes import (
    deliveries_in,
    endpoint_tenant,
    endpoint_tenants,
    outbox_named,
    own_fields,
)
from holdfast.projection import project
from holdfast.runtime import KIT_PART, Runtime
from holdfast.store import Transaction


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A delivery; `hold_reason` says why one that waits is not sent at `next_attempt_at`."""

    id: str
    tenant_id: str
    outbox: str
    event_id: str
    event_type: str
    endpoint_id: str
    status: str
    reason: str
    attempt_count: int
    replay_count: int
    created_at: datetime
    next_attempt_at: datetime | None
    last_status: int | None
    finished_at: datetime | None
    hold_reason: str = ""


class DeliveryDetail(DeliveryRow, frozen=True, kw_only=True, rename="camel"):
    """A delivery with every attempt; `body` is text, or base64 where it is none, and `about` holds the fields
    that the service's own class adds."""

    occurred_at: datetime
    content_type: str
    body: str
    body_is_base64: bool
    attempts: list[Attempt]
    about: dict[str, Any]


class DeliveryPage(msgspec.Struct, frozen=True):
    items: list[DeliveryRow]
    cursor: str | None


class ReplayResponse(msgspec.Struct, frozen=True):
    """`replayed` is False where the delivery is in flight already."""

    id: str
    replayed: bool


async def _rows(
    runtime: Runtime, tenant_id: str, outbox: str, found: Sequence[Delivery]
) -> list[DeliveryRow]:
    """Deliveries as every surface shows them."""
    models, store = outbox_named(runtime, outbox).models, runtime.store_of(tenant_id)
    holds = await hold_reasons(store, found, models=models, now=runtime.clock.now())
    return [project(one, DeliveryRow, outbox=outbox, hold_reason=holds.get(one.id, "")) for one in found]


async def detail(runtime: Runtime, tenant_id: str, outbox: str, delivery_id: str) -> DeliveryDetail:
    """One delivery with its payload and every attempt, or NotFoundError."""
    delivery = await get(runtime, tenant_id, outbox, delivery_id)
    attempts = await deliveries_in(runtime, tenant_id, outbox).attempts(delivery)
    body, coded = payload_text(delivery.body)
    (row,) = await _rows(runtime, tenant_id, outbox, [delivery])
    own = {"outbox": outbox, "attempts": attempts, "about": own_fields(delivery, Delivery)}
    return project(
        delivery, DeliveryDetail, hold_reason=row.hold_reason, body=body, body_is_base64=coded, **own
    )


def payload_text(body: bytes) -> tuple[str, bool]:
    """The body as text, and whether that is base64 because the body is none."""
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), True


async def get(runtime: Runtime, tenant_id: str, outbox: str, delivery_id: str) -> Delivery:
    """Return one delivery as it is stored, or raise NotFoundError."""
    models = outbox_named(runtime, outbox).models
    found = await runtime.store_of(tenant_id).get(models.delivery, delivery_id)
    if found is None:
        raise NotFoundError(f"no delivery {delivery_id!r}")
    return found.doc


async def get_row(runtime: Runtime, tenant_id: str, outbox: str, delivery_id: str) -> DeliveryRow:
    """One delivery as lists show it, or NotFoundError."""
    (row,) = await _rows(runtime, tenant_id, outbox, [await get(runtime, tenant_id, outbox, delivery_id)])
    return row


async def list_deliveries(
    runtime: Runtime,
    tenant_id: str,
    outbox: str = KIT_PART,
    *,
    statuses: Sequence[str] = UNDELIVERED,
    endpoint_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> DeliveryPage:
    """Deliveries of one outbox, newest first; with `since` and `until`, those created between them."""
    selection = Selection(statuses=statuses, endpoint_id=endpoint_id, since=since, until=until)
    of = await endpoint_tenant(runtime, tenant_id, outbox, endpoint_id)
    if of is None:
        return DeliveryPage([], None)
    page = await deliveries_in(runtime, of, outbox).find(selection, limit=limit, cursor=cursor)
    return DeliveryPage(await _rows(runtime, of, outbox, page.docs), page.cursor)


async def find_by_id(runtime: Runtime, tenant_id: str, outbox: str, wanted: str) -> list[DeliveryRow]:
    """The delivery with this id, or those of the event with it."""
    try:
        found = [await get(runtime, tenant_id, outbox, wanted)]
    except BadIdError:
        return []
    except NotFoundError:
        tenants = await endpoint_tenants(runtime, outbox) if tenant_id == ALL_TENANTS else [tenant_id]
        found = [one for of in tenants for one in await deliveries_in(runtime, of, outbox).of_event(wanted)]
    return await _rows(runtime, tenant_id, outbox, found)


@operation("delivery.replayed", area="deliveries", verb="replay", needs="admin", subject="delivery_id")
async def replay(runtime: Runtime, by: Operator, outbox: str, delivery_id: str) -> ReplayResponse:
    """Send one again, under its old event id with its old body."""
    deliveries = deliveries_in(runtime, by.tenant_id, outbox)
    done = await by.commit(lambda tx: deliveries.replay_one(delivery_id, tx), details={"outbox": outbox})
    return ReplayResponse(delivery_id, done)


@operation("delivery.cancelled", area="deliveries", verb="cancel", needs="admin", subject="delivery_id")
async def cancel(runtime: Runtime, by: Operator, outbox: str, delivery_id: str) -> DeliveryRow:
    """Cancel a delivery that waits, so that it is not sent; it can be replayed."""
    deliveries = deliveries_in(runtime, by.tenant_id, outbox)

    async def act(tx: Transaction) -> None:
        if not await deliveries.cancel_one(delivery_id, tx):
            status = (await get(runtime, by.tenant_id, outbox, delivery_id)).status
            raise ConflictError(f"delivery {delivery_id} is {status}; only one that waits can be cancelled")

    await by.commit(act, details={"outbox": outbox})
    return await get_row(runtime, by.tenant_id, outbox, delivery_id)
