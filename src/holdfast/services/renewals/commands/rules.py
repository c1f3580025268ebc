"""Rules of a property's next runs, and what other weights would make of the latest."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from holdfast.services.renewals.commands.options import (
    OWN,
    AsJson,
    PropertyId,
    Tenant,
    operate,
    terminal,
    with_renewals,
)
from holdfast.services.renewals.domain.money import from_cents, to_cents
from holdfast.services.renewals.domain.rules import TOLERANCE_CENTS_MAX, RulesRequest, Sending, merge_rules
from holdfast.services.renewals.domain.scoring import TIERS
from holdfast.services.renewals.models import PropertyRules
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.portfolio import WhatIf
from holdfast.services.renewals.queries.rules import rules_of

rules = typer.Typer(help="How a property's next runs judge, and what they send.", no_args_is_help=True)

Expiry: TypeAlias = Annotated[int | None, typer.Option(min=0, max=100, help="Points of a lease that ends.")]
Delinquency: TypeAlias = Annotated[
    int | None, typer.Option(min=0, max=100, help="Points of rent paid late or short.")
]
NoOffer: TypeAlias = Annotated[
    int | None, typer.Option("--no-offer", min=0, max=100, help="Points of no renewal offer.")
]
MarketRent: TypeAlias = Annotated[
    int | None, typer.Option(min=0, max=100, help="Points of a market rent above the rent.")
]
High: TypeAlias = Annotated[int | None, typer.Option(min=0, max=100, help="High risk from this score on.")]
Medium: TypeAlias = Annotated[int | None, typer.Option(min=0, max=100, help="Medium from this score on.")]
_SENT = {"nothing": "nothing", "high": "those at high risk", "flagged": "those at high or medium risk"}


@rules.command("show")
def rules_show(
    ctx: typer.Context, property_id: PropertyId, tenant: Tenant = OWN, as_json: AsJson = False
) -> None:
    """Show a property's weights, thresholds, tolerance, and what a run sends by itself.

    \b
    Example:
      holdfast renewals rules show property-0001
    """

    async def act(renewals: Renewals) -> PropertyRules:
        await renewals.portfolio(tenant).property(property_id)
        return await rules_of(renewals.store(tenant), property_id)

    _print(ctx, with_renewals(ctx, act), as_json=as_json)


@rules.command("set")
def rules_set(
    ctx: typer.Context,
    property_id: PropertyId,
    expiry: Expiry = None,
    delinquency: Delinquency = None,
    no_offer: NoOffer = None,
    market_rent: MarketRent = None,
    high: High = None,
    medium: Medium = None,
    tolerance: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Rent may be short by so much, as in 1.50.")
    ] = None,
    send: Annotated[
        Sending | None,
        typer.Option(help="Whom a run sends to the RMS by itself; flagged is high and medium."),
    ] = None,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Change a property's rules for the runs to come; what is left out stays as it is.

    The four weights add up to 100. Scores and tiers that are kept stay as they are.

    \b
    Examples:
      holdfast renewals rules set property-0001 --high 60 --send high
      holdfast renewals rules set property-0001 --expiry 50 --delinquency 15
    """
    given = _given(
        expiry=expiry, delinquency=delinquency, no_offer=no_offer, market_rent=market_rent, high=high,
        medium=medium, send=send, tolerance_cents=None if tolerance is None else _cents(tolerance),
    )  # fmt: skip
    if not given:
        raise typer.BadParameter("name what to change, as in --high 60; `rules show` lists what there is")
    made = operate(ctx, lambda renewals, by: renewals.change_rules(by, property_id, given), tenant=tenant)
    _print(ctx, made, as_json=as_json)


@rules.command("reset")
def rules_reset(
    ctx: typer.Context, property_id: PropertyId, tenant: Tenant = OWN, as_json: AsJson = False
) -> None:
    """Give a property the default rules; its runs then send nothing by themselves.

    \b
    Example:
      holdfast renewals rules reset property-0001
    """
    defaults = RulesRequest()
    made = operate(ctx, lambda renewals, by: renewals.set_rules(by, property_id, defaults), tenant=tenant)
    _print(ctx, made, as_json=as_json)


def _given(**words: Any) -> dict[str, Any]:
    return {name: value for name, value in words.items() if value is not None}


def _cents(text: str) -> int:
    cents = to_cents(text, "tolerance")
    if not 0 <= cents <= TOLERANCE_CENTS_MAX:
        raise typer.BadParameter(f"a tolerance is from 0 to {from_cents(TOLERANCE_CENTS_MAX)}, not {text}")
    return cents


def _print(ctx: typer.Context, made: PropertyRules, *, as_json: bool) -> None:
    weights, limits = made.weights, made.thresholds
    lines = [
        f"{made.property_id}, for the runs to come:",
        f"  weights    {weights.expiry} lease end, {weights.delinquency} delinquency,"
        f" {weights.no_offer} no offer, {weights.market_rent} market rent",
        f"  tiers      high from {limits.high}, medium from {limits.medium}",
        f"  tolerance  {from_cents(made.tolerance_cents)} of rent",
        f"  sends      {_SENT[made.send]}",
    ]
    terminal(ctx).print_result(made, "\n".join(lines), as_json=as_json)


def what_if_command(
    ctx: typer.Context,
    property_id: PropertyId,
    expiry: Expiry = None,
    delinquency: Delinquency = None,
    no_offer: NoOffer = None,
    market_rent: MarketRent = None,
    high: High = None,
    medium: Medium = None,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Show how the latest run's residents would be judged by other weights or tiers; nothing is stored.

    What is left out is as the property has it.

    \b
    Examples:
      holdfast renewals what-if property-0001 --expiry 50 --delinquency 15
      holdfast renewals what-if property-0001 --high 60 --json | jq .riskTiers
    """
    given = _given(
        expiry=expiry, delinquency=delinquency, no_offer=no_offer, market_rent=market_rent, high=high,
        medium=medium,
    )  # fmt: skip

    async def act(renewals: Renewals) -> WhatIf:
        portfolio = renewals.portfolio(tenant)
        await portfolio.property(property_id)
        rules = merge_rules((await rules_of(portfolio.store, property_id)).request(), given)
        return await portfolio.what_if(property_id, weights=rules.weights, thresholds=rules.thresholds)

    result = with_renewals(ctx, act)
    if as_json:
        terminal(ctx).print_result(result, "", as_json=True)
        return
    rows = [{"tier": tier, "now": result.before[tier], "then": result.risk_tiers[tier]} for tier in TIERS]
    terminal(ctx).print_table(rows, ("tier", "now", "then"), as_json=False)
    typer.echo(
        f"{result.moved:,} would change their tier; `rules set` applies such weights from the next run"
    )
