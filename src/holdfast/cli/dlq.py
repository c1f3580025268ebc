"""`holdfast dlq`: the dead-letter queue: list dead letters, replay them, mark one as resolved."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.context import PLATFORM, AsJson, Cursor, Limit, Tenant, Tenants, operate, print_result
from holdfast.cli.outboxes import OutboxName, print_page
from holdfast.kit import ALL_TENANTS
from holdfast.operations import dead_letters
from holdfast.plural import plural
from holdfast.runtime import KIT_PART

commands = typer.Typer(no_args_is_help=True)

_Endpoint = Annotated[str | None, typer.Option(metavar="ID", help="To this endpoint alone.")]


@commands.command("list")
def list_command(
    endpoint: _Endpoint = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Those that are resolved.")] = False,
    outbox: OutboxName = KIT_PART,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters, newest first.

    \b
    Examples:
      holdfast dlq list --tenant acme
      holdfast dlq list --outbox renewals --endpoint property-0001 --json
    """
    print_page(
        outbox,
        tenant,
        lambda runtime: dead_letters.list_dead_letters(
            runtime, tenant, outbox, resolved=resolved, endpoint_id=endpoint, limit=limit, cursor=cursor
        ),
        columns=("id", "eventType", "endpointId", "diedAt", "deaths", "reason"), what="dead letters",
        as_json=as_json,
    )  # fmt: skip


@commands.command("replay")
def replay_command(
    letter_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One, as `dlq list` shows it. Default: all.")
    ] = None,
    endpoint: _Endpoint = None,
    event_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Of this type alone.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    outbox: OutboxName = KIT_PART,
    tenant: Tenant = PLATFORM,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, each under its old event id with its old body.

    \b
    Examples:
      holdfast dlq replay 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
      holdfast dlq replay --tenant acme --dry-run
      holdfast dlq replay --tenant acme --endpoint rms-7 --limit 100
    """
    if letter_id is not None:
        if endpoint or event_type or dry_run or limit:
            raise typer.BadParameter("give an ID, or options that select some, not both")
        done = operate(tenant, lambda runtime, by: dead_letters.replay(runtime, by, outbox, letter_id))
        text = f"{letter_id} is sent again" if done.replayed else f"{letter_id} is no longer dead"
        print_result(done, text, as_json=as_json)
        return
    report = operate(
        tenant,
        lambda runtime, by: dead_letters.replay_all(
            runtime, by, outbox, endpoint_id=endpoint, event_type=event_type, dry_run=dry_run, limit=limit
        ),
    )
    text = (
        f"{plural(report.matched, 'dead letter')} would be sent again"
        if dry_run
        else plural(report.changed, "dead letter is sent again", "dead letters are sent again")
    )
    print_result(report, text, as_json=as_json)


@commands.command("resolve")
def resolve_command(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.")],
    note: Annotated[str, typer.Option(metavar="TEXT", help="How it was resolved; people see it.")],
    outbox: OutboxName = KIT_PART,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Mark a dead letter as resolved without sending it.

    \b
    Example:
      holdfast dlq resolve 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme --note "entered by hand"
    """
    done = operate(
        tenant, lambda runtime, by: dead_letters.resolve(runtime, by, outbox, letter_id, note=note)
    )
    print_result(done, f"{letter_id} is resolved: {done.resolution}", as_json=as_json)
