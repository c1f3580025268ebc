"""`holdfast tokens`: make, list and revoke API tokens."""

from __future__ import annotations

import re
from typing import Annotated, Final, cast

import msgspec
import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    operate,
    print_result,
    print_table,
    with_runtime,
    word_option,
)
from holdfast.kit.access import TokenRole
from holdfast.operation import Operator
from holdfast.operations import tokens
from holdfast.operations.tokens import TokenRevoked
from holdfast.runtime import Runtime

commands = typer.Typer(no_args_is_help=True)

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _seconds(text: str | None) -> float | None:
    parsed = re.fullmatch(r"(\d{1,9})([smhd])", text) if text is not None else None
    if text is not None and parsed is None:
        raise typer.BadParameter("write a number and s, m, h or d, as in 90d", param_hint="--expires-in")
    return None if parsed is None else float(parsed[1]) * _UNITS[parsed[2]]


@commands.command("create")
def create_command(
    name: Annotated[str, typer.Argument(help="What it is for; shown in lists.")],
    role: Annotated[str, word_option(TokenRole)],
    tenant: Tenant = PLATFORM,
    scope: Annotated[
        list[str] | None, typer.Option(help="The most it may do, as in deliveries:read; may be repeated.")
    ] = None,
    expires_in: Annotated[str | None, typer.Option(metavar="TIME", help="As in 90d, 12h, 30m.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown once: keep it now.

    \b
    Examples:
      holdfast tokens create admin --role admin
      holdfast tokens create dashboards --role viewer --tenant acme --expires-in 90d
      holdfast tokens create drain --role service --scope work:drain --json
    """
    expires_in_s = _seconds(expires_in)
    created = operate(
        tenant,
        lambda runtime, by: tokens.create(
            runtime, by, name, role=cast(TokenRole, role), scopes=scope or ["*"], expires_in_s=expires_in_s
        ),
        services=(),
    )
    print_result(created, created.token, as_json=as_json)


@commands.command("list")
def list_command(
    tenant: Annotated[str | None, typer.Option(metavar="ID", help="Of this tenant alone.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens, newest first; never the tokens themselves.

    \b
    Examples:
      holdfast tokens list
      holdfast tokens list --json | jq '.items[] | select(.revokedAt == null) | .name'
    """
    page = with_runtime(lambda runtime: tokens.list_tokens(runtime, tenant, limit=limit, cursor=cursor))
    columns = ("id", "name", "role", "tenantId", "expiresAt", "revokedAt", "lastUsedAt")
    none = "no tokens yet: holdfast tokens create --help"
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none)


@commands.command("revoke")
def revoke_command(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `tokens list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Let nobody in with this token any more, at once.

    \b
    Example:
      holdfast tokens revoke 4kd7q2mzj5xw3abc
    """

    async def act(runtime: Runtime, by: Operator) -> TokenRevoked:
        tenant_id = (await tokens.get(runtime, token_id)).tenant_id
        return await tokens.revoke(runtime, msgspec.structs.replace(by, tenant_id=tenant_id), token_id)

    print_result(operate(PLATFORM, act, services=()), f"revoked {token_id}", as_json=as_json)
