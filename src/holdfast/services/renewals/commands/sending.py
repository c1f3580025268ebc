"""Telling the RMS, what became of it, and where it goes."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from holdfast.kit.outbox import Report
from holdfast.services.renewals.commands.asked import (
    OWN,
    AsJson,
    Cursor,
    Limit,
    PropertyId,
    Tenant,
    among,
    inside,
    listing,
    me,
    terminal,
)
from holdfast.services.renewals.deliveries import STATUSES, DeliveryShown, Wait
from holdfast.services.renewals.endpoints import Act, EndpointOrder, EndpointShown
from holdfast.services.renewals.keeper import Renewals
from holdfast.services.renewals.scoring import FLAGGED, Tier
from holdfast.services.renewals.triggering import Triggered

dlq = typer.Typer(help="What the RMS did not take: list, replay, resolve.", no_args_is_help=True)
endpoints = typer.Typer(help="Where each property's events go.", no_args_is_help=True)

_Property = Annotated[str | None, typer.Option("--property", metavar="ID", help="Of this property alone.")]
_Letter = Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.")]


def trigger_command(
    ctx: typer.Context,
    property_id: PropertyId,
    resident: Annotated[list[str] | None, typer.Argument(help="Residents; none means a whole tier.")] = None,
    tier: Annotated[Tier | None, typer.Option(help="Which tier; high and medium unless said.")] = None,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Tell the RMS about flagged residents of the latest run; a process that works (`serve`) delivers it.

    Ends with 1 where one that is named is not flagged.

    \b
    Examples:
      holdfast renewals trigger property-0001 resident-0000001
      holdfast renewals trigger property-0001 --tier high
    """
    tiers = FLAGGED if tier is None else (tier,)

    async def act(renewals: Renewals) -> list[Triggered]:
        told = await renewals.portfolio(tenant).trigger_many(
            property_id, tiers=tiers, residents=resident or None
        )
        counts = dict(Counter(one.status for one in told))
        await renewals.note(tenant, me(), "triggered", subject=property_id, details=counts)
        return told

    told = inside(ctx, act)
    terminal(ctx).show(told, ("residentId", "status", "eventId"), as_json=as_json, none="nobody to tell of")
    left_out = set(resident or ()) - {one.resident_id for one in told}
    if left_out:
        typer.echo(f"not flagged in the latest run: {', '.join(sorted(left_out))}", err=True)
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
    if property_id is None and status:
        raise typer.BadParameter("--status looks at one property; say which")
    statuses: Any = status or ()

    async def act(renewals: Renewals) -> tuple[list[DeliveryShown], str | None]:
        found = renewals.deliveries(tenant)
        if event is not None:
            return await found.of_event(event), None
        if property_id is None:
            return await found.waiting(waiting, limit=limit, cursor=cursor)
        await renewals.portfolio(tenant).property(property_id)
        return await found.find(property_id, statuses=statuses, limit=limit, cursor=cursor)

    columns = ("propertyId", "residentId", "status", "attemptCount", "lastStatus", "nextRetryAt", "reason")
    listing(ctx, act, columns=columns, as_json=as_json, none="no deliveries")


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

    listing(
        ctx,
        lambda renewals: renewals.deliveries(tenant).dead_letters(
            property_id, resolved=resolved, limit=limit, cursor=cursor
        ),
        columns=("id", "propertyId", "createdAt", "deaths", "reason"), as_json=as_json,
        none="no dead letters",
    )  # fmt: skip


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

    async def act(renewals: Renewals) -> Report:
        deliveries = renewals.deliveries(tenant)
        if letter_id is not None and not dry_run:
            report = Report(1, int(await deliveries.replay(letter_id)), False, (letter_id,), None)
        elif letter_id is not None:
            found = await deliveries.get(letter_id)
            report = Report(int(found.status == "dlq"), 0, True, (letter_id,), None)
        else:
            report = await deliveries.replay_all(property_id, dry_run=dry_run)
        if report.changed:
            subject = letter_id or property_id or "all properties"
            await renewals.note(
                tenant, me(), "replayed", subject=subject, details={"changed": report.changed}
            )
        return report

    report = inside(ctx, act)
    said = f"{report.matched} would go out again" if dry_run else f"{report.changed} go out again"
    terminal(ctx).tell(report, said, as_json=as_json)


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

    inside(ctx, act)
    terminal(ctx).tell({"id": letter_id, "resolved": True}, f"{letter_id} resolved", as_json=as_json)


@endpoints.command("list")
def endpoints_list(
    ctx: typer.Context,
    tenant: Tenant = OWN,
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show where events go; never with a secret.

    \b
    Example:
      holdfast renewals endpoints list
    """

    listing(
        ctx, lambda renewals: renewals.endpoints(tenant).all(limit=limit, cursor=cursor),
        columns=("propertyId", "url", "status", "reason", "concurrency", "ratePerS"), as_json=as_json,
        none="no endpoints",
    )  # fmt: skip


@endpoints.command("set")
def endpoints_set(
    ctx: typer.Context,
    property_id: PropertyId,
    url: Annotated[str, typer.Argument(help="Where to send, https://…")],
    concurrency: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many at once.")] = 10,
    rate: Annotated[float | None, typer.Option(min=0.001, help="At most so many a second.")] = None,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Say where a property's events go; a new endpoint's secret is printed this once.

    \b
    Example:
      holdfast renewals endpoints set property-0001 https://rms.example/webhooks/1
    """

    async def act(renewals: Renewals) -> EndpointShown:
        order = EndpointOrder(url=url, concurrency=concurrency, rate_per_s=rate)
        made = await renewals.endpoints(tenant).set(property_id, order)
        await renewals.note(tenant, me(), "endpoint_set", subject=property_id, details={"url": url})
        return made

    made = inside(ctx, act)
    secret = f"; its secret, shown this once: {made.secret}" if made.secret else ""
    terminal(ctx).tell(made, f"{property_id} sends to {made.url}{secret}", as_json=as_json)


@endpoints.command("rotate")
def endpoints_rotate(
    ctx: typer.Context, property_id: PropertyId, tenant: Tenant = OWN, as_json: AsJson = False
) -> None:
    """Give an endpoint a fresh secret; the old one signs too for a day.

    \b
    Example:
      holdfast renewals endpoints rotate property-0001
    """

    async def act(renewals: Renewals) -> EndpointShown:
        made = await renewals.endpoints(tenant).rotate(property_id)
        await renewals.note(tenant, me(), "secret_rotated", subject=property_id)
        return made

    made = inside(ctx, act)
    terminal(ctx).tell(made, f"the secret of {property_id}, shown this once: {made.secret}", as_json=as_json)


@endpoints.command("act")
def endpoints_act(
    ctx: typer.Context,
    property_id: PropertyId,
    act: Annotated[Act, typer.Argument(help="What to do.")],
    reason: Annotated[str, typer.Option(help="Why, for others to read.")] = "",
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Pause, resume, disable or enable an endpoint.

    \b
    Example:
      holdfast renewals endpoints act property-0001 pause --reason maintenance
    """

    async def change(renewals: Renewals) -> EndpointShown:
        done = await renewals.endpoints(tenant).act(property_id, act, reason=reason, by=me())
        await renewals.note(tenant, me(), f"endpoint_{act}", subject=property_id)
        return done

    done = inside(ctx, change)
    terminal(ctx).tell(done, f"{property_id} is {done.status}", as_json=as_json)
