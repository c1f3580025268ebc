"""`holdfast gwi usage`: what a tenant uses of its plan, and whether the sums agree with the ledger."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from holdfast.plural import plural
from holdfast.services.gwi.commands.options import NAME, AsJson, Tenant
from holdfast.services.gwi.operations.usage import MONTH, UsageDrift, UsageSummary

commands = typer.Typer(help="Usage of a tenant's plan.", no_args_is_help=True)


def _checked(month: str) -> str:
    if month and not re.fullmatch(MONTH, month):
        raise typer.BadParameter("a month is written 2026-11")
    return month


Month = Annotated[
    str, typer.Option(metavar="YYYY-MM", callback=_checked, help="The current month unless given.")
]


@commands.command("show")
def show_command(ctx: typer.Context, tenant: Tenant, month: Month = "", as_json: AsJson = False) -> None:
    """Show a month's usage against the limits of the plan.

    \b
    Example:
      holdfast gwi usage show --tenant gh-org-7
    """
    found: UsageSummary = ctx.obj.with_service(NAME, lambda gwi: gwi.usage.summary(tenant, month=month))
    text = f"{found.month}: {found.runs.used} of {found.runs.limit} runs, {found.at_once.used} under way"
    ctx.obj.print_result(found, text, as_json=as_json)


@commands.command("rebuild")
def rebuild_command(
    ctx: typer.Context,
    tenant: Tenant,
    month: Month = "",
    mend: Annotated[bool, typer.Option("--mend", help="Set sums that differ right.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a month's ledger up again and compare it with the sums.

    \b
    Example:
      holdfast gwi usage rebuild --tenant gh-org-7 --month 2026-11
    """
    found: UsageDrift = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.usage.rebuild(by, month=month, mend=mend), tenant_id=tenant
    )
    text = f"{found.month}: {plural(len(found.drifts), 'sum differs', 'sums differ')} from the ledger"
    ctx.obj.print_result(found, text + (", set right" if mend and found.drifts else ""), as_json=as_json)
    if found.drifts and not mend:
        raise typer.Exit(1)
