"""Routes for deliveries, over all outboxes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from litestar.params import FromPath, QueryParameter

from holdfast.clock import parse_instant
from holdfast.errors import InvalidError
from holdfast.http.dependencies import OutboxName, RuntimeDependency
from holdfast.idempotent_route import ATOMIC
from holdfast.kit.outbox.models import UNDELIVERED
from holdfast.operations import attempts, deliveries
from holdfast.operations.attempts import AttemptDetail
from holdfast.operations.deliveries import DeliveryDetail, DeliveryPage, DeliveryRow, ReplayResponse
from holdfast.routing import By, Cursor, Limit, TenantId, action_route, read_route
from holdfast.runtime import KIT_PART

_Instant = Annotated[
    str | None,
    QueryParameter(description="Such as 2026-11-16T21:00Z; UTC unless it has a zone.", max_length=40),
]
_DELIVERY: Final = "/deliveries/{outbox:str}/{delivery_id:str}"


@read_route("/deliveries", area="deliveries", all_tenants=True)
async def list_deliveries(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    outbox: OutboxName = KIT_PART,
    status: Annotated[
        list[str] | None,
        QueryParameter(description="By the outbox's own words, such as dlq. Default: undelivered."),
    ] = None,
    endpoint: Annotated[str | None, QueryParameter(max_length=200)] = None,
    since: _Instant = None,
    until: _Instant = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DeliveryPage:
    """Deliveries of one outbox, newest first; with `since` and `until`, those created between them."""
    return await deliveries.list_deliveries(
        runtime, tenant_id, outbox, statuses=status or UNDELIVERED, endpoint_id=endpoint,
        since=_instant("since", since), until=_instant("until", until), limit=limit, cursor=cursor,
    )  # fmt: skip


def _instant(name: str, value: str | None) -> datetime | None:
    try:
        return None if value is None else parse_instant(value)
    except ValueError as fault:
        raise InvalidError(f"{name} is {fault}", name) from None


@read_route(_DELIVERY, area="deliveries", all_tenants=True)
async def get_delivery(
    runtime: RuntimeDependency, tenant_id: TenantId, outbox: FromPath[str], delivery_id: FromPath[str]
) -> DeliveryDetail:
    """One delivery, with its payload and every attempt."""
    return await deliveries.detail(runtime, tenant_id, outbox, delivery_id)


@read_route(f"{_DELIVERY}/attempts/{{number:int}}", area="deliveries", all_tenants=True)
async def get_attempt(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    outbox: FromPath[str],
    delivery_id: FromPath[str],
    number: FromPath[int],
) -> AttemptDetail:
    """One attempt, the first is 1: the request as it was sent, the response, and a curl command."""
    return await attempts.get_attempt(runtime, tenant_id, outbox, delivery_id, number=number)


@action_route(f"{_DELIVERY}/replay", deliveries.replay, idempotent=ATOMIC)
async def replay_delivery(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], delivery_id: FromPath[str]
) -> ReplayResponse:
    """Send one again, under its old event id with its old body; `replayed` is false where it is in flight."""
    return await deliveries.replay(runtime, by, outbox, delivery_id)


@action_route(f"{_DELIVERY}/cancel", deliveries.cancel)
async def cancel_delivery(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], delivery_id: FromPath[str]
) -> DeliveryRow:
    """Cancel a delivery that waits, so that it is not sent; refused while it is being sent."""
    return await deliveries.cancel(runtime, by, outbox, delivery_id)


ROUTES: Final = (list_deliveries, get_delivery, get_attempt, replay_delivery, cancel_delivery)
