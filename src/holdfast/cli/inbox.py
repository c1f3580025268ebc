"""`holdfast inbox`: list received messages, and replay them."""

from __future__ import annotations

from typing import Annotated, cast

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
    word_option,
)
from holdfast.kit import ALL_TENANTS
from holdfast.kit.inbox.models import Status
from holdfast.operations import inbox

commands = typer.Typer(no_args_is_help=True)


@commands.command("list")
def list_command(
    status: Annotated[str, word_option(Status)] = "parked",
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show messages of one status, newest first; parked ones need a person.

    \b
    Examples:
      holdfast inbox list
      holdfast inbox list --status ignored --tenant acme
      holdfast inbox list --status pending --json
    """
    wanted = cast(Status, status)
    page = with_runtime(
        lambda runtime: inbox.list_messages(runtime, tenant, status=wanted, limit=limit, cursor=cursor)
    )
    columns = ("id", "source", "status", "tries", "receivedAt", "reason")
    print_table(
        page.items, columns, as_json=as_json, cursor=page.cursor, none=f"none is {status}", tenant=tenant
    )


@commands.command("replay")
def replay_command(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `inbox list` shows them.")],
    tenant: Tenant = PLATFORM,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which would be.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let finished or parked messages be worked on again.

    \b
    Examples:
      holdfast inbox replay github_72d3162e --dry-run
      holdfast inbox replay github_72d3162e github_8a01bb4c

    Exit code 1 when one of them is not there.
    """
    done = operate(
        tenant, lambda runtime, by: inbox.replay_selection(runtime, by, ids, dry_run=dry_run), services=()
    )
    verb = "would be" if dry_run else "will be"
    text = f"{len(done.replayed)} {verb} worked on again"
    print_result({"replayed": done.replayed, "dryRun": dry_run}, text, as_json=as_json)
    if done.missing:
        typer.echo(f"not there: {', '.join(done.missing)}", err=True)
        raise typer.Exit(1)
