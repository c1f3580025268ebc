"""Where each property's events go."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.routing import Actor, Cursor, Limit, RequestBody, RuntimeDependency, TenantId
from holdfast.services.renewals.endpoints import REASON_MAX, Act, EndpointRequest, EndpointResponse, shown
from holdfast.services.renewals.routes.dependencies import acts, reads, renewals_of, sets


class EndpointPage(msgspec.Struct, frozen=True):
    items: list[EndpointResponse]
    cursor: str | None


class EndpointAct(RequestBody, frozen=True):
    act: Act
    reason: Annotated[str, Meta(max_length=REASON_MAX)] = ""


@reads("/endpoints", "developer")
async def endpoints(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EndpointPage:
    """Where events go, newest first; never with a secret.

    Example: `GET …/endpoints`
    """
    return EndpointPage(*await renewals_of(runtime).endpoints(tenant_id).all(limit=limit, cursor=cursor))


@reads("/properties/{property_id:str}/endpoint", "developer")
async def endpoint(
    runtime: RuntimeDependency, tenant_id: TenantId, property_id: FromPath[str]
) -> EndpointResponse:
    """Where a property's events go.

    Example: `GET …/properties/property-0001/endpoint`
    """
    return shown(await renewals_of(runtime).endpoints(tenant_id).get(property_id))


@sets("/properties/{property_id:str}/endpoint", "admin", action="configure")
async def set_endpoint(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    property_id: FromPath[str],
    data: JSONBody[EndpointRequest],
) -> EndpointResponse:
    """Say where a property's events go; a new endpoint's secret is shown this once.

    Example: `PUT …/properties/property-0001/endpoint {"url": "https://rms.example/webhooks/1"}`
    """
    renewals = renewals_of(runtime)
    endpoints = renewals.endpoints(tenant_id)
    return await renewals.noted(
        tenant_id, actor, "endpoint_set", subject=property_id, details={"url": data.url},
        act=lambda tx: endpoints.set(property_id, data, tx=tx),
    )  # fmt: skip


@acts("/properties/{property_id:str}/endpoint/rotate", "admin", action="configure")
async def rotate(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    property_id: FromPath[str],
) -> EndpointResponse:
    """A fresh secret, shown this once; the old one signs too for a day.

    Example: `POST …/properties/property-0001/endpoint/rotate`
    """
    renewals = renewals_of(runtime)
    endpoints = renewals.endpoints(tenant_id)
    return await renewals.noted(
        tenant_id, actor, "secret_rotated", subject=property_id,
        act=lambda tx: endpoints.rotate(property_id, tx),
    )  # fmt: skip


@acts("/properties/{property_id:str}/endpoint/act", "admin", action="configure")
async def switch(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    property_id: FromPath[str],
    data: JSONBody[EndpointAct],
) -> EndpointResponse:
    """Pause, resume, disable or enable a property's endpoint.

    Example: `POST …/properties/property-0001/endpoint/act {"act": "pause", "reason": "maintenance"}`
    """
    renewals = renewals_of(runtime)
    endpoints = renewals.endpoints(tenant_id)
    done, changed = await endpoints.act(property_id, data.act, reason=data.reason, by=actor)
    if changed:
        await renewals.note(tenant_id, actor, f"endpoint_{data.act}", subject=property_id)
    return done


ROUTES: Final = (endpoints, endpoint, set_endpoint, rotate, switch)
