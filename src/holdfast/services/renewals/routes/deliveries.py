"""Deliveries and dead letters under this service's own paths and terms; the rest is the platform's."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from holdfast.idempotent_route import ATOMIC, REPEATABLE
from holdfast.kit.outbox import Attempt, Report
from holdfast.projection import project
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route
from holdfast.services.renewals.models import DeliveryState
from holdfast.services.renewals.models.deliveries import RmsDeliveryStatus
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.services.renewals.routes.dependencies import Operations, PropertyFilter, read_route


class RmsDeliveryRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    event_id: str
    event_type: str
    property_id: str
    resident_id: str
    status: RmsDeliveryStatus
    reason: str
    attempt_count: int
    replay_count: int
    created_at: datetime
    last_attempt_at: datetime | None
    next_retry_at: datetime | None
    last_status: int | None
    rms_response: str | None
    finished_at: datetime | None


class RmsDeliveryDetail(RmsDeliveryRow, frozen=True, kw_only=True, rename="camel"):
    """A delivery with its payload, exactly as it is sent, and every attempt."""

    payload: str
    attempts: list[Attempt]


R = TypeVar("R", bound=RmsDeliveryRow)


class RmsDeliveryPage(msgspec.Struct, frozen=True):
    items: list[RmsDeliveryRow]
    cursor: str | None


class RmsDeadLetterRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a delivery is dead; has its delivery's id."""

    id: str
    event_id: str
    event_type: str
    property_id: str
    reason: str
    created_at: datetime
    deaths: int
    resolved: bool
    resolved_at: datetime | None
    resolution: str


class RmsDeadLetterPage(msgspec.Struct, frozen=True):
    items: list[RmsDeadLetterRow]
    cursor: str | None


class RmsReplayResponse(msgspec.Struct, frozen=True):
    id: str
    replayed: bool


class RmsReplayRequest(RequestBody, frozen=True):
    """Which dead letters; `dryRun: false` sends them."""

    dry_run: bool = True
    property_id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


def delivery_row(doc: DeliveryState, cls: type[R], **more: Any) -> R:
    return project(doc, cls, property_id=doc.endpoint_id, next_retry_at=doc.next_attempt_at, **more)


@read_route("/properties/{property_id:str}/deliveries")
async def deliveries(
    operations: Operations,
    tenant_id: TenantId,
    property_id: FromPath[str],
    status: Annotated[list[RmsDeliveryStatus] | None, QueryParameter(description="May be repeated.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RmsDeliveryPage:
    """A property's deliveries, newest first.

    Example: `GET …/properties/property-0001/deliveries?status=dlq`
    """
    await operations.portfolio(tenant_id).property(property_id)
    page = await operations.deliveries(tenant_id).page(property_id, status or (), limit=limit, cursor=cursor)
    return RmsDeliveryPage([delivery_row(one, RmsDeliveryRow) for one in page.docs], page.cursor)


@read_route("/deliveries/{delivery_id:str}")
async def delivery(
    operations: Operations, tenant_id: TenantId, delivery_id: FromPath[str]
) -> RmsDeliveryDetail:
    """One delivery, with its payload and every attempt.

    Example: `GET …/deliveries/evt-property-0001-resident-0000001-2026-03-01T09:30:00Z~property-0001`
    """
    store = operations.store(tenant_id)
    doc = (await get_or_404(store, DeliveryState, delivery_id, what="delivery")).doc
    attempts = await operations.outbox(tenant_id).attempts(doc)
    return delivery_row(doc, RmsDeliveryDetail, payload=doc.body.decode(errors="replace"), attempts=attempts)


@read_route("/dlq")
async def dead_letters(
    operations: Operations,
    tenant_id: TenantId,
    property_id: PropertyFilter = None,
    resolved: Annotated[bool, QueryParameter(description="Those that were resolved.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RmsDeadLetterPage:
    """Dead letters with their reasons, newest first.

    Example: `GET …/dlq?propertyId=property-0001`
    """
    if property_id is not None:
        await operations.portfolio(tenant_id).property(property_id)
    page = await operations.outbox(tenant_id).dead_letters(
        resolved=resolved, endpoint_id=property_id, limit=limit, cursor=cursor
    )
    rows = [
        project(one, RmsDeadLetterRow, property_id=one.endpoint_id, created_at=one.died_at)
        for one in page.docs
    ]
    return RmsDeadLetterPage(rows, page.cursor)


@action_route("/dlq/{letter_id:str}/replay", Renewals.replay_dead_letter, idempotent=ATOMIC)
async def replay(operations: Operations, by: By, letter_id: FromPath[str]) -> RmsReplayResponse:
    """Send one again, under its old event id with its old bytes; false where that was done since.

    Example: `POST …/dlq/evt-property-0001-resident-0000001-2026-03-01T09:30:00Z~property-0001/replay`
    """
    return RmsReplayResponse(letter_id, await operations.replay_dead_letter(by, letter_id))


@action_route("/dlq/replay", Renewals.replay_dead_letters, time_limit_s=120.0, idempotent=REPEATABLE)
async def replay_all(operations: Operations, by: By, data: JSONBody[RmsReplayRequest]) -> Report:
    """Send dead letters again, at most a thousand at a time; says what it did, or would do.

    Example: `POST …/dlq/replay {"propertyId": "property-0001", "dryRun": false}`
    """
    return await operations.replay_dead_letters(by, property_id=data.property_id, dry_run=data.dry_run)


ROUTES: Final = (deliveries, delivery, dead_letters, replay, replay_all)
