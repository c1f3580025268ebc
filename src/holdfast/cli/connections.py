"""`holdfast connections`: list what people connected, see whether it still works, and end it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, get_args

import msgspec
import typer

from holdfast.cli.opened import PLATFORM, AsJson, Cursor, Limit, Tenant, as_dict, noted, show, tell, within
from holdfast.errors import ConfigError, ForbiddenError, HoldfastError, RetryLaterError
from holdfast.kit.connections import Connection
from holdfast.kit.connections.models import Status
from holdfast.runtime import Runtime
from holdfast.store import Page, Query

commands = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="As `connections list` shows it.")]


class _Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A connection without its tokens, sealed or not."""

    id: str
    tenant_id: str
    provider: str
    account: str
    name: str
    status: str
    reason: str
    scopes: list[str]
    refused: list[str]
    connected_at: datetime
    refreshed_at: datetime | None
    expires_at: datetime | None
    retry_at: datetime | None
    ended_at: datetime | None
    failures: int


def _row(connection: Connection) -> _Row:
    return _Row(**{field: getattr(connection, field) for field in _Row.__struct_fields__})


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

    async def act(runtime: Runtime) -> Page[Connection]:
        return await runtime.store.tenant(tenant).query(_asked(status).limit(limit).after(cursor))

    page = within(act)
    columns = ("id", "provider", "name", "status", "expiresAt", "connectedAt", "reason")
    rows = [_row(doc) for doc in page.docs]
    show(rows, columns, as_json=as_json, cursor=page.cursor, none="nothing is connected")


def _asked(status: str | None) -> Query[Connection]:
    query = Query(Connection) if status is None else Query(Connection).where("status", "==", status)
    return query.order_by("-connected_at")


@commands.command("show")
def show_command(connection_id: _Id, as_json: AsJson = False) -> None:
    """Show one connection: whose it is, what was granted and what was not, and how it stands.

    \b
    Example:
      holdfast connections show 2f0c5d8a91b34e67a0c1d2e3f4a5b6c7
    """
    row = _row(within(lambda runtime: runtime.connections.get(connection_id)))
    lines = [f"{name}: {_text(value)}" for name, value in as_dict(row).items()]
    tell(row, "\n".join(lines), as_json=as_json)


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
        details = {"provider": before.provider, "account": before.account, "reason": reason}
        await noted(
            runtime, before.tenant_id, action="connection.revoked", subject=connection_id, details=details
        )
        try:
            return await runtime.connections.revoke(connection_id, reason=reason)
        except (RetryLaterError, ForbiddenError, ConfigError) as fault:
            raise RetryLaterError(
                f"ended here, but {before.provider} could not be told ({fault.message}): "
                f"run `holdfast connections check {connection_id}` later"
            ) from fault

    ended = within(act, services=None)
    tell(_row(ended), f"revoked {ended.provider} {ended.name or ended.account}", as_json=as_json)


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
        query = _asked(None).limit(200)
        return [await _checked(runtime, one.doc) async for one in runtime.store.tenant(tenant).scan(query)]

    rows = within(act, services=None)
    columns = ("id", "provider", "name", "status", "reason", "fault")
    show(rows, columns, as_json=as_json, none="nothing is connected")
    if any(row["status"] == "needs_reauth" or row["fault"] for row in rows):
        raise typer.Exit(1)


async def _checked(runtime: Runtime, connection: Connection) -> dict[str, object]:
    """How it stands after asking; a provider that can't be asked stops no other check."""
    fault = ""
    try:
        connection = await runtime.connections.check(connection.id)
    except HoldfastError as error:
        fault = error.message
    return as_dict(_row(connection)) | {"fault": fault}
