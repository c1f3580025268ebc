"""Where each property's events go."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.services.renewals.commands.options import (
    OWN,
    AsJson,
    Cursor,
    Limit,
    PropertyId,
    Tenant,
    listing,
    me,
    terminal,
    with_renewals,
)
from holdfast.services.renewals.endpoints import Act, EndpointRequest, EndpointResponse
from holdfast.services.renewals.operations import Renewals

endpoints = typer.Typer(help="Where each property's events go.", no_args_is_help=True)


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

    async def act(renewals: Renewals) -> EndpointResponse:
        order = EndpointRequest(url=url, concurrency=concurrency, rate_per_s=rate)
        found = renewals.endpoints(tenant)
        return await renewals.noted(
            tenant, me(), "endpoint_set", subject=property_id, details={"url": url},
            act=lambda tx: found.set(property_id, order, tx=tx),
        )  # fmt: skip

    made = with_renewals(ctx, act)
    secret = f"; its secret, shown this once: {made.secret}" if made.secret else ""
    terminal(ctx).print_result(made, f"{property_id} sends to {made.url}{secret}", as_json=as_json)


@endpoints.command("rotate")
def endpoints_rotate(
    ctx: typer.Context, property_id: PropertyId, tenant: Tenant = OWN, as_json: AsJson = False
) -> None:
    """Give an endpoint a fresh secret; the old one signs too for a day.

    \b
    Example:
      holdfast renewals endpoints rotate property-0001
    """

    async def act(renewals: Renewals) -> EndpointResponse:
        found = renewals.endpoints(tenant)
        return await renewals.noted(
            tenant, me(), "secret_rotated", subject=property_id,
            act=lambda tx: found.rotate(property_id, tx),
        )  # fmt: skip

    made = with_renewals(ctx, act)
    text = f"the secret of {property_id}, shown this once: {made.secret}"
    terminal(ctx).print_result(made, text, as_json=as_json)


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

    async def change(renewals: Renewals) -> EndpointResponse:
        done, changed = await renewals.endpoints(tenant).act(property_id, act, reason=reason, by=me())
        if changed:
            await renewals.note(tenant, me(), f"endpoint_{act}", subject=property_id)
        return done

    done = with_renewals(ctx, change)
    terminal(ctx).print_result(done, f"{property_id} is {done.status}", as_json=as_json)
