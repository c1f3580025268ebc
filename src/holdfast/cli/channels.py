"""`holdfast channels`: list the watch channels that are kept open, renew or stop one."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    Tenants,
    operate,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.kit import ALL_TENANTS
from holdfast.operations import channels

commands = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="As `channels list` shows it.")]


@commands.command("list")
def list_command(
    tenant: Tenants = ALL_TENANTS, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show what is watched, until when, and what is wrong with it.

    \b
    Examples:
      holdfast channels list
      holdfast channels list --json | jq -r '.items[] | select(.status == "attention") | .watchedId'
    """
    page = with_runtime(
        lambda runtime: channels.list_channels(runtime, tenant, limit=limit, cursor=cursor), services=None
    )
    columns = ("id", "name", "watchedId", "status", "endsAt", "renewAt", "failures", "error")
    print_table(
        page.items, columns, as_json=as_json, cursor=page.cursor, none="nothing is watched", tenant=tenant
    )


@commands.command("renew")
def renew_command(watch_id: _Id, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Replace a channel by a new one, also after failures; a serving or working process does it.

    \b
    Example:
      holdfast channels renew calendar-sync-8f2a9c --tenant acme
    """
    row = operate(tenant, lambda runtime, by: channels.renew(runtime, by, watch_id))
    print_result(row, f"{row.watched_id} gets a new channel at the next turn", as_json=as_json)


@commands.command("stop")
def stop_command(watch_id: _Id, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Stop the current channel; what is still wanted gets another first.

    \b
    Example:
      holdfast channels stop calendar-sync-8f2a9c --tenant acme
    """
    row = operate(tenant, lambda runtime, by: channels.stop(runtime, by, watch_id))
    print_result(row, f"the channel of {row.watched_id} is stopped at the next turn", as_json=as_json)
