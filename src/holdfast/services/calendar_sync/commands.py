"""`holdfast calendar-sync`: watch calendars, renew their channels, reload the mappings."""

from __future__ import annotations

import getpass
import os
from typing import Annotated, Any, Literal

import typer

from holdfast.services.calendar_sync.models import CalendarState
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.reports import channel_response, renewal_response

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


def _actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


@commands.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Say how the service is doing, and why; exit 1 when no channel is live.

    \b
    Example:
      holdfast calendar-sync status
    """

    async def act(operations: CalendarSync) -> Any:
        look = await operations.look()
        return look.told(), look.health().reasons

    told, reasons = ctx.obj.with_service(NAME, act)
    counts = ", ".join(f"{count} {name}" for name, count in told.channels.items())
    text = "\n".join([f"{told.status}: {told.mappings.count} mappings; channels: {counts}", *reasons])
    ctx.obj.print_result(told, text, as_json=as_json)
    if told.status == "critical":
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
    page = ctx.obj.with_service(NAME, lambda operations: operations.listing(only, limit=limit, cursor=cursor))
    columns = ("channelId", "calendarId", "status", "expiresIn", "warning")
    rows = [channel_response(row) for row in page.rows]
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="no channels")


@commands.command()
def calendars(
    ctx: typer.Context,
    standing: Annotated[
        Literal["fine", "failing", "attention"], typer.Option(help="Calendars whose sync stands so.")
    ] = "attention",
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show how calendars' syncs stand: those that need somebody, unless asked for others.

    \b
    Examples:
      holdfast calendar-sync calendars
      holdfast calendar-sync calendars --standing failing
    """
    page = ctx.obj.with_service(
        NAME, lambda operations: operations.calendars(standing, limit=limit, cursor=cursor)
    )
    rows = [_row(doc) for doc in page.docs]
    columns = ("calendarId", "standing", "syncedAt", "failures", "error")
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none=f"none is {standing}")


def _row(state: CalendarState) -> dict[str, Any]:
    return {
        "calendarId": state.calendar_id, "standing": state.standing, "syncedAt": state.synced_at,
        "notifiedAt": state.notified_at, "failures": state.failures, "error": state.error,
    }  # fmt: skip


@commands.command()
def mappings(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the map in force: primaries and their secondaries.

    \b
    Example:
      holdfast calendar-sync mappings --json | jq '.items | length'
    """
    entries = ctx.obj.with_service(NAME, lambda operations: operations.directory.current())
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

    async def act(operations: CalendarSync) -> Any:
        reloaded = await operations.reload()
        await operations.note("mappings_reloaded", actor=_actor(), details={"mappings": reloaded.mappings})
        return reloaded

    told = ctx.obj.with_service(NAME, act)
    lines = [f"{told.mappings} mappings: {told.added} new, {told.changed} changed, {told.removed} gone"]
    lines += [f"row {bad.row}: {bad.reason}" for bad in told.bad_rows]
    ctx.obj.print_result(told, "\n".join(lines), as_json=as_json)


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

    async def act(operations: CalendarSync) -> Any:
        told = renewal_response(
            await operations.renew(threshold_ms=round(within_h * HOUR_MS), dry_run=dry_run)
        )
        details = {**told.summary, "dryRun": dry_run}
        await operations.note("channels_renewed", actor=_actor(), details=details)
        return told

    told = ctx.obj.with_service(NAME, act)
    lines = [", ".join(f"{count} {name}" for name, count in told.summary.items())]
    lines += [f"{one.calendar_id}: {one.error}" for one in told.failed]
    ctx.obj.print_result(told, "\n".join(lines), as_json=as_json)
    if told.failed:
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

    async def act(operations: CalendarSync) -> Any:
        told = await operations.force(reason)
        counts = {"registered": told.registered, "stopped": told.stopped, "failed": told.failed}
        await operations.note("channels_forced", actor=_actor(), details={"reason": reason, **counts})
        return told

    told = ctx.obj.with_service(NAME, act)
    lines = [f"{told.registered} registered, {told.stopped} stopped, {told.failed} failed"]
    lines += [f"{one}: {error}" for one, error in told.errors.items()]
    ctx.obj.print_result(told, "\n".join(lines), as_json=as_json)
    if told.failed:
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

    async def act(operations: CalendarSync) -> Any:
        told = await operations.stop_channel(channel_id)
        details = {"reason": reason, "calendarId": told.calendar_id}
        await operations.note("channel_stopped", actor=_actor(), subject=channel_id, details=details)
        return told

    told = ctx.obj.with_service(NAME, act)
    instead = f"; {told.replaced_by} watches {told.calendar_id} now" if told.replaced_by else ""
    state = "stopped" if told.stopped else "will be stopped"
    ctx.obj.print_result(told, f"{state}{instead}", as_json=as_json)


@commands.command()
def sync(
    ctx: typer.Context,
    calendar_id: Annotated[str, typer.Argument(metavar="CALENDAR", help="The primary's address.")],
    anew: Annotated[bool, typer.Option("--anew", help="Look at everything, not only at changes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a calendar looked at; a serving or working process does it.

    \b
    Example:
      holdfast calendar-sync sync alice@hoge.jp --anew
    """

    async def act(operations: CalendarSync) -> None:
        await operations.ask_for_sync(calendar_id.lower(), anew=anew)
        await operations.note("sync_asked", actor=_actor(), subject=calendar_id, details={"anew": anew})

    ctx.obj.with_service(NAME, act)
    text = f"{calendar_id} is looked at as soon as a process that works sees it"
    ctx.obj.print_result({"asked": calendar_id, "anew": anew}, text, as_json=as_json)
