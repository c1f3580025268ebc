"""`holdfast tokens`: make, list and revoke API tokens."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, cast, get_args

import msgspec
import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    print_result,
    print_table,
    recorded,
    with_runtime,
)
from holdfast.kit.access import ApiTokens, TokenRole
from holdfast.runtime import Runtime
from holdfast.store import Transaction

commands = typer.Typer(no_args_is_help=True)

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class _TokenLine(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    name: str
    role: str
    tenant_id: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


def _known_role(role: str) -> str:
    if role not in get_args(TokenRole):
        raise typer.BadParameter(f"{role!r} is none of {', '.join(get_args(TokenRole))}")
    return role


def _seconds(text: str | None) -> float | None:
    told = re.fullmatch(r"(\d{1,9})([smhd])", text) if text is not None else None
    if text is not None and told is None:
        raise typer.BadParameter("write a number and s, m, h or d, as in 90d", param_hint="--expires-in")
    return None if told is None else float(told[1]) * _UNITS[told[2]]


@commands.command("create")
def create_command(
    name: Annotated[str, typer.Argument(help="What it is for; shown in lists.")],
    role: Annotated[
        str, typer.Option(callback=_known_role, help=f"One of {', '.join(get_args(TokenRole))}.")
    ],
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
    lasting = _seconds(expires_in)

    async def act(runtime: Runtime) -> str:
        made, write = ApiTokens(runtime.store).write(
            name, role=cast(TokenRole, role), tenant_id=tenant, scopes=scope or ["*"], expires_in_s=lasting
        )

        async def keep(tx: Transaction) -> None:
            tx.write(write)

        await recorded(runtime, tenant, keep, action="token.created", subject=name, details={"role": role})
        return made

    token = with_runtime(act)
    print_result({"token": token}, token, as_json=as_json)


@commands.command("list")
def list_command(limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """Show tokens, newest first; never the tokens themselves.

    \b
    Examples:
      holdfast tokens list
      holdfast tokens list --json | jq '.items[] | select(.revokedAt == null) | .name'
    """

    async def act(runtime: Runtime) -> tuple[list[_TokenLine], str | None]:
        found, after = await ApiTokens(runtime.store).page(limit=limit, cursor=cursor)
        return [
            _TokenLine(*(getattr(one, field) for field in _TokenLine.__struct_fields__)) for one in found
        ], after

    rows, after = with_runtime(act)
    columns = ("id", "name", "role", "tenantId", "expiresAt", "revokedAt", "lastUsedAt")
    print_table(
        rows, columns, as_json=as_json, cursor=after, none="no tokens yet: holdfast tokens create --help"
    )


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

    async def act(runtime: Runtime) -> None:
        tokens = ApiTokens(runtime.store)
        await recorded(
            runtime, PLATFORM, lambda tx: tokens.revoke(token_id, tx), action="token.revoked",
            subject=token_id,
        )  # fmt: skip

    with_runtime(act)
    print_result({"revoked": token_id}, f"revoked {token_id}", as_json=as_json)
