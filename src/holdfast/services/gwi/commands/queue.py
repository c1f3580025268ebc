"""`holdfast gwi queue`: work items by score, and what people do to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import UNSET

from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant
from holdfast.services.gwi.domain.subjects import WorkType
from holdfast.services.gwi.models.work import LIVE, WorkItem
from holdfast.services.gwi.operations.queue import STATUSES, ItemChange, QueueFilter

commands = typer.Typer(help="Work items by score, and what people do to them.", no_args_is_help=True)
ItemId = Annotated[str, typer.Argument(metavar="ITEM", help="As `queue list` shows it.")]
Moment = Annotated[datetime | None, typer.Option(metavar="TIME", help="In UTC, 2026-03-01T09:00:00.")]
NOBODY = "nobody"


@commands.command("list")
def list_command(
    ctx: typer.Context,
    tenant: Tenant,
    status: Annotated[
        list[str] | None, typer.Option(metavar="STATUS", help=f"{', '.join(STATUSES)}; may be repeated.")
    ] = None,
    type: Annotated[WorkType | None, typer.Option(help="Of this type.")] = None,
    repo: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="Of this repository.")] = None,
    assignee: Annotated[str | None, typer.Option(metavar="ID", help="Assigned to this member.")] = None,
    min_score: Annotated[int | None, typer.Option(min=0, max=100, help="With this score or more.")] = None,
    snoozed: Annotated[bool, typer.Option("--snoozed", help="Those that are snoozed.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show work items by score, the highest first; live ones unless a state is named.

    \b
    Examples:
      holdfast gwi queue list --tenant gh-org-7 --min-score 60
      holdfast gwi queue list --tenant gh-org-7 --status dismissed --json
    """
    if unknown := set(status or ()) - set(STATUSES):
        raise typer.BadParameter(f"{sorted(unknown)[0]!r} is none of {', '.join(STATUSES)}")
    statuses = tuple(one for one in STATUSES if one in (status or LIVE))
    chosen = QueueFilter(
        statuses=statuses, type=type, repo=repo, assignee=assignee, min_score=min_score,
        snoozed=snoozed,
    )  # fmt: skip
    page = ctx.obj.with_service(NAME, lambda gwi: gwi.queue.page(tenant, chosen, limit=limit, cursor=cursor))
    columns = ("id", "score", "type", "status", "repo", "number", "title", "assignedTo", "dueAt")
    rows = [_row(one) for one in page.docs]
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="no work items like this")


def _row(item: WorkItem) -> dict[str, Any]:
    return {
        "id": item.id, "score": item.score, "type": item.type, "status": item.status,
        "repo": item.repo.full_name if item.repo else None, "number": item.resource_number,
        "title": item.title, "assignedTo": item.assigned_to, "dueAt": item.due_at,
        "snoozedUntil": item.snoozed_until, "candidateId": item.candidate_id,
    }  # fmt: skip


@commands.command("show")
def show_command(ctx: typer.Context, item: ItemId, tenant: Tenant, as_json: AsJson = False) -> None:
    """Show one work item and why it has its score.

    \b
    Example:
      holdfast gwi queue show wi-m5v2kxe-c7d6e5f4 --tenant gh-org-7
    """
    found: WorkItem = ctx.obj.with_service(NAME, lambda gwi: gwi.queue.get(tenant, item))
    text = f"{found.title}: {found.status}\n{found.score_breakdown.explanation}"
    ctx.obj.print_result(msgspec.to_builtins(found), text, as_json=as_json)


@commands.command("stats")
def stats_command(ctx: typer.Context, tenant: Tenant, as_json: AsJson = False) -> None:
    """Show how many work items there are.

    \b
    Example:
      holdfast gwi queue stats --tenant gh-org-7
    """
    stats = ctx.obj.with_service(NAME, lambda gwi: gwi.queue.stats(tenant))
    parts = [f"{count} {status}" for status, count in stats.by_status.items() if count]
    ctx.obj.print_result(stats, ", ".join(parts) or "no work items", as_json=as_json)


@commands.command("dismiss")
def dismiss_command(
    ctx: typer.Context,
    item: ItemId,
    tenant: Tenant,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why nobody is going to do it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Dismiss a work item.

    \b
    Example:
      holdfast gwi queue dismiss wi-m5v2kxe-c7d6e5f4 --tenant gh-org-7 --reason "a duplicate"
    """
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.queue.dismiss(by, item, reason=reason), tenant_id=tenant
    )
    ctx.obj.print_result(_row(done), f"{done.id} is {done.status}", as_json=as_json)


@commands.command("change")
def change_command(
    ctx: typer.Context,
    items: Annotated[list[str], typer.Argument(metavar="ITEM", help="One or more, all or none.")],
    tenant: Tenant,
    assign: Annotated[str | None, typer.Option(metavar="ID", help="A member, or nobody.")] = None,
    snooze_until: Moment = None,
    wake: Annotated[bool, typer.Option("--wake", help="End a snooze.")] = False,
    due: Moment = None,
    status: Annotated[
        Literal["queued", "in_progress", "completed", "dismissed"] | None, typer.Option(help="Move it there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Assign, snooze, date or move work items.

    \b
    Examples:
      holdfast gwi queue change wi-1 wi-2 --tenant gh-org-7 --assign oidc:dora@example.com
      holdfast gwi queue change wi-1 --tenant gh-org-7 --snooze-until 2026-03-01T09:00:00
    """
    change = ItemChange(
        status=status or UNSET,
        assigned_to=UNSET if assign is None else None if assign == NOBODY else assign,
        snoozed_until=None if wake else _utc(snooze_until) or UNSET,
        due_at=_utc(due) or UNSET,
    )
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.queue.change(by, items, change), tenant_id=tenant
    )
    ctx.obj.print_table(
        [_row(one) for one in done], ("id", "status", "assignedTo", "dueAt", "snoozedUntil"), as_json=as_json
    )


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=UTC)
