"""Routes for connections; never their tokens."""

from __future__ import annotations

from typing import Final

from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.connections.models import Status
from holdfast.operations import connections
from holdfast.operations.connections import ConnectionPage, ConnectionRow
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route

_CONNECTION: Final = "/connections/{connection_id:str}"
# A provider's client takes its time with its retries, and a refresh may wait for another's.
_PROVIDER_S: Final = 90


class RevokeRequest(RequestBody, frozen=True):
    """`reason` is shown with the connection."""

    reason: connections.RevokeReason = connections.REVOKED


@read_route("/connections", "admin", area="connections")
async def list_connections(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    status: FromQuery[Status | None] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ConnectionPage:
    """Connections, newest first."""
    return await connections.list_connections(runtime, tenant_id, status=status, limit=limit, cursor=cursor)


@read_route(_CONNECTION, "admin", area="connections")
async def get_connection(
    runtime: RuntimeDependency, tenant_id: TenantId, connection_id: FromPath[str]
) -> ConnectionRow:
    """One connection: its account, the scopes granted and refused, and its state."""
    return connections.row(await connections.get(runtime, tenant_id, connection_id))


@action_route(f"{_CONNECTION}/check", connections.check, time_limit_s=_PROVIDER_S)
async def check(runtime: RuntimeDependency, by: By, connection_id: FromPath[str]) -> ConnectionRow:
    """Refresh the grant to see whether it still works; tell the provider of an end that it missed."""
    return await connections.check(runtime, by, connection_id)


@action_route(f"{_CONNECTION}/revoke", connections.revoke, time_limit_s=_PROVIDER_S)
async def revoke(
    runtime: RuntimeDependency, by: By, connection_id: FromPath[str], data: JSONBody[RevokeRequest]
) -> ConnectionRow:
    """End the grant: here at once, then at the provider; its tokens are forgotten."""
    return await connections.revoke(runtime, by, connection_id, reason=data.reason)


ROUTES: Final = (list_connections, get_connection, check, revoke)
