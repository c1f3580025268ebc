"""`holdfast usage`: show what was used, what is taken of limits, and check the sums."""

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
    Tenants,
    operate,
    print_result,
    print_table,
    services_of,
    with_runtime,
)
from holdfast.kit import ALL_TENANTS
from holdfast.operations import usage
from holdfast.plural import plural
from holdfast.runtime import KIT_PART

commands = typer.Typer(no_args_is_help=True)


def _check_month(month: str | None) -> str | None:
    if month is not None and not re.fullmatch(usage.MONTH_PATTERN, month):
        raise typer.BadParameter("write a month as 2026-11")
    return month


_Month = Annotated[
    str | None, typer.Option(metavar="YYYY-MM", callback=_check_month, help="Default: this month.")
]


_Meter = Annotated[
    str, typer.Option("--meter", metavar="NAME", help="The meter: the kit's own, or a service's.")
]


@commands.command("show")
def show_command(
    meter: _Meter = KIT_PART, tenant: Tenants = ALL_TENANTS, month: _Month = None, as_json: AsJson = False
) -> None:
    """Show a month's exact sums.

    \b
    Examples:
      holdfast usage show
      holdfast usage show --tenant acme --month 2026-10 --json
    """
    sums = with_runtime(
        lambda runtime: usage.sums(runtime, tenant, meter, month=month),
        # Services know tenants that the kit does not.
        services=None if tenant == ALL_TENANTS else services_of(meter),
    )
    none = f"nothing was used in {sums.month}"
    print_table(sums.items, ("metric", "used"), as_json=as_json, none=none, tenant=tenant)


@commands.command("allowances")
def allowances_command(
    meter: _Meter = KIT_PART,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show what is taken of everything limited, by name.

    \b
    Examples:
      holdfast usage allowances --tenant acme
      holdfast usage allowances --json | jq -r '.items[] | select(.standing == "reached") | .name'
    """
    page = with_runtime(
        lambda runtime: usage.list_allowances(runtime, tenant, meter, limit=limit, cursor=cursor),
        services=services_of(meter),
    )
    columns = ("name", "used", "limit", "standing")
    none = "nothing limited was taken"
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none, tenant=tenant)


@commands.command("rebuild")
def rebuild_command(
    meter: _Meter = KIT_PART,
    tenant: Tenant = PLATFORM,
    month: _Month = None,
    mend: Annotated[bool, typer.Option("--mend", help="Correct sums that are off.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a month's ledger up again and compare it with the sums.

    \b
    Examples:
      holdfast usage rebuild --tenant acme --month 2026-10
      holdfast usage rebuild --tenant acme --mend

    Exit code 1 when sums were off and were left so.
    """
    rebuilt = operate(
        tenant,
        lambda runtime, by: usage.rebuild(runtime, by, meter, month=month, mend=mend),
        services=services_of(meter),
    )
    state = "mended" if mend else "off"
    text = f"{plural(len(rebuilt.drifts), 'sum')} {state}" if rebuilt.drifts else "all sums agree"
    print_result({"drifts": rebuilt.drifts, "mended": mend}, text, as_json=as_json)
    if rebuilt.drifts and not mend:
        raise typer.Exit(1)
