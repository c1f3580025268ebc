"""Telling the RMS, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.kit.outbox import Report
from holdfast.services.renewals.commands.options import (
    OWN,
    AsJson,
    Cursor,
    Limit,
    PropertyId,
    Tenant,
    among,
    at_work,
    listing,
    me,
    progress,
    terminal,
    with_renewals,
)
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.jobs.risk_events import Triggered, counts_of
from holdfast.services.renewals.jobs.trigger_jobs import progress_of, started_details
from holdfast.services.renewals.models import TriggerJob
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.deliveries import (
    STATUSES,
    RmsDeadLetterResponse,
    RmsDeliveryResponse,
    Wait,
)

dlq = typer.Typer(help="What the RMS did not take: list, replay, resolve.", no_args_is_help=True)

_Property = Annotated[str | None, typer.Option("--property", metavar="ID", help="Of this property alone.")]
_Letter = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.")]


def trigger_command(
    ctx: typer.Context,
    property_id: PropertyId,
    resident: Annotated[list[str] | None, typer.Argument(help="Residents; none means a whole tier.")] = None,
    tier: Annotated[Tier | None, typer.Option(help="Which tier; high and medium unless said.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Of a great many: work on it here, and wait for it.")
    ] = True,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Tell the RMS about flagged residents of the latest run; a process that works (`serve`) delivers it.

    More than 10,000 are told of by a job, with its progress. Ends with 1 where that fails, or where one that
    is named is not flagged.

    \b
    Examples:
      holdfast renewals trigger property-0001 resident-0000001
      holdfast renewals trigger property-0001 --tier high
    """
    if resident and tier:
        raise typer.BadParameter("name residents or a --tier, not both")

    async def act(renewals: Renewals) -> list[Triggered] | TriggerJob:
        portfolio = renewals.portfolio(tenant)
        if resident:
            told = await portfolio.trigger_many(property_id, residents=resident)
        else:
            tiers = FLAGGED if tier is None else (tier,)
            noting = renewals.noting(
                tenant, me(), "trigger_started", subject=property_id, details=started_details
            )
            made = await portfolio.trigger_tiers(property_id, tiers=tiers, by=me(), noting=noting)
            if isinstance(made, TriggerJob):
                return await _carry(renewals, tenant, made) if wait else made
            told = made
        await renewals.note(tenant, me(), "triggered", subject=property_id, details=counts_of(told))
        return told

    told = with_renewals(ctx, act)
    if isinstance(told, TriggerJob):
        _tell_job(ctx, told, as_json=as_json)
        return
    columns = ("residentId", "status", "eventId")
    terminal(ctx).print_table(told, columns, as_json=as_json, none="nobody to tell of")
    left_out = set(resident or ()) - {one.resident_id for one in told}
    if left_out:
        typer.echo(f"not flagged in the latest run: {', '.join(sorted(left_out))}", err=True)
        raise typer.Exit(1)


async def _carry(renewals: Renewals, tenant: str, job: TriggerJob) -> TriggerJob:
    """The job, once it has ended."""
    jobs = renewals.portfolio(tenant).trigger_jobs
    with progress() as bar:
        task = bar.add_task("told of", total=job.residents)
        async with at_work(renewals.trigger_runner):
            while job.completed_at is None:
                job = await jobs.ended(job.id, within_s=0.2)
                bar.update(task, completed=job.told)
    return job


def _tell_job(ctx: typer.Context, job: TriggerJob, *, as_json: bool) -> None:
    fields = ("id", "property_id", "status", "tiers", "calculated_at", "residents", "told", "counts", "error")
    shown = {name: getattr(job, name) for name in fields}
    terminal(ctx).print_result(shown, f"{job.id} {job.status}: {progress_of(job)}", as_json=as_json)
    if job.status in ("failed", "cancelled"):
        raise typer.Exit(1)


def deliveries_command(
    ctx: typer.Context,
    property_id: Annotated[
        str | None,
        typer.Argument(metavar="PROPERTY", help="A property's id; all unless given."),
    ] = None,
    status: Annotated[
        list[str] | None, typer.Option(callback=among(STATUSES), help="May be repeated; all unless given.")
    ] = None,
    waiting: Annotated[
        Wait | None, typer.Option(help="Of all properties: due by now, or waiting for another try.")
    ] = None,
    event: Annotated[str | None, typer.Option(metavar="ID", help="The delivery of this event.")] = None,
    tenant: Tenant = OWN,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show a property's deliveries, newest first; or what waits in all, the next to be tried first.

    \b
    Examples:
      holdfast renewals deliveries property-0001 --status dlq
      holdfast renewals deliveries --waiting due
      holdfast renewals deliveries --event evt-property-0001-resident-0000001-2026-03-01T09:30:00Z
    """
    if property_id is not None and (waiting or event):
        raise typer.BadParameter("--waiting and --event look at all properties; leave PROPERTY out")
    if waiting and event:
        raise typer.BadParameter("look for an --event or for what is --waiting, not both")
    if property_id is None and status:
        raise typer.BadParameter("--status looks at one property; say which")
    statuses: Any = status or ()

    async def act(renewals: Renewals) -> tuple[list[RmsDeliveryResponse], str | None]:
        found = renewals.deliveries(tenant)
        if event is not None:
            return await found.of_event(event), None
        if property_id is None:
            return await found.waiting(waiting, limit=limit, cursor=cursor)
        await renewals.portfolio(tenant).property(property_id)
        return await found.find(property_id, statuses=statuses, limit=limit, cursor=cursor)

    columns = ("propertyId", "residentId", "status", "attemptCount", "lastStatus", "nextRetryAt", "reason")
    listing(ctx, act, columns=columns, as_json=as_json, none="no deliveries")


def delivery_command(
    ctx: typer.Context,
    delivery_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `deliveries --json` and `dlq list` show it.")
    ],
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Show one delivery: how it stands, every attempt, and the payload as it is sent.

    \b
    Example:
      holdfast renewals delivery evt-property-0001-resident-0000001-2026-03-01T09:30:00Z~property-0001
    """
    found = with_renewals(ctx, lambda renewals: renewals.deliveries(tenant).get(delivery_id))
    if as_json:
        terminal(ctx).print_result(found, "", as_json=True)
        return
    reason = f": {found.reason}" if found.reason else ""
    terminal(ctx).print_result(found, f"{found.status}{reason}\n{found.payload}", as_json=False)
    terminal(ctx).print_table(
        found.attempts,
        ("at", "status", "failure", "latencyMs", "excerpt"),
        as_json=False,
        none="not tried yet",
    )


@dlq.command("list")
def dlq_list(
    ctx: typer.Context,
    property_id: _Property = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Those that were dealt with.")] = False,
    tenant: Tenant = OWN,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters with their reasons, newest first.

    \b
    Example:
      holdfast renewals dlq list --property property-0001
    """

    async def act(renewals: Renewals) -> tuple[list[RmsDeadLetterResponse], str | None]:
        if property_id is not None:
            await renewals.portfolio(tenant).property(property_id)
        found = renewals.deliveries(tenant)
        return await found.dead_letters(property_id, resolved=resolved, limit=limit, cursor=cursor)

    columns = ("id", "propertyId", "createdAt", "deaths", "reason")
    listing(ctx, act, columns=columns, as_json=as_json, none="no dead letters")


@dlq.command("replay")
def dlq_replay(
    ctx: typer.Context,
    letter_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="One; all that fit unless given.")
    ] = None,
    property_id: _Property = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go out.")] = False,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Put dead letters out again, each under its old event id with its old bytes.

    \b
    Examples:
      holdfast renewals dlq replay --property property-0001 --dry-run
      holdfast renewals dlq replay evt-property-0001-resident-0000001-2026-03-01T09:30:00Z~property-0001
    """

    if letter_id is not None and property_id is not None:
        raise typer.BadParameter("name one ID or a --property, not both")

    async def act(renewals: Renewals) -> Report:
        deliveries = renewals.deliveries(tenant)
        if property_id is not None:
            await renewals.portfolio(tenant).property(property_id)
        if letter_id is not None and not dry_run:
            return await _replay_one(renewals, tenant, letter_id)
        if letter_id is not None:
            found = await deliveries.get(letter_id)
            report = Report(int(found.status == "dlq"), 0, True, (letter_id,), None)
        else:
            report = await deliveries.replay_all(property_id, dry_run=dry_run)
        if report.changed:
            subject = property_id or "all properties"
            await renewals.note(
                tenant, me(), "replayed", subject=subject, details={"changed": report.changed}
            )
        return report

    report = with_renewals(ctx, act)
    said = f"{report.matched} would go out again" if dry_run else f"{report.changed} go out again"
    terminal(ctx).print_result(report, said, as_json=as_json)


async def _replay_one(renewals: Renewals, tenant: str, letter_id: str) -> Report:
    deliveries = renewals.deliveries(tenant)
    done = await renewals.noted(
        tenant, me(), "replayed", subject=letter_id, details={"changed": 1},
        act=lambda tx: deliveries.replay(letter_id, tx),
    )  # fmt: skip
    return Report(1, int(done), False, (letter_id,), None)


@dlq.command("resolve")
def dlq_resolve(
    ctx: typer.Context,
    letter_id: _Letter,
    note: Annotated[str, typer.Option(help="How it was dealt with.")],
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Mark a dead letter as dealt with, without sending it.

    \b
    Example:
      holdfast renewals dlq resolve evt-…~property-0001 --note "told them by telephone"
    """

    async def act(renewals: Renewals) -> None:
        await renewals.deliveries(tenant).resolve(letter_id, note)
        await renewals.note(tenant, me(), "resolved", subject=letter_id, details={"note": note})

    with_renewals(ctx, act)
    terminal(ctx).print_result({"id": letter_id, "resolved": True}, f"{letter_id} resolved", as_json=as_json)
