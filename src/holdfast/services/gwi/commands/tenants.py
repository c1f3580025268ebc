"""`holdfast gwi tenants`: list, pause, suspend, change the plan, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import typer

from holdfast.operation import Operator
from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant
from holdfast.services.gwi.domain.plans import PlanName
from holdfast.services.gwi.models.tenants import Tenant as TenantDocument
from holdfast.services.gwi.operations import Gwi

commands = typer.Typer(help="Tenants: list, pause, suspend, plan, delete.", no_args_is_help=True)
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit trail.")]
_COLUMNS = ("id", "githubOrgLogin", "plan", "status", "pausedAt", "runsThisMonth", "createdAt")


@commands.command("list")
def list_tenants(
    ctx: typer.Context, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show all tenants, the newest first.

    \b
    Example:
      holdfast gwi tenants list
    """
    page = ctx.obj.with_service(NAME, lambda gwi: gwi.tenants.page(limit=limit, cursor=cursor))
    rows = [_tenant(one) for one in page.docs]
    none = "no tenant yet; installing the GitHub App makes one"
    ctx.obj.print_table(rows, _COLUMNS, as_json=as_json, cursor=page.cursor, none=none)


def _tenant(tenant: TenantDocument) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(tenant)
    return shown


def _change(
    ctx: typer.Context,
    tenant: str,
    act: Callable[[Gwi, Operator], Awaitable[TenantDocument]],
    *,
    text: str,
    as_json: bool,
) -> None:
    changed = ctx.obj.operate_service(NAME, act, tenant_id=tenant)
    ctx.obj.print_result(changed, f"{changed.github_org_login} {text}", as_json=as_json)


@commands.command()
def pause(ctx: typer.Context, tenant: Tenant, reason: Reason = "", as_json: AsJson = False) -> None:
    """Let no run start until the tenant is resumed.

    \b
    Example:
      holdfast gwi tenants pause --tenant gh-org-7 --reason "release week"
    """
    _change(
        ctx, tenant, lambda gwi, by: gwi.tenants.pause(by, reason=reason), text="is paused", as_json=as_json
    )


@commands.command()
def resume(ctx: typer.Context, tenant: Tenant, as_json: AsJson = False) -> None:
    """Let runs start again.

    \b
    Example:
      holdfast gwi tenants resume --tenant gh-org-7
    """
    _change(ctx, tenant, lambda gwi, by: gwi.tenants.resume(by), text="is resumed", as_json=as_json)


@commands.command()
def suspend(ctx: typer.Context, tenant: Tenant, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse runs until the tenant is activated again.

    \b
    Example:
      holdfast gwi tenants suspend --tenant gh-org-7 --reason "payment is late"
    """
    _change(
        ctx, tenant, lambda gwi, by: gwi.tenants.suspend(by, reason=reason), text="is suspended",
        as_json=as_json,
    )  # fmt: skip


@commands.command()
def activate(ctx: typer.Context, tenant: Tenant, reason: Reason = "", as_json: AsJson = False) -> None:
    """End a suspension, or take a deactivated tenant into use again.

    \b
    Example:
      holdfast gwi tenants activate --tenant gh-org-7
    """
    _change(
        ctx, tenant, lambda gwi, by: gwi.tenants.activate(by, reason=reason), text="is active",
        as_json=as_json,
    )  # fmt: skip


@commands.command()
def deactivate(ctx: typer.Context, tenant: Tenant, reason: Reason = "", as_json: AsJson = False) -> None:
    """Take a tenant out of use; members and documents stay.

    \b
    Example:
      holdfast gwi tenants deactivate --tenant gh-org-7
    """
    _change(
        ctx, tenant, lambda gwi, by: gwi.tenants.deactivate(by, reason=reason), text="is deactivated",
        as_json=as_json,
    )  # fmt: skip


@commands.command("plan")
def change_plan(
    ctx: typer.Context,
    tenant: Tenant,
    plan: Annotated[PlanName, typer.Argument(help="The plan to change to.")],
    as_json: AsJson = False,
) -> None:
    """Change the plan, and with it the limits.

    \b
    Example:
      holdfast gwi tenants plan --tenant gh-org-7 team
    """
    _change(
        ctx, tenant, lambda gwi, by: gwi.tenants.change_plan(by, plan), text=f"has the plan {plan}",
        as_json=as_json,
    )  # fmt: skip


@commands.command("delete")
def delete_tenant(
    ctx: typer.Context,
    tenant: Tenant,
    confirm: Annotated[str, typer.Option(metavar="LOGIN", help="The organisation's login, to be sure.")],
    as_json: AsJson = False,
) -> None:
    """Delete members, invitations and connectors of a tenant; audit and usage stay.

    \b
    Example:
      holdfast gwi tenants delete --tenant gh-org-7 --confirm acme
    """
    _change(
        ctx, tenant, lambda gwi, by: gwi.tenants.delete(by, confirm=confirm), text="is deleted",
        as_json=as_json,
    )  # fmt: skip
