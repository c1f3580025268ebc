"""`holdfast connections`: list and connect accounts, check whether grants still work, revoke one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    Tenants,
    as_dict,
    operate,
    print_facts,
    print_result,
    print_table,
    services_of,
    with_runtime,
    word_option,
)
from holdfast.errors import HoldfastError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.connections.models import Status
from holdfast.operation import Operator
from holdfast.operations import connections
from holdfast.operations.connections import KIT_CONNECTIONS, REVOKED, ConnectionRow, LinkRow
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import Service

commands = typer.Typer(no_args_is_help=True)

_Collection = Annotated[
    str,
    typer.Option(
        "--collection", metavar="NAME", help="Where they are stored: the kit's own, or a service's."
    ),
]
_Id = Annotated[str, typer.Argument(metavar="ID", help="As `connections list` shows it.")]


@commands.command("list")
def list_command(
    status: Annotated[str | None, word_option(Status, "Only of this status.", metavar="STATUS")] = None,
    collection: _Collection = KIT_CONNECTIONS,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's connections, newest first; never their tokens.

    \b
    Examples:
      holdfast connections list --tenant acme
      holdfast connections list --tenant acme --collection google_connections
      holdfast connections list --tenant acme --status needs_reauth --json | jq -r '.items[].name'
    """
    page = with_runtime(
        lambda runtime: connections.list_connections(
            runtime, tenant, collection, status=status, limit=limit, cursor=cursor
        ),
        services=_services(collection),
    )
    columns = ("id", "provider", "name", "status", "expiresAt", "connectedAt", "reason")
    print_table(
        page.items, columns, as_json=as_json, cursor=page.cursor, none="nothing is connected", tenant=tenant
    )


@commands.command("show")
def show_command(
    connection_id: _Id, collection: _Collection = KIT_CONNECTIONS, as_json: AsJson = False
) -> None:
    """Show one connection: its account, the scopes granted and refused, and its state.

    \b
    Example:
      holdfast connections show 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7
    """
    stored = with_runtime(
        lambda runtime: connections.connections_in(runtime, collection).get(connection_id),
        services=_services(collection),
    )
    row = connections.row(stored, collection)
    if as_json:
        print_result(row, "", as_json=True)
    else:
        print_facts(row)


@commands.command("connect")
def connect_command(
    purpose: Annotated[str, typer.Argument(metavar="PURPOSE", help="As the service names it.")],
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Print a link by which somebody connects an account, once, within ten minutes.

    \b
    Example:
      holdfast connections connect c4lendar --tenant acme
    """
    link = operate(tenant, lambda runtime, by: connections.create_link(runtime, by, purpose))
    print_result(link, link.url, as_json=as_json)


@commands.command("reconnect")
def reconnect_command(
    connection_id: _Id, collection: _Collection = KIT_CONNECTIONS, as_json: AsJson = False
) -> None:
    """Print a link by which its owner connects an account again, once, within ten minutes.

    \b
    Example:
      holdfast connections reconnect 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7
    """

    async def act(runtime: Runtime, by: Operator) -> LinkRow:
        owner = await _owner(runtime, by, connection_id, collection)
        return await connections.reconnect(runtime, owner, connection_id, collection=collection)

    link = operate(PLATFORM, act)
    print_result(link, link.url, as_json=as_json)


@commands.command("revoke")
def revoke_command(
    connection_id: _Id,
    collection: _Collection = KIT_CONNECTIONS,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; people see it.")] = REVOKED,
    local: Annotated[bool, typer.Option("--local", help="Don't tell the provider.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a grant: here at once, then at the provider; its tokens are forgotten.

    \b
    Examples:
      holdfast connections revoke 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7 --reason left
      holdfast connections revoke 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7 --local

    Exit code 1 when the provider could not be told: it is ended here, and `connections check` tells it later.
    """

    async def act(runtime: Runtime, by: Operator) -> ConnectionRow:
        owner = await _owner(runtime, by, connection_id, collection)
        return await connections.revoke(
            runtime, owner, connection_id, collection=collection, reason=reason, at_provider=not local
        )

    ended = operate(PLATFORM, act)
    print_result(ended, f"revoked {ended.provider} {ended.name or ended.account}", as_json=as_json)


def _services(collection: str) -> Sequence[Service] | None:
    return services_of(KIT_PART if collection == KIT_CONNECTIONS else collection)


async def _owner(runtime: Runtime, by: Operator, connection_id: str, collection: str) -> Operator:
    """The operator on the documents of the tenant that has the connection."""
    stored = await connections.connections_in(runtime, collection).get(connection_id)
    return msgspec.structs.replace(by, tenant_id=stored.tenant_id)


@commands.command("check")
def check_command(
    connection_id: Annotated[str | None, typer.Argument(metavar="ID", help="Only this one.")] = None,
    collection: _Collection = KIT_CONNECTIONS,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Refresh grants to see whether they still work; tell the providers of ends that they missed.

    \b
    Examples:
      holdfast connections check --tenant acme
      holdfast connections check 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7

    Exit code 1 when one needs its owner, or could not be checked.
    """

    async def act(runtime: Runtime, by: Operator) -> list[dict[str, object]]:
        if connection_id is not None:
            owner = await _owner(runtime, by, connection_id, collection)
            stored = await connections.get(runtime, owner.tenant_id, connection_id, collection)
            return [await _check(runtime, owner, connections.row(stored, collection))]
        rows, cursor = [], None
        while True:
            page = await connections.list_connections(runtime, tenant, collection, limit=200, cursor=cursor)
            rows += [await _check(runtime, by, row) for row in page.items]
            cursor = page.cursor
            if cursor is None:
                return rows

    rows = operate(tenant, act)
    columns = ("id", "provider", "name", "status", "reason", "fault")
    print_table(rows, columns, as_json=as_json, none="nothing is connected")
    if any(one["status"] == "needs_reauth" or one["fault"] for one in rows):
        raise typer.Exit(1)


async def _check(runtime: Runtime, by: Operator, known: ConnectionRow) -> dict[str, object]:
    """The state after the check; a provider that can't be asked stops no other check."""
    try:
        return as_dict(await connections.check(runtime, by, known.id, collection=known.collection)) | {
            "fault": ""
        }
    except HoldfastError as error:
        return as_dict(known) | {"fault": error.message}
