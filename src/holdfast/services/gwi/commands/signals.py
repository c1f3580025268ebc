"""`holdfast gwi signals`: look at signals, record and process them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant
from holdfast.services.gwi.domain.subjects import ResourceType
from holdfast.services.gwi.models.work import SignalContext, SignalStatus, SourceRepo, WorkSignal
from holdfast.services.gwi.operations.signals import BATCH

commands = typer.Typer(help="Look at signals, record and process them.", no_args_is_help=True)
SignalId = Annotated[str, typer.Argument(metavar="SIGNAL", help="As `signals list` shows it.")]


@commands.command("list")
def list_command(
    ctx: typer.Context,
    tenant: Tenant,
    status: Annotated[SignalStatus | None, typer.Option(help="Signals in this state.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show signals, the newest first.

    \b
    Example:
      holdfast gwi signals list --tenant gh-org-7 --status failed
    """
    page = ctx.obj.with_service(
        NAME, lambda gwi: gwi.signals.page(tenant, status=status, limit=limit, cursor=cursor)
    )
    columns = ("id", "source", "action", "title", "status", "workItemId", "reason", "receivedAt")
    rows = [_row(one) for one in page.docs]
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="no signals like this")


def _row(signal: WorkSignal) -> dict[str, Any]:
    meta = signal.processing_meta
    return {
        "id": signal.id, "source": signal.source, "externalId": signal.external_id,
        "action": signal.context.action, "title": signal.context.title, "status": signal.status,
        "workItemId": meta.work_item_id if meta else None, "receivedAt": signal.received_at,
        "reason": (meta.ignored_reason or meta.error_message) if meta else None,
    }  # fmt: skip


@commands.command("record")
def record_command(
    ctx: typer.Context,
    external_id: Annotated[str, typer.Argument(metavar="ID", help="Unique among those by hand.")],
    tenant: Tenant,
    title: Annotated[str, typer.Option(metavar="TEXT", help="What is to be done.")],
    repo: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The repository.")] = "",
    repo_id: Annotated[int | None, typer.Option(metavar="NUMBER", help="Its id at GitHub.")] = None,
    kind: Annotated[ResourceType | None, typer.Option(help="What it is about.")] = None,
    number: Annotated[int | None, typer.Option(min=1, help="The issue or pull request.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Record a signal by hand; it becomes a work item soon after.

    \b
    Example:
      holdfast gwi signals record m1 --tenant gh-org-7 --title "Raise the price" --repo acme/shop --repo-id 42
    """
    owner, _, name = repo.partition("/")
    named = SourceRepo(owner=owner, name=name, full_name=repo, id=repo_id) if repo else None
    context = SignalContext(
        repo=named, resource_type=kind, resource_number=number, title=title, labels=label or []
    )
    done = ctx.obj.operate_service(
        NAME,
        lambda gwi, by: gwi.signals.record(by, source="manual", external_id=external_id, context=context),
        tenant_id=tenant,
    )
    ctx.obj.print_result(_row(done), f"{done.id} is recorded", as_json=as_json)


@commands.command("process")
def process_command(
    ctx: typer.Context,
    tenant: Tenant,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = BATCH,
    as_json: AsJson = False,
) -> None:
    """Turn pending signals into work items now, the oldest first.

    \b
    Example:
      holdfast gwi signals process --tenant gh-org-7
    """
    report = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.signals.process(by, limit=limit), tenant_id=tenant
    )
    text = f"{report.processed} processed, {report.ignored} ignored, {report.failed} failed"
    ctx.obj.print_result(report, text, as_json=as_json)


@commands.command("retry")
def retry_command(ctx: typer.Context, signal: SignalId, tenant: Tenant, as_json: AsJson = False) -> None:
    """Have a failed signal processed again.

    \b
    Example:
      holdfast gwi signals retry sig-m5v2kxd-y1z0a9b8 --tenant gh-org-7
    """
    done = ctx.obj.operate_service(NAME, lambda gwi, by: gwi.signals.retry(by, signal), tenant_id=tenant)
    ctx.obj.print_result(_row(done), f"{done.id} is {done.status}", as_json=as_json)
