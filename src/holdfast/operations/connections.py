"""Connections: sign-in links, list, show, check with the provider, revoke; never their tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from holdfast.errors import ConfigError, DecryptionError, ForbiddenError, NotFoundError, RetryLaterError
from holdfast.kit.access.authorization import PUBLIC
from holdfast.kit.connections import ConnectionFields, Connections, GrantedConsent
from holdfast.kit.connections.models import Status
from holdfast.operation import Operator, operation
from holdfast.projection import project
from holdfast.runtime import Runtime
from holdfast.store import Query, Transaction
from holdfast.web import callback_url, next_of, start_url

REASON_CHARACTERS_MAX: Final = 500
KIT_CONNECTIONS: Final = "holdfast_connections"
REVOKED: Final = "revoked by an operator"

RevokeReason = Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS_MAX)]


class ConnectionRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A connection without its tokens, sealed or not."""

    collection: str
    id: str
    tenant_id: str
    provider: str
    account: str
    name: str
    purpose: str
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


class LinkRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A link that starts a sign-in once."""

    url: str
    expires_at: datetime


class ConnectionPage(msgspec.Struct, frozen=True):
    items: list[ConnectionRow]
    cursor: str | None


def row(connection: ConnectionFields, collection: str) -> ConnectionRow:
    return project(connection, ConnectionRow, collection=collection)


def connections_in(runtime: Runtime, collection: str) -> Connections:
    """Return the connections of one collection or raise NotFoundError, naming those there are."""
    if collection not in runtime.connections_in:
        known = ", ".join(runtime.connections_in)
        raise NotFoundError(f"no connections are stored in {collection!r}; they are in {known}")
    return runtime.connections_in[collection]


async def list_connections(
    runtime: Runtime,
    tenant_id: str,
    collection: str = KIT_CONNECTIONS,
    *,
    status: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> ConnectionPage:
    """Connections of one collection, newest first."""
    query = Query(connections_in(runtime, collection).kind)
    query = query if status is None else query.where("status", "==", status)
    query = query.order_by("-connected_at").limit(limit).after(cursor)
    page = await runtime.store_of(tenant_id).query(query)
    return ConnectionPage([row(doc, collection) for doc in page.docs], page.cursor)


async def get(
    runtime: Runtime, tenant_id: str, connection_id: str, collection: str = KIT_CONNECTIONS
) -> ConnectionFields:
    """Return one connection as it is stored, or raise NotFoundError."""
    kind = connections_in(runtime, collection).kind
    stored = await runtime.store_of(tenant_id).get(kind, connection_id)
    if stored is None:
        raise NotFoundError(f"no connection {connection_id!r}")
    return stored.doc


@operation("connection.link_made", area="connections", verb="create", needs="admin", subject="purpose")
async def create_link(runtime: Runtime, by: Operator, purpose: str, *, return_path: str = "") -> LinkRow:
    """Make a link by which somebody connects an account, once, within ten minutes.

    `return_path` is the page of this site that they come back to.
    """
    declared = runtime.consent_purposes.get(purpose)
    if declared is None or not declared.for_operators:
        raise NotFoundError(f"no service offers to connect accounts for {purpose!r} here")
    return await _commit_link(runtime, by, purpose, return_path=return_path)


@operation("connection.link_made", area="connections", verb="create", needs="admin", subject="connection_id")
async def reconnect(
    runtime: Runtime,
    by: Operator,
    connection_id: str,
    *,
    collection: str = KIT_CONNECTIONS,
    return_path: str = "",
) -> LinkRow:
    """Make a link by which its owner connects an account again, for the same purpose."""
    known = await get(runtime, by.tenant_id, connection_id, collection)
    if known.purpose not in runtime.consent_purposes:
        raise NotFoundError(f"no service here can connect this account of {known.provider} again")
    return await _commit_link(
        runtime, by, known.purpose, return_path=return_path, hint=known.name, payload=known.payload
    )


async def _commit_link(
    runtime: Runtime, by: Operator, purpose: str, *, return_path: str, **options: Any
) -> LinkRow:
    public_url = runtime.config.public_url
    link = runtime.connections.link(
        purpose, tenant_id=by.tenant_id, redirect_uri=callback_url(public_url),
        return_path=next_of(return_path) if return_path else "", **options,
    )  # fmt: skip

    async def act(tx: Transaction) -> None:
        tx.write(link.write)

    await by.commit(act, details={"purpose": purpose})
    return LinkRow(url=start_url(public_url, link.token), expires_at=link.expires_at)


@operation("connection.connected", area="connections", verb="create", needs=PUBLIC)
async def connect(runtime: Runtime, by: Operator, granted: GrantedConsent) -> ConnectionFields:
    """Store what a person has granted: the connection, and the rows of the service that asked for it."""
    consent, account = granted.consent, granted.grant.account
    models = runtime.connections.models_of(consent)
    owner = msgspec.structs.replace(by, tenant_id=consent.tenant_id)
    details = {"provider": consent.provider, "account": account, "purpose": consent.purpose}
    return await runtime.connections.store_grant(
        granted, lambda: owner.commit(
            lambda tx: runtime.connections.connect(tx, granted), across=True, details=details,
            subject=models.id_of(consent.tenant_id, consent.provider, account),
        )
    )  # fmt: skip


@operation("connection.checked", area="connections", verb="check", needs="admin", subject="connection_id")
async def check(
    runtime: Runtime, by: Operator, connection_id: str, *, collection: str = KIT_CONNECTIONS
) -> ConnectionRow:
    """Refresh the grant to see whether it still works; tell the provider of an end that it missed.

    The kit commits the refreshed tokens itself, so that no provider call is inside a transaction.
    """
    known = await get(runtime, by.tenant_id, connection_id, collection)
    try:
        checked = await connections_in(runtime, collection).check(known.id)
    except (ConfigError, DecryptionError) as fault:
        raise RetryLaterError(f"{known.provider} can't be asked: {fault.message}") from fault
    await by.append(details={"provider": checked.provider, "status": checked.status})
    return row(checked, collection)


@operation("connection.revoked", area="connections", verb="revoke", needs="admin", subject="connection_id")
async def revoke(
    runtime: Runtime,
    by: Operator,
    connection_id: str,
    *,
    collection: str = KIT_CONNECTIONS,
    reason: str = REVOKED,
    at_provider: bool = True,
) -> ConnectionRow:
    """End the grant here, then (`at_provider`) at the provider, and forget its tokens.

    `RetryLaterError` where it is ended here and the provider could not be told: checking it tells it later.
    """
    known = await get(runtime, by.tenant_id, connection_id, collection)
    ended, connections = known, connections_in(runtime, collection)

    async def end(tx: Transaction) -> bool:
        nonlocal ended
        ended, now = await connections.end(tx, connection_id, reason=reason, at_provider=at_provider)
        return now

    details = {"provider": known.provider, "account": known.account, "reason": reason}
    await by.commit(end, details=details | {"atProvider": at_provider})
    try:
        return row(await connections.notify_provider(ended), collection)
    except (RetryLaterError, ForbiddenError, ConfigError, DecryptionError) as fault:
        raise RetryLaterError(
            f"ended here, but {known.provider} could not be told ({fault.message}): check it later, "
            f"here or by `holdfast connections check {known.id}`"
        ) from fault
