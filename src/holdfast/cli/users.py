"""`holdfast users`: add, list and disable people; set passwords; make links."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, cast, get_args

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
from holdfast.config import load_config
from holdfast.errors import InvalidError
from holdfast.kit.access import SignInLinks, User, UserRole, Users
from holdfast.kit.access.passwords import check_password, hash_password
from holdfast.kit.access.sign_in_links import link_to
from holdfast.runtime import Runtime
from holdfast.store import Transaction

commands = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name they sign in with.")]


class _UserLine(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    role: str
    tenant_id: str
    created_at: datetime
    last_seen_at: datetime | None
    disabled_at: datetime | None


def _row(user: User) -> _UserLine:
    return _UserLine(user.id, user.role, user.tenant_id, user.created_at, user.last_seen_at, user.disabled_at)


def _known_role(role: str) -> str:
    if role not in get_args(UserRole):
        raise typer.BadParameter(f"{role!r} is none of {', '.join(get_args(UserRole))}")
    return role


def _address() -> str:
    config = load_config()
    return config.public_url or f"http://{config.host}:{config.port}"


@commands.command("add")
def add_command(
    name: _Name,
    role: Annotated[str, typer.Option(callback=_known_role, help=f"One of {', '.join(get_args(UserRole))}.")],
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Add somebody, and print the link by which they come in and choose their password.

    \b
    Examples:
      holdfast users add ann --role admin
      holdfast users add ben@acme.example --role viewer --tenant acme
    """

    async def act(runtime: Runtime) -> str:
        runtime.store.tenant(tenant)
        users = Users(runtime.store)
        user = await users.build(
            name, role=cast(UserRole, role), tenant_id=tenant, password=None, created_by="cli"
        )
        code, link = SignInLinks(runtime.store).write(user, created_by="cli")

        async def keep(tx: Transaction) -> None:
            await users.insert(user, tx)
            tx.write(link)

        await recorded(runtime, PLATFORM, keep, action="user.added", subject=user.id, details={"role": role})
        return link_to("link", code, _address())

    url = with_runtime(act)
    print_result({"name": name, "url": url}, f"{url}\nopen it once, within an hour", as_json=as_json)


@commands.command("list")
def list_command(limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """Show people, newest first.

    \b
    Examples:
      holdfast users list
      holdfast users list --json | jq -r '.items[] | select(.disabledAt == null) | .name'
    """

    async def act(runtime: Runtime) -> tuple[list[_UserLine], str | None]:
        found, after = await Users(runtime.store).page(limit=limit, cursor=cursor)
        return [_row(one) for one in found], after

    rows, after = with_runtime(act)
    columns = ("name", "role", "tenantId", "createdAt", "lastSeenAt", "disabledAt")
    print_table(rows, columns, as_json=as_json, cursor=after, none="nobody yet: holdfast users add --help")


@commands.command("disable")
def disable_command(name: _Name, as_json: AsJson = False) -> None:
    """End somebody's sessions and let them in no more, at once.

    \b
    Example:
      holdfast users disable ann
    """

    async def act(runtime: Runtime) -> None:
        users = Users(runtime.store)
        await recorded(
            runtime, PLATFORM, lambda tx: users.disable(name, tx), action="user.disabled", subject=name
        )

    with_runtime(act)
    print_result({"disabled": name}, f"disabled {name}", as_json=as_json)


@commands.command("enable")
def enable_command(name: _Name, as_json: AsJson = False) -> None:
    """Let somebody in again.

    \b
    Example:
      holdfast users enable ann
    """

    async def act(runtime: Runtime) -> None:
        users = Users(runtime.store)
        await recorded(
            runtime, PLATFORM, lambda tx: users.enable(name, tx), action="user.enabled", subject=name
        )

    with_runtime(act)
    print_result({"enabled": name}, f"enabled {name}", as_json=as_json)


@commands.command("sign-out")
def sign_out_command(name: _Name, as_json: AsJson = False) -> None:
    """End every session of somebody, on every device; they may sign in again.

    \b
    Example:
      holdfast users sign-out ann
    """

    async def act(runtime: Runtime) -> None:
        users = Users(runtime.store)
        await recorded(
            runtime, PLATFORM, lambda tx: users.end_sessions(name, tx), action="session.ended_everywhere",
            subject=name,
        )  # fmt: skip

    with_runtime(act)
    print_result({"signedOut": name}, f"{name} is signed out everywhere", as_json=as_json)


@commands.command("password")
def password_command(name: _Name, as_json: AsJson = False) -> None:
    """Set somebody's password, asked for here or read from the first line of a pipe; ends their sessions.

    \b
    Examples:
      holdfast users password ann
      pass show holdfast/ann | holdfast users password ann
    """
    password = _asked()
    check_password(password)

    async def act(runtime: Runtime) -> None:
        users, kept = Users(runtime.store), await hash_password(password)
        await recorded(
            runtime, PLATFORM, lambda tx: users.set_password_hash(name, kept, tx),
            action="user.password_set", subject=name,
        )  # fmt: skip

    with_runtime(act)
    print_result({"name": name}, f"{name} has a new password", as_json=as_json)


def _asked() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidError("the password is not UTF-8") from None


@commands.command("link")
def link_command(name: _Name, as_json: AsJson = False) -> None:
    """Print a link by which somebody sets a new password: it works once, within an hour.

    \b
    Examples:
      holdfast users link ann
      holdfast users link ann --json | jq -r .url
    """

    async def act(runtime: Runtime) -> str:
        links = SignInLinks(runtime.store)
        code = await recorded(
            runtime, PLATFORM, lambda tx: links.create(name, tx, created_by="cli"),
            action="user.link_made", subject=name,
        )  # fmt: skip
        return link_to("link", code, _address())

    url = with_runtime(act)
    print_result({"url": url}, url, as_json=as_json)
