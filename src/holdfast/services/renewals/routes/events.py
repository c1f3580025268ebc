"""What became of what the RMS was told: deliveries and dead letters."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from holdfast.errors import InvalidError
from holdfast.kit.outbox import Report
from holdfast.routing import Actor, Cursor, Limit, RequestBody, RuntimeDependency, TenantId
from holdfast.services.renewals.queries.deliveries import (
    NOTE_MAX,
    RmsDeadLetterResponse,
    RmsDeliveryDetail,
    RmsDeliveryResponse,
    Status,
    Wait,
)
from holdfast.services.renewals.routes.dependencies import acts, reads, renewals_of

PropertyFilter = Annotated[
    str | None, QueryParameter(name="propertyId", max_length=100, description="Of this property alone.")
]


class RmsDeliveryPage(msgspec.Struct, frozen=True):
    items: list[RmsDeliveryResponse]
    cursor: str | None


class RmsDeadLetterPage(msgspec.Struct, frozen=True):
    items: list[RmsDeadLetterResponse]
    cursor: str | None


class RmsReplayResponse(msgspec.Struct, frozen=True):
    id: str
    replayed: bool


class RmsReplayRequest(RequestBody, frozen=True):
    """Which dead letters; without `dryRun: false` it is only told what would happen."""

    dry_run: bool = True
    property_id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class ResolveRequest(RequestBody, frozen=True):
    note: Annotated[str, Meta(min_length=1, max_length=NOTE_MAX)]


class Resolved(msgspec.Struct, frozen=True):
    id: str
    resolved: bool


@reads("/properties/{property_id:str}/deliveries")
async def deliveries(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    property_id: FromPath[str],
    status: Annotated[list[Status] | None, QueryParameter(description="May be repeated.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RmsDeliveryPage:
    """A property's deliveries, newest first.

    Example: `GET …/properties/property-0001/deliveries?status=dlq`
    """
    renewals = renewals_of(runtime)
    await renewals.portfolio(tenant_id).property(property_id)
    found = renewals.deliveries(tenant_id)
    return RmsDeliveryPage(*await found.find(property_id, statuses=status or (), limit=limit, cursor=cursor))


@reads("/deliveries")
async def waiting(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    wait: Annotated[
        Wait | None, QueryParameter(name="waiting", description="Due by now, or later; both unless given.")
    ] = None,
    event_id: Annotated[
        str | None, QueryParameter(name="eventId", max_length=1_000, description="Of this event alone.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RmsDeliveryPage:
    """What all properties still have to be told of, the next to be tried first; or an event's delivery.

    Example: `GET …/deliveries?waiting=due`
    """
    if event_id is not None and wait is not None:
        raise InvalidError("ask for an event or for what waits, not both", "eventId")
    found = renewals_of(runtime).deliveries(tenant_id)
    if event_id is not None:
        return RmsDeliveryPage(await found.of_event(event_id), None)
    return RmsDeliveryPage(*await found.waiting(wait, limit=limit, cursor=cursor))


@reads("/deliveries/{delivery_id:str}")
async def delivery(
    runtime: RuntimeDependency, tenant_id: TenantId, delivery_id: FromPath[str]
) -> RmsDeliveryDetail:
    """One delivery, with its payload and every attempt.

    Example: `GET …/deliveries/evt-property-0001-resident-0000001-2026-03-01T09:30:00Z~property-0001`
    """
    return await renewals_of(runtime).deliveries(tenant_id).get(delivery_id)


@reads("/dlq")
async def dead_letters(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    property_id: PropertyFilter = None,
    resolved: Annotated[bool, QueryParameter(description="Those that were dealt with.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RmsDeadLetterPage:
    """What was given up, with the reason, newest first.

    Example: `GET …/dlq?propertyId=property-0001`
    """
    renewals = renewals_of(runtime)
    if property_id is not None:
        await renewals.portfolio(tenant_id).property(property_id)
    found = renewals.deliveries(tenant_id)
    return RmsDeadLetterPage(
        *await found.dead_letters(property_id, resolved=resolved, limit=limit, cursor=cursor)
    )


@acts("/dlq/{letter_id:str}/replay", "developer", action="replay")
async def replay(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    letter_id: FromPath[str],
) -> RmsReplayResponse:
    """Put one out again, under its old event id with its old bytes; false where that was done since.

    Example: `POST …/dlq/evt-property-0001-resident-0000001-2026-03-01T09:30:00Z~property-0001/replay`
    """
    renewals = renewals_of(runtime)
    deliveries = renewals.deliveries(tenant_id)
    done = await renewals.noted(
        tenant_id, actor, "replayed", subject=letter_id, act=lambda tx: deliveries.replay(letter_id, tx)
    )
    return RmsReplayResponse(letter_id, done)


@acts("/dlq/replay", "developer", action="replay", time_limit_s=120.0)
async def replay_all(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    data: JSONBody[RmsReplayRequest],
) -> Report:
    """Put dead letters out again, at most a thousand at a time; says what it did, or would do.

    Example: `POST …/dlq/replay {"propertyId": "property-0001", "dryRun": false}`
    """
    renewals = renewals_of(runtime)
    if data.property_id is not None:
        await renewals.portfolio(tenant_id).property(data.property_id)
    report = await renewals.deliveries(tenant_id).replay_all(data.property_id, dry_run=data.dry_run)
    if report.changed:
        subject = data.property_id or "all properties"
        await renewals.note(
            tenant_id, actor, "replayed", subject=subject, details={"changed": report.changed}
        )
    return report


@acts("/dlq/{letter_id:str}/resolve", "developer", action="resolve")
async def resolve(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    letter_id: FromPath[str],
    data: JSONBody[ResolveRequest],
) -> Resolved:
    """Mark a dead letter as dealt with, without sending it.

    Example: `POST …/dlq/evt-…~property-0001/resolve {"note": "told them by telephone"}`
    """
    renewals = renewals_of(runtime)
    await renewals.deliveries(tenant_id).resolve(letter_id, data.note)
    await renewals.note(tenant_id, actor, "resolved", subject=letter_id, details={"note": data.note})
    return Resolved(letter_id, True)


ROUTES: Final = (deliveries, waiting, delivery, dead_letters, replay, replay_all, resolve)
