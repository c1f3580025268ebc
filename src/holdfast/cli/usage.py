"""`holdfast usage`: show a month's usage and what is left of limits, or add it up anew."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.http.routes.usage import row
from holdfast.kit.metering import Allowance, Drift, Meter
from holdfast.kit.metering.meter import month_of
from holdfast.runtime import Runtime
from holdfast.store import QueryPage

commands = typer.Typer(no_args_is_help=True)


def _a_month(month: str | None) -> str | None:
    if month is not None and not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month):
        raise typer.BadParameter("write a month as 2026-11")
    return month


_Month = Annotated[
    str | None, typer.Option(metavar="YYYY-MM", callback=_a_month, help="Default: this month.")
]


@commands.command("show")
def show_command(tenant: Tenant = PLATFORM, month: _Month = None, as_json: AsJson = False) -> None:
    """Show a month's exact sums.

    \b
    Examples:
      holdfast usage show --tenant acme
      holdfast usage show --tenant acme --month 2026-10 --json
    """

    async def act(runtime: Runtime) -> dict[str, int]:
        chosen = month or month_of(runtime.clock.now())
        return await Meter(runtime.store, tenant_id=tenant).month_sums(chosen)

    rows = [{"metric": metric, "used": used} for metric, used in sorted(with_runtime(act).items())]
    print_table(rows, ("metric", "used"), as_json=as_json, none="nothing was used")


@commands.command("allowances")
def allowances_command(
    tenant: Tenant = PLATFORM, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show what is taken of everything limited, by name.

    \b
    Examples:
      holdfast usage allowances --tenant acme
      holdfast usage allowances --json | jq -r '.items[] | select(.standing == "reached") | .name'
    """

    async def act(runtime: Runtime) -> QueryPage[Allowance]:
        return await Meter(runtime.store, tenant_id=tenant).allowances(limit=limit, cursor=cursor)

    page = with_runtime(act)
    rows = [row(doc) for doc in page.docs]
    columns = ("name", "used", "limit", "standing")
    print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="nothing limited was taken")


@commands.command("rebuild")
def rebuild_command(
    tenant: Tenant = PLATFORM,
    month: _Month = None,
    mend: Annotated[bool, typer.Option("--mend", help="Set sums that are off right.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a month's ledger up anew and compare it with the sums.

    \b
    Examples:
      holdfast usage rebuild --tenant acme --month 2026-10
      holdfast usage rebuild --tenant acme --mend

    Exit code 1 when sums were off and were left so.
    """

    async def act(runtime: Runtime) -> list[Drift]:
        chosen = month or month_of(runtime.clock.now())
        return await Meter(runtime.store, tenant_id=tenant).rebuild(chosen, mend=mend)

    drifts = with_runtime(act)
    what = "mended" if mend else "off"
    print_result(
        {"drifts": drifts, "mended": mend}, f"{len(drifts)} sums {what}" if drifts else "all sums agree",
        as_json=as_json,
    )  # fmt: skip
    if drifts and not mend:
        raise typer.Exit(1)
