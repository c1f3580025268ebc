"""`holdfast jobs`: list recurring jobs, run one now, switch one on or off."""

from __future__ import annotations

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
    with_runtime,
)
from holdfast.kit import ALL_TENANTS
from holdfast.operations import schedules

commands = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `jobs list` shows it.")]


@commands.command("list")
def list_command(
    tenant: Tenants = ALL_TENANTS, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show jobs: when each is next due and how its last run ended.

    \b
    Examples:
      holdfast jobs list
      holdfast jobs list --json | jq -r '.items[].name'
    """
    page = with_runtime(lambda runtime: schedules.list_schedules(runtime, tenant, limit=limit, cursor=cursor))
    columns = ("name", "cron", "zone", "enabled", "slotAt", "lastStatus")
    none = "no jobs yet: they are declared when `holdfast serve` or `holdfast work` starts"
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none, tenant=tenant)


@commands.command("run")
def run_command(name: _Name, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Run a job at once, besides its times; a serving or working process does it.

    \b
    Example:
      holdfast jobs run renew-watch-channels
    """
    operate(tenant, lambda runtime, by: schedules.run(runtime, by, f"{tenant}_{name}"), services=())
    print_result({"asked": name}, f"{name} runs as soon as a process that works sees it", as_json=as_json)


@commands.command("on")
def on_command(name: _Name, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Let a job come due again, from its next time on.

    \b
    Example:
      holdfast jobs on nightly-report
    """
    _switch(name, tenant, on=True)
    print_result({"name": name, "enabled": True}, f"{name} is on", as_json=as_json)


@commands.command("off")
def off_command(name: _Name, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Stop a job from coming due.

    \b
    Example:
      holdfast jobs off nightly-report
    """
    _switch(name, tenant, on=False)
    print_result({"name": name, "enabled": False}, f"{name} is off", as_json=as_json)


def _switch(name: str, tenant: str, *, on: bool) -> None:
    operate(tenant, lambda runtime, by: schedules.switch(runtime, by, f"{tenant}_{name}", on=on), services=())
