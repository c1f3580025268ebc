"""`holdfast gwi audit`: list, verify and export a tenant's audit trail."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant
from holdfast.services.gwi.operations import Gwi

commands = typer.Typer(help="The audit trail of a tenant.", no_args_is_help=True)


@commands.command("list")
def list_command(
    ctx: typer.Context,
    tenant: Tenant,
    action: Annotated[str, typer.Option(metavar="NAME", help="Events of this kind.")] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show audit events, newest first.

    \b
    Example:
      holdfast gwi audit list --tenant gh-org-7 --action run_started
    """
    page = ctx.obj.with_service(
        NAME, lambda gwi: gwi.audit.page(tenant, action=action, limit=limit, cursor=cursor)
    )
    columns = ("sequence", "timestamp", "eventType", "actor", "subject", "outcome")
    ctx.obj.print_table(page.docs, columns, as_json=as_json, cursor=page.cursor, none="no events")


@commands.command("verify")
def verify_command(ctx: typer.Context, tenant: Tenant, as_json: AsJson = False) -> None:
    """Verify the whole chain and its checkpoints; names the first event that was changed, moved or removed.

    \b
    Example:
      holdfast gwi audit verify --tenant gh-org-7
    """
    ctx.obj.verify_trail(NAME, tenant, as_json=as_json)


@commands.command("export")
def export_command(ctx: typer.Context, tenant: Tenant) -> None:
    """Print the chain as JSON lines, oldest first.

    \b
    Example:
      holdfast gwi audit export --tenant gh-org-7 > trail.jsonl
    """

    async def write(gwi: Gwi) -> None:
        async for line in gwi.audit.export(tenant):
            sys.stdout.buffer.write(line)

    ctx.obj.with_service(NAME, write)
