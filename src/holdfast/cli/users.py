"""`holdfast users`: add people who may sign in, give them links, sign them out, disable them."""

from __future__ import annotations

import sys
from typing import Annotated, cast

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
from holdfast.config import load_config
from holdfast.errors import InvalidError
from holdfast.kit.access import UserRole
from holdfast.kit.access.passwords import check_password
from holdfast.operations import users

commands = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name they sign in with.")]


def _address() -> str:
    config = load_config()
    return config.public_url or f"http://{config.host}:{config.port}"


@commands.command("add")
def add_command(
    name: _Name,
    role: Annotated[str, word_option(UserRole)],
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Add a person, and print the link by which they come in and choose their password.

    \b
    Examples:
      holdfast users add ann --role admin
      holdfast users add ben@acme.example --role viewer --tenant acme
    """
    added = operate(
        PLATFORM,
        lambda runtime, by: users.add(
            runtime, by, name, role=cast(UserRole, role), tenant_id=tenant, address=_address()
        ),
        services=(),
    )
    text = f"{added.url}\nopen it once, within an hour"
    print_result({"name": name, "url": added.url}, text, as_json=as_json)


@commands.command("list")
def list_command(
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="Those with this anywhere in their name, of 5,000 at a time.")
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show people, newest first.

    \b
    Examples:
      holdfast users list
      holdfast users list --name acme
      holdfast users list --json | jq -r '.items[] | select(.disabledAt == null) | .name'
    """
    page = with_runtime(lambda runtime: users.list_users(runtime, name=name, limit=limit, cursor=cursor))
    columns = ("name", "role", "tenantId", "createdAt", "lastSeenAt", "disabledAt")
    none = f"nobody has {name!r} in their name" if name else "nobody yet: holdfast users add --help"
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none)


@commands.command("disable")
def disable_command(name: _Name, as_json: AsJson = False) -> None:
    """End a person's sessions and let them in no more, at once.

    \b
    Example:
      holdfast users disable ann
    """
    operate(PLATFORM, lambda runtime, by: users.disable(runtime, by, name), services=())
    print_result({"disabled": name}, f"disabled {name}", as_json=as_json)


@commands.command("enable")
def enable_command(name: _Name, as_json: AsJson = False) -> None:
    """Let a disabled person in again.

    \b
    Example:
      holdfast users enable ann
    """
    operate(PLATFORM, lambda runtime, by: users.enable(runtime, by, name), services=())
    print_result({"enabled": name}, f"enabled {name}", as_json=as_json)


@commands.command("sign-out")
def sign_out_command(name: _Name, as_json: AsJson = False) -> None:
    """End every session of a person, on every device; they may sign in again.

    \b
    Example:
      holdfast users sign-out ann
    """
    operate(PLATFORM, lambda runtime, by: users.sign_out(runtime, by, name), services=())
    print_result({"signedOut": name}, f"{name} is signed out everywhere", as_json=as_json)


@commands.command("password")
def password_command(name: _Name, as_json: AsJson = False) -> None:
    """Set a person's password, asked for here or read from the first line of a pipe; ends their sessions.

    \b
    Examples:
      holdfast users password ann
      pass show holdfast/ann | holdfast users password ann
    """
    password = _read_password()
    check_password(password)
    operate(
        PLATFORM, lambda runtime, by: users.set_password(runtime, by, name, password=password), services=()
    )
    print_result({"name": name}, f"{name} has a new password", as_json=as_json)


def _read_password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidError("the password is not UTF-8") from None


@commands.command("link")
def link_command(name: _Name, as_json: AsJson = False) -> None:
    """Print a link by which a person sets a new password: it works once, within an hour.

    \b
    Examples:
      holdfast users link ann
      holdfast users link ann --json | jq -r .url
    """
    link = operate(
        PLATFORM, lambda runtime, by: users.make_link(runtime, by, name, address=_address()), services=()
    )
    print_result(link, link.url, as_json=as_json)
