"""`holdfast connections`: list what people connected, see whether it still works, and end it."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    as_dict,
    os_actor,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.errors import HoldfastError
from holdfast.http.routes.connections import listed, revoke_connection, row
from holdfast.kit.connections import Connection
from holdfast.kit.connections.models import Status
from holdfast.runtime import Runtime
from holdfast.store import Query, QueryPage

commands = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="As `connections list` shows it.")]


def _known_status(status: str | None) -> str | None:
    if status is not None and status not in get_args(Status):
        raise typer.BadParameter(f"{status!r} is none of {', '.join(get_args(Status))}")
    return status


@commands.command("list")
def list_command(
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", callback=_known_status, help="Only of this status.")
    ] = None,
    tenant: Tenant = PLATFORM,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's connections, newest first; never their tokens.

    \b
    Examples:
      holdfast connections list --tenant acme
      holdfast connections list --tenant acme --status needs_reauth --json | jq -r '.items[].name'
    """

    async def act(runtime: Runtime) -> QueryPage[Connection]:
        return await listed(runtime, tenant, status=status, limit=limit, cursor=cursor)

    page = with_runtime(act)
    columns = ("id", "provider", "name", "status", "expiresAt", "connectedAt", "reason")
    rows = [row(doc) for doc in page.docs]
    print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="nothing is connected")


@commands.command("show")
def show_command(connection_id: _Id, as_json: AsJson = False) -> None:
    """Show one connection: whose it is, what was granted and what was not, and how it stands.

    \b
    Example:
      holdfast connections show 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7
    """
    found = row(with_runtime(lambda runtime: runtime.connections.get(connection_id)))
    lines = [f"{name}: {_text(value)}" for name, value in as_dict(found).items()]
    print_result(found, "\n".join(lines), as_json=as_json)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)


@commands.command("revoke")
def revoke_command(
    connection_id: _Id,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; people see it.")
    ] = "revoked by an operator",
    as_json: AsJson = False,
) -> None:
    """End a grant: here at once, then at the provider; its tokens are forgotten.

    \b
    Example:
      holdfast connections revoke 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7 --reason left

    Exit code 1 when the provider could not be told: it is ended here, and `connections check` tells it later.
    """

    async def act(runtime: Runtime) -> Connection:
        before = await runtime.connections.get(connection_id)
        return await revoke_connection(runtime, before, actor=os_actor(), reason=reason)

    ended = with_runtime(act, services=None)
    print_result(row(ended), f"revoked {ended.provider} {ended.name or ended.account}", as_json=as_json)


@commands.command("check")
def check_command(
    connection_id: Annotated[str | None, typer.Argument(metavar="ID", help="Only this one.")] = None,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Ask the providers whether the grants still work, by refreshing each; tell them of ends they missed.

    \b
    Examples:
      holdfast connections check --tenant acme
      holdfast connections check 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7

    Exit code 1 when one needs its owner, or could not be checked.
    """

    async def act(runtime: Runtime) -> list[dict[str, object]]:
        if connection_id is not None:
            return [await _checked(runtime, await runtime.connections.get(connection_id))]
        query = Query(Connection).order_by("-connected_at").limit(200)
        return [await _checked(runtime, one.doc) async for one in runtime.store.tenant(tenant).scan(query)]

    rows = with_runtime(act, services=None)
    columns = ("id", "provider", "name", "status", "reason", "fault")
    print_table(rows, columns, as_json=as_json, none="nothing is connected")
    if any(one["status"] == "needs_reauth" or one["fault"] for one in rows):
        raise typer.Exit(1)


async def _checked(runtime: Runtime, connection: Connection) -> dict[str, object]:
    """How it stands after asking; a provider that can't be asked stops no other check."""
    fault = ""
    try:
        connection = await runtime.connections.check(connection.id)
    except HoldfastError as error:
        fault = error.message
    return as_dict(row(connection)) | {"fault": fault}
