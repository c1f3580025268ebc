"""`holdfast gwi members`: list, invite, give roles, remove."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant, convert_options
from holdfast.services.gwi.models.tenants import MemberRole
from holdfast.services.gwi.operations.members import MemberChange, NewInvite

commands = typer.Typer(help="Members and invitations of a tenant.", no_args_is_help=True)


@commands.command("list")
def list_members(
    ctx: typer.Context, tenant: Tenant, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show the members of a tenant.

    \b
    Example:
      holdfast gwi members list --tenant gh-org-7
    """
    page = ctx.obj.with_service(NAME, lambda gwi: gwi.members.page(tenant, limit=limit, cursor=cursor))
    columns = ("userId", "role", "status", "invitedBy", "createdAt")
    ctx.obj.print_table(page.docs, columns, as_json=as_json, cursor=page.cursor, none="no members")


@commands.command()
def invite(
    ctx: typer.Context,
    tenant: Tenant,
    email: Annotated[str, typer.Argument(metavar="ADDRESS")],
    role: Annotated[MemberRole, typer.Option(help="Their role.")] = "developer",
    as_json: AsJson = False,
) -> None:
    """Invite somebody and print the token that accepts the invitation.

    \b
    Example:
      holdfast gwi members invite --tenant gh-org-7 ann@example.com --role admin
    """
    asked = convert_options({"email": email, "role": role}, NewInvite)
    sent = ctx.obj.operate_service(NAME, lambda gwi, by: gwi.members.invite(by, asked), tenant_id=tenant)
    ctx.obj.print_result(
        sent, f"{email} accepts with {sent.token} until {sent.invite.expires_at:%F}", as_json=as_json
    )


@commands.command("role")
def change_role(
    ctx: typer.Context,
    tenant: Tenant,
    user_id: Annotated[str, typer.Argument(metavar="USER")],
    role: Annotated[MemberRole, typer.Argument(help="Their new role.")],
    as_json: AsJson = False,
) -> None:
    """Give a member another role.

    \b
    Example:
      holdfast gwi members role --tenant gh-org-7 github:583231 admin
    """
    changed = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.members.change(by, user_id, MemberChange(role=role)), tenant_id=tenant
    )
    ctx.obj.print_result(changed, f"{user_id} is {role} now", as_json=as_json)


@commands.command()
def remove(
    ctx: typer.Context,
    tenant: Tenant,
    user_id: Annotated[str, typer.Argument(metavar="USER")],
    as_json: AsJson = False,
) -> None:
    """Remove a member.

    \b
    Example:
      holdfast gwi members remove --tenant gh-org-7 github:583231
    """
    removed = ctx.obj.operate_service(NAME, lambda gwi, by: gwi.members.remove(by, user_id), tenant_id=tenant)
    ctx.obj.print_result(removed, f"{user_id} is removed", as_json=as_json)
