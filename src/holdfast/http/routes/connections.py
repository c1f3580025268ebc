"""Routes for connections; never their tokens."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.connections.models import Status
from holdfast.operations import connections
from holdfast.operations.connections import KIT_CONNECTIONS, ConnectionPage, ConnectionRow, LinkRow
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route

_Collection = Annotated[
    str, QueryParameter(description="Where they are stored: the kit's own, or a service's.", max_length=200)
]
_CONNECTION: Final = "/connections/{connection_id:str}"
# A provider's client takes its time with its retries, and a refresh may wait for another's.
_PROVIDER_S: Final = 90


class RevokeRequest(RequestBody, frozen=True):
    """`reason` is shown with the connection; without `atProvider` it is ended here alone."""

    reason: connections.RevokeReason = connections.REVOKED
    at_provider: bool = True


class ReconnectRequest(RequestBody, frozen=True):
    """`returnPath` is the page of this site that the person comes back to."""

    return_path: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


class LinkRequest(ReconnectRequest, frozen=True, kw_only=True):
    """`purpose` is one that a service declares."""

    purpose: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


@read_route("/connections", "admin", area="connections", all_tenants=True)
async def list_connections(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    collection: _Collection = KIT_CONNECTIONS,
    status: FromQuery[Status | None] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ConnectionPage:
    """Connections, newest first."""
    return await connections.list_connections(
        runtime, tenant_id, collection, status=status, limit=limit, cursor=cursor
    )


@read_route(_CONNECTION, "admin", area="connections", all_tenants=True)
async def get_connection(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    connection_id: FromPath[str],
    collection: _Collection = KIT_CONNECTIONS,
) -> ConnectionRow:
    """One connection: its account, the scopes granted and refused, and its state."""
    stored = await connections.get(runtime, tenant_id, connection_id, collection)
    return connections.row(stored, collection)


@action_route("/connections/links", connections.create_link, status=201)
async def create_link(runtime: RuntimeDependency, by: By, data: JSONBody[LinkRequest]) -> LinkRow:
    """Make a link by which somebody connects an account, once, within ten minutes."""
    return await connections.create_link(runtime, by, data.purpose, return_path=data.return_path)


@action_route(f"{_CONNECTION}/reconnect", connections.reconnect, status=201)
async def reconnect(
    runtime: RuntimeDependency,
    by: By,
    connection_id: FromPath[str],
    data: JSONBody[ReconnectRequest],
    collection: _Collection = KIT_CONNECTIONS,
) -> LinkRow:
    """Make a link by which its owner connects the account again."""
    return await connections.reconnect(
        runtime, by, connection_id, collection=collection, return_path=data.return_path
    )


@action_route(f"{_CONNECTION}/check", connections.check, time_limit_s=_PROVIDER_S)
async def check(
    runtime: RuntimeDependency,
    by: By,
    connection_id: FromPath[str],
    collection: _Collection = KIT_CONNECTIONS,
) -> ConnectionRow:
    """Refresh the grant to see whether it still works; tell the provider of an end that it missed."""
    return await connections.check(runtime, by, connection_id, collection=collection)


@action_route(f"{_CONNECTION}/revoke", connections.revoke, time_limit_s=_PROVIDER_S)
async def revoke(
    runtime: RuntimeDependency,
    by: By,
    connection_id: FromPath[str],
    data: JSONBody[RevokeRequest],
    collection: _Collection = KIT_CONNECTIONS,
) -> ConnectionRow:
    """End the grant: here at once, then at the provider; its tokens are forgotten."""
    return await connections.revoke(
        runtime, by, connection_id, collection=collection, reason=data.reason, at_provider=data.at_provider
    )


ROUTES: Final = (list_connections, get_connection, create_link, reconnect, check, revoke)
