"""`holdfast gwi repos`: list, connect, disconnect."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant, convert_options
from holdfast.services.gwi.operations.repos import NewRepo

commands = typer.Typer(help="Repositories of a tenant.", no_args_is_help=True)


@commands.command("list")
def list_repos(
    ctx: typer.Context, tenant: Tenant, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show the repositories of a tenant.

    \b
    Example:
      holdfast gwi repos list --tenant gh-org-7
    """
    page = ctx.obj.with_service(NAME, lambda gwi: gwi.repos.page(tenant, limit=limit, cursor=cursor))
    columns = ("id", "githubFullName", "enabled", "totalRuns", "failedRuns", "addedAt")
    ctx.obj.print_table(page.docs, columns, as_json=as_json, cursor=page.cursor, none="no repository")


@commands.command()
def connect(
    ctx: typer.Context,
    tenant: Tenant,
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME")],
    number: Annotated[int, typer.Argument(metavar="ID", help="The repository's number at GitHub.")],
    as_json: AsJson = False,
) -> None:
    """Connect a repository.

    \b
    Example:
      holdfast gwi repos connect --tenant gh-org-7 acme/shop 987654321
    """
    asked = convert_options({"githubRepoId": number, "githubFullName": name}, NewRepo)
    (repo,) = ctx.obj.operate_service(NAME, lambda gwi, by: gwi.repos.connect(by, [asked]), tenant_id=tenant)
    ctx.obj.print_result(repo, f"{name} is connected as {repo.id}", as_json=as_json)


@commands.command()
def disconnect(
    ctx: typer.Context,
    tenant: Tenant,
    repo_id: Annotated[str, typer.Argument(metavar="REPO", help="As `repos list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Disable a repository; its history stays.

    \b
    Example:
      holdfast gwi repos disconnect --tenant gh-org-7 gh-repo-987654321
    """
    repo = ctx.obj.operate_service(NAME, lambda gwi, by: gwi.repos.disconnect(by, repo_id), tenant_id=tenant)
    ctx.obj.print_result(repo, f"{repo.github_full_name} is disconnected", as_json=as_json)
