"""`holdfast dlq`: list dead letters, and put them out again."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    os_actor,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.http.routes.deliveries import replay_letters
from holdfast.kit.outbox import DeadLetter, Deliveries, Report, Selection
from holdfast.runtime import Runtime
from holdfast.store import QueryPage

commands = typer.Typer(no_args_is_help=True)

_Endpoint = Annotated[str | None, typer.Option(metavar="ID", help="To this endpoint alone.")]


@commands.command("list")
def list_command(
    endpoint: _Endpoint = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Those that were dealt with.")] = False,
    tenant: Tenant = PLATFORM,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters, newest first.

    \b
    Examples:
      holdfast dlq list --tenant acme
      holdfast dlq list --endpoint rms-7 --json
    """

    async def act(runtime: Runtime) -> QueryPage[DeadLetter]:
        return await Deliveries(runtime.store.tenant(tenant)).dead_letters(
            resolved=resolved, endpoint_id=endpoint, limit=limit, cursor=cursor
        )

    page = with_runtime(act)
    columns = ("id", "eventType", "endpointId", "diedAt", "deaths", "reason")
    print_table(page.docs, columns, as_json=as_json, cursor=page.cursor, none="no dead letters")


@commands.command("replay")
def replay_command(
    endpoint: _Endpoint = None,
    event_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Of this type alone.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go out.")] = False,
    tenant: Tenant = PLATFORM,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put dead letters out again, each under its old id with its old body.

    \b
    Examples:
      holdfast dlq replay --tenant acme --dry-run
      holdfast dlq replay --tenant acme --endpoint rms-7 --limit 100
    """

    async def act(runtime: Runtime) -> Report:
        selection = Selection(statuses=["dead"], endpoint_id=endpoint, event_type=event_type)
        return await replay_letters(
            runtime, tenant, selection, actor=os_actor(), dry_run=dry_run, limit=limit
        )

    report = with_runtime(act)
    said = f"{report.matched} would go out again" if dry_run else f"{report.changed} go out again"
    print_result(report, said, as_json=as_json)
