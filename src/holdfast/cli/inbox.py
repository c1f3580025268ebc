"""`holdfast inbox`: list messages that came in, and work on them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, cast, get_args

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
from holdfast.http.routes.inbox import row
from holdfast.kit.inbox import InboxItem
from holdfast.kit.inbox.models import Status
from holdfast.operations.act import run_audited
from holdfast.runtime import Runtime

commands = typer.Typer(no_args_is_help=True)


def _known(status: str) -> str:
    if status not in get_args(Status):
        raise typer.BadParameter(f"{status!r} is none of {', '.join(get_args(Status))}")
    return status


@commands.command("list")
def list_command(
    status: Annotated[
        str, typer.Option(callback=_known, help=f"One of {', '.join(get_args(Status))}.")
    ] = "parked",
    tenant: Tenant = PLATFORM,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show messages of one status, newest first; parked ones need a person.

    \b
    Examples:
      holdfast inbox list
      holdfast inbox list --status pending --json
    """

    async def act(runtime: Runtime) -> tuple[Sequence[InboxItem], str | None]:
        wanted = cast(Status, status)
        return await runtime.inbox.page(wanted, tenant_id=tenant, limit=limit, cursor=cursor)

    items, after = with_runtime(act)
    columns = ("id", "source", "status", "tries", "receivedAt", "reason")
    print_table(
        [row(item) for item in items], columns, as_json=as_json, cursor=after, none=f"none is {status}"
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

    async def act(runtime: Runtime) -> tuple[list[str], list[str]]:
        found = await runtime.store.tenant(tenant).get_many(InboxItem, ids)
        lost = [id for id, one in zip(ids, found, strict=True) if one is None]
        again = await runtime.inbox.replay([one.doc.id for one in found if one], dry_run=True)
        if not dry_run:
            again = [item_id for item_id in again if await replayed(runtime, item_id)]
        return again, lost

    async def replayed(runtime: Runtime, item_id: str) -> bool:
        return await run_audited(
            runtime, tenant, lambda tx: runtime.inbox.replay_one(item_id, tx), actor=os_actor(),
            action="inbox.replayed", subject=item_id,
        )  # fmt: skip

    again, lost = with_runtime(act)
    verb = "would be" if dry_run else "will be"
    print_result(
        {"replayed": again, "dryRun": dry_run}, f"{len(again)} {verb} worked on again", as_json=as_json
    )
    if lost:
        typer.echo(f"not there: {', '.join(lost)}", err=True)
        raise typer.Exit(1)
