"""`holdfast gwi runs`: start runs, look at them, decide about what they propose."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from holdfast.kit.runs.models import RunStatus
from holdfast.operation import Operator
from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant
from holdfast.services.gwi.models.runs import AgentRun, RunTrigger, RunType
from holdfast.services.gwi.models.tenants import RiskMode
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.runs import CANCELLED, RunFilter
from holdfast.services.gwi.run_starts import RunRequest

commands = typer.Typer(help="Start runs, look at them, approve what they propose.", no_args_is_help=True)

RunId = Annotated[str, typer.Argument(metavar="RUN", help="As `runs list` shows it.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; people see it.")]


@commands.command("list")
def list_command(
    ctx: typer.Context,
    tenant: Tenant,
    status: Annotated[RunStatus | None, typer.Option(help="Runs in this state.")] = None,
    type: Annotated[RunType | None, typer.Option(help="Runs of this type.")] = None,
    repo: Annotated[str | None, typer.Option(metavar="ID", help="Runs of this repository.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show runs, newest first.

    \b
    Examples:
      holdfast gwi runs list --tenant gh-org-7 --status running
      holdfast gwi runs list --tenant gh-org-7 --repo gh-repo-42 --json
    """
    wanted = RunFilter(status=status, type=type, repo_id=repo)
    page = ctx.obj.with_service(NAME, lambda gwi: gwi.runs.page(tenant, wanted, limit=limit, cursor=cursor))
    rows = [_row(one) for one in page.docs]
    columns = ("id", "type", "status", "approval", "repoId", "createdAt", "error")
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="no runs like this")


@commands.command("show")
def show_command(ctx: typer.Context, run: RunId, tenant: Tenant, as_json: AsJson = False) -> None:
    """Show a run's steps.

    \b
    Example:
      holdfast gwi runs show run-m5v2kx8-a7b3c9d2 --tenant gh-org-7
    """
    found: AgentRun = ctx.obj.with_service(NAME, lambda gwi: gwi.runs.get(tenant, run))
    if as_json:
        ctx.obj.print_result(found, "", as_json=True)
        return
    ctx.obj.print_result(_row(found), f"{found.id}: {found.type} is {found.status}", as_json=False)
    columns = ("agent", "status", "attempts", "startedAt", "durationMs", "error")
    ctx.obj.print_table(msgspec.to_builtins(found.steps), columns, as_json=False)


@commands.command("start")
def start_command(
    ctx: typer.Context,
    type: Annotated[RunType, typer.Argument(help="What to do.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="The repository, such as gh-repo-42.")],
    tenant: Tenant,
    number: Annotated[int | None, typer.Option(min=1, help="The issue or pull request.")] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="What it is about.")] = "",
    instructions: Annotated[str, typer.Option(metavar="TEXT", help="What to do there.")] = "",
    risk_mode: Annotated[RiskMode | None, typer.Option(help="What its steps may do at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a run, within the limits of the tenant's plan.

    \b
    Example:
      holdfast gwi runs start review gh-repo-42 --tenant gh-org-7 --number 7
    """

    async def start(gwi: Gwi, by: Operator) -> AgentRun:
        return await gwi.runs.start_run(by, RunRequest(
            type=type, repo_id=repo, number=number, title=title, instructions=instructions,
            risk_mode=risk_mode, trigger=RunTrigger(source="cli", user_id=by.actor),
        ))  # fmt: skip

    run = ctx.obj.operate_service(NAME, start, tenant_id=tenant)
    ctx.obj.print_result(run, f"{run.id} is started", as_json=as_json)


@commands.command("approve")
def approve_command(
    ctx: typer.Context, run: RunId, tenant: Tenant, reason: Reason = "", as_json: AsJson = False
) -> None:
    """Let a run go on with the changes that it proposes.

    \b
    Example:
      holdfast gwi runs approve run-m5v2kx8-a7b3c9d2 --tenant gh-org-7 --reason "looks right"
    """
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.runs.approve(by, run, reason=reason), tenant_id=tenant
    )
    ctx.obj.print_result(done, f"{run} goes on", as_json=as_json)


@commands.command("reject")
def reject_command(
    ctx: typer.Context, run: RunId, tenant: Tenant, reason: Reason = "", as_json: AsJson = False
) -> None:
    """Cancel a run instead of making the changes that it proposes.

    \b
    Example:
      holdfast gwi runs reject run-m5v2kx8-a7b3c9d2 --tenant gh-org-7 --reason "too large"
    """
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.runs.reject(by, run, reason=reason), tenant_id=tenant
    )
    ctx.obj.print_result(done, f"the changes of {run} are rejected", as_json=as_json)


@commands.command("cancel")
def cancel_command(
    ctx: typer.Context, run: RunId, tenant: Tenant, reason: Reason = CANCELLED, as_json: AsJson = False
) -> None:
    """Let no further step of a run begin.

    \b
    Example:
      holdfast gwi runs cancel run-m5v2kx8-a7b3c9d2 --tenant gh-org-7
    """
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.runs.cancel(by, run, reason=reason), tenant_id=tenant
    )
    text = "is cancelled" if done.status == "cancelled" else "ends when its present step does"
    ctx.obj.print_result(done, f"{run} {text}", as_json=as_json)


def _row(run: AgentRun) -> dict[str, Any]:
    return {
        "id": run.id, "type": run.type, "status": run.status, "approval": run.approval_status,
        "repoId": run.repo_id, "createdAt": run.created_at, "error": run.error,
    }  # fmt: skip
