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
    os_actor,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.errors import NotFoundError
from holdfast.http.routes.schedules import row
from holdfast.kit.schedules import Schedule
from holdfast.operations.act import run_audited
from holdfast.runtime import Runtime
from holdfast.store import Query, QueryPage

commands = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `jobs list` shows it.")]


@commands.command("list")
def list_command(
    tenant: Tenant = PLATFORM, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show jobs: when each is next due and what became of its last run.

    \b
    Examples:
      holdfast jobs list
      holdfast jobs list --json | jq -r '.items[].name'
    """

    async def act(runtime: Runtime) -> QueryPage[Schedule]:
        query = Query(Schedule).order_by("name").limit(limit).after(cursor)
        return await runtime.store.tenant(tenant).query(query)

    page = with_runtime(act)
    columns = ("name", "cron", "zone", "enabled", "slotAt", "lastStatus")
    none = "no jobs yet: they are declared when `holdfast serve` or `holdfast work` starts"
    print_table([row(doc) for doc in page.docs], columns, as_json=as_json, cursor=page.cursor, none=none)


@commands.command("run")
def run_command(name: _Name, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Run a job at once, besides its times; a serving or working process does it.

    \b
    Example:
      holdfast jobs run renew-watch-channels
    """

    async def act(runtime: Runtime) -> None:
        schedule_id = await _id(runtime, tenant, name)
        await run_audited(
            runtime, tenant, lambda tx: runtime.scheduler.run_now(schedule_id, tx), actor=os_actor(),
            action="schedule.run", subject=schedule_id,
        )  # fmt: skip

    with_runtime(act)
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
    async def act(runtime: Runtime) -> None:
        schedule_id = await _id(runtime, tenant, name)
        await run_audited(
            runtime, tenant, lambda tx: runtime.scheduler.switch(schedule_id, tx, on=on), actor=os_actor(),
            action=f"schedule.switched_{'on' if on else 'off'}", subject=schedule_id,
        )  # fmt: skip

    with_runtime(act)


async def _id(runtime: Runtime, tenant: str, name: str) -> str:
    schedule_id = f"{tenant}_{name}"
    if await runtime.store.tenant(tenant).get(Schedule, schedule_id) is None:
        raise NotFoundError(f"no job {name!r}; `holdfast jobs list` shows those there are")
    return schedule_id
