"""Reports of risk, and outcomes to calibrate it by."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from holdfast.errors import InvalidError
from holdfast.plural import plural
from holdfast.services.renewals.commands.options import (
    OWN,
    AsJson,
    Cursor,
    Limit,
    PropertyId,
    Tenant,
    among,
    day,
    listing,
    operate,
    terminal,
    with_renewals,
)
from holdfast.services.renewals.domain.calibration import Calibration
from holdfast.services.renewals.domain.scoring import TIERS
from holdfast.services.renewals.models import RiskScore, Summary
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.portfolio import PropertySummary, Sort

COLUMNS = (
    "resident_id",
    "name",
    "risk_score",
    "risk_tier",
    "days_to_expiry",
    "notice_given",
    "calculated_at",
)
ResidentId = Annotated[str, typer.Argument(metavar="RESIDENT", help="The resident's id.")]


def portfolio_command(
    ctx: typer.Context,
    tenant: Tenant = OWN,
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show every property with what its latest run came to.

    \b
    Example:
      holdfast renewals portfolio
    """

    async def act(renewals: Renewals) -> tuple[list[PropertySummary], str | None]:
        return await renewals.portfolio(tenant).summaries(limit=limit, cursor=cursor)

    rows, more = with_renewals(ctx, act)
    if as_json:
        terminal(ctx).print_table(rows, (), as_json=True, cursor=more)
        return
    shown = [
        {"property": one.property_id, "name": one.name, "calculated": one.latest and one.latest.calculated_at,
         "residents": one.latest and one.latest.total_residents, "high": one.latest and one.latest.high,
         "medium": one.latest and one.latest.medium, "low": one.latest and one.latest.low}
        for one in rows
    ]  # fmt: skip
    columns = ("property", "name", "calculated", "residents", "high", "medium", "low")
    terminal(ctx).print_table(shown, columns, as_json=False, cursor=more, none="no properties")


def risk_command(
    ctx: typer.Context,
    property_id: PropertyId,
    tier: Annotated[
        list[str] | None, typer.Option(callback=among(TIERS), help="May be repeated; all unless given.")
    ] = None,
    sort: Annotated[Sort, typer.Option(help="The most at risk, or the soonest to end, first.")] = "score",
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="As `runs` shows it; the latest unless given.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="The run of this day, or of the nearest before it.")
    ] = None,
    tenant: Tenant = OWN,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show the scores of a property's latest run, or of one before it, the most at risk first.

    \b
    Examples:
      holdfast renewals risk property-0001 --tier high
      holdfast renewals risk property-0001 --as-of 2026-03-01
      holdfast renewals risk property-0001 --json | jq '.items[].signals'
    """
    chosen = day(as_of)
    tiers: Any = tier or TIERS

    async def act(renewals: Renewals) -> tuple[list[RiskScore], str | None]:
        portfolio = renewals.portfolio(tenant)
        run = await portfolio.runs.choose(property_id, id=run_id, as_of=chosen)
        if run is None:
            raise InvalidError(
                f"property {property_id!r} has no finished run; `holdfast renewals calculate {property_id}`"
            )
        page = await portfolio.risk(run, property_id, tiers=tiers, sort=sort, limit=limit, cursor=cursor)
        return page.docs, page.cursor

    listing(ctx, act, columns=COLUMNS, as_json=as_json, none="nobody")


def runs_command(
    ctx: typer.Context,
    property_id: PropertyId,
    tenant: Tenant = OWN,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show a property's finished runs, the newest first.

    \b
    Example:
      holdfast renewals runs property-0001
    """

    async def act(renewals: Renewals) -> tuple[list[Summary], str | None]:
        portfolio = renewals.portfolio(tenant)
        await portfolio.property(property_id)
        return await portfolio.runs.all(property_id, limit=limit, cursor=cursor)

    columns = ("jobId", "calculatedAt", "asOfDate", "totalResidents", "high", "medium", "low", "skipped")
    listing(ctx, act, columns=columns, as_json=as_json, none="no finished run")


def history_command(
    ctx: typer.Context,
    resident_id: ResidentId,
    tenant: Tenant = OWN,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show a resident's scores, one for each finished run, the newest first.

    \b
    Example:
      holdfast renewals history resident-0000001
    """

    async def act(renewals: Renewals) -> tuple[list[RiskScore], str | None]:
        page = await renewals.portfolio(tenant).history(resident_id, limit=limit, cursor=cursor)
        return page.docs, page.cursor

    listing(ctx, act, columns=COLUMNS, as_json=as_json, none="no scores yet")


def outcome_command(
    ctx: typer.Context,
    resident_id: ResidentId,
    lease_id: Annotated[str, typer.Argument(metavar="LEASE", help="The lease that ended or was renewed.")],
    outcome: Annotated[Literal["renewed", "left"], typer.Argument(help="Renewed, or left.")],
    on: Annotated[str, typer.Option(metavar="DAY", help="When it was decided.")],
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Record whether a lease was renewed or its resident left; recording it again corrects it.

    \b
    Example:
      holdfast renewals outcome resident-0000001 lease-0000001 left --on 2026-04-30
    """
    chosen = day(on)
    assert chosen is not None

    made = operate(
        ctx,
        lambda renewals, by: renewals.record_outcome(
            by, resident_id, lease_id, outcome=outcome, decided_on=chosen
        ),
        tenant=tenant,
    )
    score = "no score from before that day" if made.risk_score is None else f"scored {made.risk_score} before"
    terminal(ctx).print_result(made, f"{resident_id} {outcome}: {score}", as_json=as_json)


def calibration_command(
    ctx: typer.Context,
    property_id: Annotated[
        str | None, typer.Option("--property", metavar="ID", help="Of this one alone.")
    ] = None,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Show whether high scores really leave: by band, with Brier score and AUC.

    \b
    Example:
      holdfast renewals calibration --property property-0001
    """

    async def act(renewals: Renewals) -> Calibration:
        if property_id is not None:
            await renewals.portfolio(tenant).property(property_id)
        return await renewals.outcomes(tenant).calibration(property_id)

    result = with_renewals(ctx, act)
    if as_json:
        terminal(ctx).print_result(result, "", as_json=True)
        return
    bands = [
        {"low": one.low, "high": one.high, "count": one.count, "left": one.left,
         "rate": None if one.rate is None else f"{one.rate:.0%}"}
        for one in result.bands
    ]  # fmt: skip
    terminal(ctx).print_table(bands, ("low", "high", "count", "left", "rate"), as_json=False)
    brier = "–" if result.brier is None else f"{result.brier:.4f}"
    auc = "–" if result.auc is None else f"{result.auc:.4f}"
    typer.echo(f"{plural(result.count, 'outcome')}, {result.left} left; Brier {brier}, AUC {auc}")
