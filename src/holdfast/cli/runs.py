"""`holdfast runs`: list runs and their steps, cancel one, let one that waits or has failed go on."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    Tenants,
    operate,
    print_facts,
    print_result,
    print_table,
    with_runtime,
    word_option,
)
from holdfast.kit import ALL_TENANTS
from holdfast.kit.runs.models import RunStatus
from holdfast.operations import runs
from holdfast.operations.runs import CANCELLED, KIT_RUNS, REASON_CHARACTERS_MAX

commands = typer.Typer(no_args_is_help=True)

_Collection = Annotated[
    str, typer.Option(metavar="NAME", help="Where they are stored: the kit's own runs, or a service's.")
]
_Id = Annotated[str, typer.Argument(metavar="ID", help="As `runs list` shows it.")]


def _short(reason: str) -> str:
    if not 1 <= len(reason) <= REASON_CHARACTERS_MAX:
        raise typer.BadParameter(f"a reason has 1 to {REASON_CHARACTERS_MAX} characters")
    return reason


@commands.command("list")
def list_command(
    status: Annotated[str | None, word_option(RunStatus, metavar="STATUS")] = None,
    type: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this workflow.")] = None,
    collection: _Collection = KIT_RUNS,
    tenant: Tenants = ALL_TENANTS,
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
    wanted = cast(RunStatus | None, status)
    page = with_runtime(
        lambda runtime: runs.list_runs(
            runtime, tenant, collection, status=wanted, type=type, limit=limit, cursor=cursor
        ),
        services=None,
    )
    columns = ("id", "type", "status", "currentStep", "createdAt", "durationMs", "error")
    print_table(
        page.items, columns, as_json=as_json, cursor=page.cursor, none="no runs like this", tenant=tenant
    )


@commands.command("show")
def show_command(
    run_id: _Id, collection: _Collection = KIT_RUNS, tenant: Tenants = ALL_TENANTS, as_json: AsJson = False
) -> None:
    """Show one run: its state, its holder, and every step.

    \b
    Example:
      holdfast runs show run-mhz1k0-4f2a9c --tenant acme
    """
    stored = with_runtime(lambda runtime: runs.get(runtime, tenant, collection, run_id), services=None)
    run = runs.row(stored, collection)
    if as_json:
        print_result(run, "", as_json=True)
        return
    print_facts(run, leave_out=("steps",))
    columns = ("name", "status", "attempts", "startedAt", "durationMs", "error")
    print_table(run.steps, columns, as_json=False)


@commands.command("cancel")
def cancel_command(
    run_id: _Id,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", callback=_short, help="Why; people see it.")
    ] = CANCELLED,
    collection: _Collection = KIT_RUNS,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Let no further step of a run begin; a step that is running comes to its end.

    \b
    Example:
      holdfast runs cancel run-mhz1k0-4f2a9c --tenant acme --reason "wrong branch"
    """
    run = operate(tenant, lambda runtime, by: runs.cancel(runtime, by, collection, run_id, reason=reason))
    ended = run.status == "cancelled"
    text = "cancelled" if ended else f"ends when its present step does ({run.held_by} holds it)"
    print_result(run, f"{run_id}: {text}", as_json=as_json)


@commands.command("wake")
def wake_command(
    run_id: _Id, collection: _Collection = KIT_RUNS, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Make a run that waits, for a time or for an event, due now.

    \b
    Example:
      holdfast runs wake run-mhz1k0-4f2a9c --tenant acme
    """
    run = operate(tenant, lambda runtime, by: runs.wake(runtime, by, collection, run_id))
    print_result(run, f"{run_id} goes on as soon as a worker sees it", as_json=as_json)


@commands.command("retry")
def retry_command(
    run_id: _Id, collection: _Collection = KIT_RUNS, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Resume a failed run at the step that failed; finished steps stay done.

    \b
    Example:
      holdfast runs retry run-mhz1k0-4f2a9c --tenant acme
    """
    run = operate(tenant, lambda runtime, by: runs.retry(runtime, by, collection, run_id))
    print_result(run, f"{run_id} goes on as soon as a worker sees it", as_json=as_json)
