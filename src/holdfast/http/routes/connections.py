"""What people connected: how each grant stands, asking the provider, ending it. Never a token."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.errors import ConfigError, DecryptionError, ForbiddenError, NotFoundError, RetryLaterError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.audit import Audit, AuditEntry
from holdfast.kit.connections import Connection
from holdfast.kit.connections.models import Status
from holdfast.routing import Actor, Cursor, Limit, RequestBody, TenantId, action_route, read_route
from holdfast.runtime import Runtime
from holdfast.store import Query, QueryPage, Transaction

REASON_CHARACTERS_MAX: Final = 500
# A provider's client takes its time with its repeats, and a refresh may wait for another's.
_PROVIDER_S: Final = 90


class ConnectionRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A connection without its tokens, sealed or not."""

    id: str
    tenant_id: str
    provider: str
    account: str
    name: str
    status: Status
    reason: str
    scopes: list[str]
    refused: list[str]
    connected_at: datetime
    refreshed_at: datetime | None
    expires_at: datetime | None
    retry_at: datetime | None
    ended_at: datetime | None
    failures: int


class ConnectionPage(msgspec.Struct, frozen=True):
    items: list[ConnectionRow]
    cursor: str | None


class RevokeRequest(RequestBody, frozen=True):
    """`reason` is shown with the connection."""

    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS_MAX)] = "revoked by an operator"


def row(connection: Connection) -> ConnectionRow:
    return ConnectionRow(**{name: getattr(connection, name) for name in ConnectionRow.__struct_fields__})


async def listed(
    runtime: Runtime, tenant_id: str, *, status: str | None = None, limit: int = 50, cursor: str | None = None
) -> QueryPage[Connection]:
    """A tenant's connections, newest first."""
    query = Query(Connection) if status is None else Query(Connection).where("status", "==", status)
    query = query.order_by("-connected_at").limit(limit).after(cursor)
    return await runtime.store.tenant(tenant_id).query(query)


async def connection_of(runtime: Runtime, tenant_id: str, connection_id: str) -> Connection:
    found = await runtime.store.tenant(tenant_id).get(Connection, connection_id)
    if found is None:
        raise NotFoundError(f"no connection {connection_id!r}")
    return found.doc


async def revoke_connection(
    runtime: Runtime, connection: Connection, *, actor: str, reason: str
) -> Connection:
    """End the grant here and put that on record, in one commit; then tell the provider.

    `RetryLaterError` where it is ended here and the provider could not be told: checking it tells it later.
    """
    audit = Audit(runtime.store, connection.tenant_id)
    details = {"provider": connection.provider, "account": connection.account, "reason": reason}
    entry = AuditEntry(action="connection.revoked", actor=actor, subject=connection.id, details=details)

    async def end(tx: Transaction) -> Connection:
        ended, now = await runtime.connections.end(tx, connection.id, reason=reason)
        if now:
            await audit.add(tx, entry)
        return ended

    ended = await audit.transact(end)
    try:
        return await runtime.connections.notify_provider(ended)
    except (RetryLaterError, ForbiddenError, ConfigError, DecryptionError) as fault:
        raise RetryLaterError(
            f"ended here, but {connection.provider} could not be told ({fault.message}): check it later, "
            f"here or by `holdfast connections check {connection.id}`"
        ) from fault


@read_route("/connections", "admin", area="connections")
async def connections(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    status: FromQuery[Status | None] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ConnectionPage:
    """Connections, newest first."""
    page = await listed(runtime, tenant_id, status=status, limit=limit, cursor=cursor)
    return ConnectionPage([row(doc) for doc in page.docs], page.cursor)


@read_route("/connections/{connection_id:str}", "admin", area="connections")
async def connection(
    runtime: RuntimeDependency, tenant_id: TenantId, connection_id: FromPath[str]
) -> ConnectionRow:
    """One connection: whose it is, what was granted and what was not, and how it stands."""
    return row(await connection_of(runtime, tenant_id, connection_id))


@action_route(
    "/connections/{connection_id:str}/check", "admin", area="connections", action="check",
    time_limit_s=_PROVIDER_S,
)  # fmt: skip
async def check(
    runtime: RuntimeDependency, tenant_id: TenantId, connection_id: FromPath[str]
) -> ConnectionRow:
    """Ask the provider now whether the grant still works, by refreshing it; tell it of an end it missed."""
    known = await connection_of(runtime, tenant_id, connection_id)
    try:
        return row(await runtime.connections.check(known.id))
    except (ConfigError, DecryptionError) as fault:
        raise RetryLaterError(f"{known.provider} can't be asked: {fault.message}") from fault


@action_route(
    "/connections/{connection_id:str}/revoke", "admin", area="connections", action="revoke",
    time_limit_s=_PROVIDER_S,
)  # fmt: skip
async def revoke(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    connection_id: FromPath[str],
    data: JSONBody[RevokeRequest],
) -> ConnectionRow:
    """End the grant: here at once, then at the provider; its tokens are forgotten."""
    known = await connection_of(runtime, tenant_id, connection_id)
    return row(await revoke_connection(runtime, known, actor=actor, reason=data.reason))


ROUTES: Final = (connections, connection, check, revoke)
