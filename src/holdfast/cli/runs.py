"""`holdfast runs`: list runs and their steps, cancel one, let one that waits or has failed go on."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Protocol, cast, get_args

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    as_dict,
    os_actor,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.http.routes.runs import (
    KIT_RUNS,
    REASON_CHARACTERS_MAX,
    RunPage,
    RunRow,
    cancel_run,
    retry_run,
    row,
    run_in,
    runs_in,
    wake_run,
)
from holdfast.kit.runs import Runs
from holdfast.kit.runs.models import RunStatus
from holdfast.runtime import Runtime

commands = typer.Typer(no_args_is_help=True)

_Collection = Annotated[
    str, typer.Option(metavar="NAME", help="Where they are kept: the kit's own runs, or a service's.")
]
_Id = Annotated[str, typer.Argument(metavar="ID", help="As `runs list` shows it.")]


def _known(status: str | None) -> str | None:
    if status is not None and status not in get_args(RunStatus):
        raise typer.BadParameter(f"{status!r} is none of {', '.join(get_args(RunStatus))}")
    return status


def _short(reason: str) -> str:
    if not 1 <= len(reason) <= REASON_CHARACTERS_MAX:
        raise typer.BadParameter(f"a reason has 1 to {REASON_CHARACTERS_MAX} characters")
    return reason


class _Change(Protocol):
    def __call__(
        self, runtime: Runtime, tenant_id: str, runs: Runs, /, *, run_id: str, actor: str
    ) -> Awaitable[RunRow]: ...


def _after(change: _Change, run_id: str, *, collection: str, tenant: str) -> RunRow:
    """The run once this person changed it, which is on record."""

    async def act(runtime: Runtime) -> RunRow:
        runs = runs_in(runtime, tenant, collection)
        return await change(runtime, tenant, runs, run_id=run_id, actor=os_actor())

    return with_runtime(act, services=None)


@commands.command("list")
def list_command(
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", callback=_known, help=f"One of {', '.join(get_args(RunStatus))}."),
    ] = None,
    type: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this workflow.")] = None,
    collection: _Collection = KIT_RUNS,
    tenant: Tenant = PLATFORM,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show runs, newest first.

    \b
    Examples:
      holdfast runs list --tenant acme --status running
      holdfast runs list --collection renewal_calculation_jobs --json
    """

    async def act(runtime: Runtime) -> RunPage:
        wanted = cast(RunStatus | None, status)
        runs = runs_in(runtime, tenant, collection)
        page = await runs.listed(status=wanted, type=type, limit=limit, cursor=cursor)
        return RunPage([row(doc, collection) for doc in page.docs], page.cursor)

    page = with_runtime(act, services=None)
    columns = ("id", "type", "status", "currentStep", "createdAt", "durationMs", "error")
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none="no runs like this")


@commands.command("show")
def show_command(
    run_id: _Id, collection: _Collection = KIT_RUNS, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Show one run: where it stands, in whose hands, and every step.

    \b
    Example:
      holdfast runs show run-mhz1k0-4f2a9c --tenant acme
    """

    async def act(runtime: Runtime) -> RunRow:
        return row(await run_in(runs_in(runtime, tenant, collection), run_id), collection)

    found = with_runtime(act, services=None)
    if as_json:
        print_result(found, "", as_json=True)
        return
    facts = {name: value for name, value in as_dict(found).items() if name != "steps"}
    typer.echo("\n".join(f"{name}: {'-' if value in (None, '') else value}" for name, value in facts.items()))
    columns = ("name", "status", "attempts", "startedAt", "durationMs", "error")
    print_table(found.steps, columns, as_json=False)


@commands.command("cancel")
def cancel_command(
    run_id: _Id,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", callback=_short, help="Why; people see it.")
    ] = "cancelled by an operator",
    collection: _Collection = KIT_RUNS,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Let no further step of a run begin; one that is under way comes to its end.

    \b
    Example:
      holdfast runs cancel run-mhz1k0-4f2a9c --tenant acme --reason "wrong branch"
    """
    found = _after(partial(cancel_run, reason=reason), run_id, collection=collection, tenant=tenant)
    ended = found.status == "cancelled"
    text = "cancelled" if ended else f"ends when its present step does ({found.held_by} holds it)"
    print_result(found, f"{run_id}: {text}", as_json=as_json)


@commands.command("wake")
def wake_command(
    run_id: _Id, collection: _Collection = KIT_RUNS, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Let a run that waits, for a time or for something to happen, go on now.

    \b
    Example:
      holdfast runs wake run-mhz1k0-4f2a9c --tenant acme
    """
    found = _after(wake_run, run_id, collection=collection, tenant=tenant)
    print_result(found, f"{run_id} goes on as soon as a process that works sees it", as_json=as_json)


@commands.command("retry")
def retry_command(
    run_id: _Id, collection: _Collection = KIT_RUNS, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Let a run that failed go on from the step that did; what its finished steps did stays done.

    \b
    Example:
      holdfast runs retry run-mhz1k0-4f2a9c --tenant acme
    """
    found = _after(retry_run, run_id, collection=collection, tenant=tenant)
    print_result(found, f"{run_id} goes on as soon as a process that works sees it", as_json=as_json)
