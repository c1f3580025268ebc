"""Connections: list, show, check with the provider, revoke; never their tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from holdfast.errors import ConfigError, DecryptionError, ForbiddenError, NotFoundError, RetryLaterError
from holdfast.kit.connections import Connection
from holdfast.kit.connections.models import Status
from holdfast.operation import Operator, operation
from holdfast.runtime import Runtime
from holdfast.store import Query, Transaction

REASON_CHARACTERS_MAX: Final = 500
REVOKED: Final = "revoked by an operator"

RevokeReason = Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS_MAX)]


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


def row(connection: Connection) -> ConnectionRow:
    return msgspec.convert(connection, ConnectionRow, from_attributes=True)


async def list_connections(
    runtime: Runtime, tenant_id: str, *, status: str | None = None, limit: int = 50, cursor: str | None = None
) -> ConnectionPage:
    """A tenant's connections, newest first."""
    query = Query(Connection) if status is None else Query(Connection).where("status", "==", status)
    query = query.order_by("-connected_at").limit(limit).after(cursor)
    page = await runtime.store.tenant(tenant_id).query(query)
    return ConnectionPage([row(doc) for doc in page.docs], page.cursor)


async def get(runtime: Runtime, tenant_id: str, connection_id: str) -> Connection:
    """Return one connection as it is stored, or raise NotFoundError."""
    stored = await runtime.store.tenant(tenant_id).get(Connection, connection_id)
    if stored is None:
        raise NotFoundError(f"no connection {connection_id!r}")
    return stored.doc


@operation("connection.checked", area="connections", verb="check", needs="admin", subject="connection_id")
async def check(runtime: Runtime, by: Operator, connection_id: str) -> ConnectionRow:
    """Refresh the grant to see whether it still works; tell the provider of an end that it missed.

    The kit commits the refreshed tokens itself, so that no provider call is inside a transaction.
    """
    known = await get(runtime, by.tenant_id, connection_id)
    try:
        checked = await runtime.connections.check(known.id)
    except (ConfigError, DecryptionError) as fault:
        raise RetryLaterError(f"{known.provider} can't be asked: {fault.message}") from fault
    await by.append(details={"provider": checked.provider, "status": checked.status})
    return row(checked)


@operation("connection.revoked", area="connections", verb="revoke", needs="admin", subject="connection_id")
async def revoke(
    runtime: Runtime, by: Operator, connection_id: str, *, reason: str = REVOKED
) -> ConnectionRow:
    """End the grant here, then at the provider, and forget its tokens.

    `RetryLaterError` where it is ended here and the provider could not be told: checking it tells it later.
    """
    known = await get(runtime, by.tenant_id, connection_id)
    ended = known

    async def end(tx: Transaction) -> bool:
        nonlocal ended
        ended, now = await runtime.connections.end(tx, connection_id, reason=reason)
        return now

    await by.commit(end, details={"provider": known.provider, "account": known.account, "reason": reason})
    try:
        return row(await runtime.connections.notify_provider(ended))
    except (RetryLaterError, ForbiddenError, ConfigError, DecryptionError) as fault:
        raise RetryLaterError(
            f"ended here, but {known.provider} could not be told ({fault.message}): check it later, "
            f"here or by `holdfast connections check {known.id}`"
        ) from fault
