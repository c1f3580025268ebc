"""`holdfast calendar-sync`: watch calendars, renew their channels, reload the mappings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from holdfast.plural import plural
from holdfast.services.calendar_sync.models import CalendarState, SyncStatus

NAME = "calendar_sync"
HOUR_MS = 3_600_000
commands = typer.Typer(
    help="Watch calendars, renew their channels, reload the mappings.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option(metavar="TEXT", help="Go on where the last page ended.")]
Why = Annotated[str, typer.Option(metavar="TEXT", help="For the audit trail.")]
Only = Literal["active", "expired", "stopped", "all"]


@commands.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Say how the service is doing, and why; exit 1 when no channel is live.

    \b
    Example:
      holdfast calendar-sync status
    """

    report = ctx.obj.with_service(NAME, lambda operations: operations.engine.status())
    summary, reasons = report.response(), report.health().reasons
    counts = ", ".join(f"{count} {name}" for name, count in summary.channels.items())
    text = "\n".join(
        [f"{summary.status}: {plural(summary.mappings.count, 'mapping')}; channels: {counts}", *reasons]
    )
    ctx.obj.print_result(summary, text, as_json=as_json)
    if summary.status == "critical":
        raise typer.Exit(1)


@commands.command()
def channels(
    ctx: typer.Context,
    only: Annotated[Only, typer.Option("--filter", help="Channels in this state.")] = "all",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show channels with the time left to them, soonest end first.

    \b
    Examples:
      holdfast calendar-sync channels --filter active
      holdfast calendar-sync channels --json | jq -r '.items[] | select(.warning) | .calendarId'
    """
    page = ctx.obj.with_service(
        NAME, lambda operations: operations.channel_status(only, limit=limit, cursor=cursor)
    )
    columns = ("channelId", "calendarId", "status", "expiresIn", "warning")
    ctx.obj.print_table(page.channels, columns, as_json=as_json, cursor=page.cursor, none="no channels")


@commands.command()
def calendars(
    ctx: typer.Context,
    status: Annotated[SyncStatus, typer.Option(help="Calendars in this state.")] = "attention",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show calendars by the state of their sync; without --status those that need attention.

    \b
    Examples:
      holdfast calendar-sync calendars
      holdfast calendar-sync calendars --status failing
    """
    page = ctx.obj.with_service(
        NAME, lambda operations: operations.calendars(status, limit=limit, cursor=cursor)
    )
    rows = [_row(doc) for doc in page.docs]
    columns = ("calendarId", "status", "syncedAt", "failures", "error")
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none=f"none is {status}")


def _row(state: CalendarState) -> dict[str, Any]:
    return {
        "calendarId": state.calendar_id, "status": state.status, "syncedAt": state.synced_at,
        "notifiedAt": state.notified_at, "failures": state.failures, "error": state.error,
    }  # fmt: skip


@commands.command()
def mappings(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the map in force: primaries and their secondaries.

    \b
    Example:
      holdfast calendar-sync mappings --json | jq '.items | length'
    """
    entries = ctx.obj.with_service(NAME, lambda operations: operations.engine.mappings.current())
    rows = [{"primary": one, "secondaries": ", ".join(entries[one])} for one in sorted(entries)]
    none = "no mappings yet; `holdfast calendar-sync reload` reads them"
    ctx.obj.print_table(rows, ("primary", "secondaries"), as_json=as_json, none=none)


@commands.command()
def reload(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Read the mappings from their source now, and tell the rows that can't be used.

    \b
    Example:
      holdfast calendar-sync reload
    """

    result = ctx.obj.operate_service(NAME, lambda operations, by: operations.reload(by))
    lines = [
        f"{plural(result.mappings, 'mapping')}: {result.added} new, {result.changed} changed,"
        f" {result.removed} gone"
    ]
    lines += [f"row {bad.row}: {bad.reason}" for bad in result.bad_rows]
    ctx.obj.print_result(result, "\n".join(lines), as_json=as_json)


@commands.command()
def renew(
    ctx: typer.Context,
    within_h: Annotated[
        float, typer.Option(min=0, max=8_760, help="Those that end within so many hours.")
    ] = 24,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell which.")] = False,
    as_json: AsJson = False,
) -> None:
    """Renew channels that end soon, and stop those whose mapping is gone; exit 1 when some failed.

    \b
    Examples:
      holdfast calendar-sync renew --dry-run
      holdfast calendar-sync renew --within-h 48
    """

    threshold_ms = round(within_h * HOUR_MS)
    result = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.renew(by, threshold_ms=threshold_ms, dry_run=dry_run)
    )
    lines = [", ".join(f"{count} {name}" for name, count in result.summary.items())]
    lines += [f"{one.calendar_id}: {one.error}" for one in result.failed]
    ctx.obj.print_result(result, "\n".join(lines), as_json=as_json)
    if result.failed:
        raise typer.Exit(1)


@commands.command()
def force(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    reason: Why = "",
    as_json: AsJson = False,
) -> None:
    """Replace every channel by a new one, from the mappings; exit 1 when some failed.

    \b
    Example:
      holdfast calendar-sync force --yes --reason "moved to another project"
    """
    if not yes:
        typer.confirm("This stops every channel and opens new ones. Go on?", abort=True)
    result = ctx.obj.operate_service(NAME, lambda operations, by: operations.force(by, reason=reason))
    lines = [f"{result.registered} registered, {result.stopped} stopped, {result.failed} failed"]
    lines += [f"{one}: {error}" for one, error in result.errors.items()]
    ctx.obj.print_result(result, "\n".join(lines), as_json=as_json)
    if result.failed:
        raise typer.Exit(1)


@commands.command()
def stop(
    ctx: typer.Context,
    channel_id: Annotated[str, typer.Argument(metavar="CHANNEL", help="As `channels` shows it.")],
    reason: Why = "",
    as_json: AsJson = False,
) -> None:
    """Stop one channel; a calendar that is still mapped gets another first.

    \b
    Example:
      holdfast calendar-sync stop calendar-sync-alice-hoge-jp-1767225600000 --reason "too many at once"
    """
    result = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.stop_channel(by, channel_id, reason=reason)
    )
    instead = f"; {result.replaced_by} watches {result.calendar_id} now" if result.replaced_by else ""
    state = "stopped" if result.stopped else "will be stopped"
    ctx.obj.print_result(result, f"{state}{instead}", as_json=as_json)


@commands.command()
def sync(
    ctx: typer.Context,
    calendar_id: Annotated[str, typer.Argument(metavar="CALENDAR", help="The primary's address.")],
    full: Annotated[bool, typer.Option("--full", help="Read everything, not only changes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Request a sync of a calendar; a serving or working process does it.

    \b
    Example:
      holdfast calendar-sync sync alice@hoge.jp --full
    """
    ctx.obj.operate_service(
        NAME, lambda operations, by: operations.request_sync(by, calendar_id.lower(), full=full)
    )
    text = f"{calendar_id} is synced as soon as a worker sees it"
    ctx.obj.print_result({"requested": calendar_id, "full": full}, text, as_json=as_json)
