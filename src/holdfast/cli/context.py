"""What most commands do: open the store, act, close it, and print what came of it."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.config import load_config
from holdfast.kit import ALL_TENANTS, NO_TENANT
from holdfast.logs import log_to_stderr
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.operations import audit
from holdfast.plural import plural
from holdfast.runtime import KIT_PART, Runtime, find_services
from holdfast.service import Service

T = TypeVar("T")
PIPE_COLUMNS = 240
# Control characters but tabs and ends of lines, and those that turn the direction of writing.
_COMMANDING: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Tenant: TypeAlias = Annotated[str, typer.Option(metavar="ID", help="The tenant; '-' is the platform itself.")]
Tenants: TypeAlias = Annotated[
    str, typer.Option("--tenant", metavar="ID", help="One tenant; '-' is the platform itself, '*' all.")
]
Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=1_000, help="At most this many.")]
Cursor: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Go on where the last page ended.")
]
PLATFORM = NO_TENANT
TENANT_COLUMN: Final = "tenantId"


def with_runtime(act: Callable[[Runtime], Awaitable[T]], *, services: Sequence[Service] | None = ()) -> T:
    """Run an act on the configured store. Without services unless told: what they keep is not needed."""
    log_to_stderr()

    async def run() -> T:
        runtime = await Runtime.open(load_config(), services=services)
        try:
            return await act(runtime)
        finally:
            await runtime.close()

    return asyncio.run(run())


def services_of(part: str) -> Sequence[Service] | None:
    """The services to open for a named part: none for the kit's own, whatever state the services are in."""
    return () if part == KIT_PART else None


def operate(
    tenant_id: str,
    act: Callable[[Runtime, Operator], Awaitable[T]],
    *,
    services: Sequence[Service] | None = None,
) -> T:
    """Call an operation on the configured store as the person at this terminal.

    Example: `operate(tenant, lambda runtime, by: runs.wake(runtime, by, collection, run_id))`
    """
    return with_runtime(
        lambda runtime: act(runtime, runtime.operator(SERVICE, tenant_id, actor=os_actor())),
        services=services,
    )


def with_service(service: str, act: Callable[[Any], Awaitable[T]]) -> T:
    """Run an act on what a service works with (its `Parts.operations`), on the configured store."""

    return with_runtime(lambda runtime: act(runtime.parts[service].operations), services=_only(service))


def operate_service(
    service: str, act: Callable[[Any, Operator], Awaitable[T]], *, tenant_id: str = PLATFORM
) -> T:
    """Call an operation of a service as the person at this terminal.

    Example: `ctx.obj.operate_service("greetings", lambda operations, by: operations.greet(by, name))`
    """
    return operate(
        tenant_id, lambda runtime, by: act(runtime.parts[service].operations, by), services=_only(service)
    )


def verify_trail(trail: str, tenant_id: str, *, as_json: bool) -> None:
    """Verify an audit trail and its checkpoints, and print the verdict; exit code 1 where it is not sound.

    Example: `ctx.obj.verify_trail("reviews", tenant, as_json=as_json)`
    """
    verdict = with_runtime(
        lambda runtime: audit.verify(runtime, tenant_id, trail), services=services_of(trail)
    )
    text = plural(verdict.events, "event holds", "events hold")
    if verdict.fault is not None:
        text += f"; then {verdict.fault.kind} at {verdict.fault.sequence}: {verdict.fault.message}"
    print_result(verdict, text, as_json=as_json)
    if not verdict.sound:
        raise typer.Exit(1)


def _only(service: str) -> list[Service]:
    return [one for one in find_services() if one.name == service]


def os_actor() -> str:
    """Who types here, as the audit trail names them: by their name on this machine."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


def word_option(words: Any, help: str = "", **more: Any) -> Any:
    """An option that takes only the words of a Literal or a sequence; its help lists them unless given.

    Example: `status: Annotated[str | None, word_option(RunStatus, metavar="STATUS")] = None`
    """
    known = get_args(words) or words
    listed = ", ".join(known)

    def check(word: str | None) -> str | None:
        if word is not None and word not in known:
            raise typer.BadParameter(f"{word!r} is none of {listed}")
        return word

    return typer.Option(callback=check, help=help or f"One of {listed}.", **more)


def as_dict(value: Any) -> dict[str, Any]:
    """A row as JSON would have it."""
    row: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    return row


def print_result(answer: Any, text: str, *, as_json: bool) -> None:
    """One thing: for programs as JSON, for people as a line."""
    typer.echo(escape_control(msgspec.json.encode(answer).decode() if as_json else text))


def escape_control(text: str) -> str:
    """The text without what commands a terminal: what outsiders sent must not style, rename or hide.

    Written as JSON writes such characters, so that JSON stays the same JSON.
    """
    return _COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_facts(row: Any, *, leave_out: Sequence[str] = (), **more: str) -> None:
    """One row for people: a line for each field, and for each of those told besides."""
    facts = {name: value for name, value in as_dict(row).items() if name not in leave_out} | more
    typer.echo(escape_control("\n".join(f"{name}: {_text(value)}" for name, value in facts.items())))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)


def print_table(
    rows: Iterable[Any],
    columns: Sequence[str],
    *,
    as_json: bool,
    cursor: str | None = None,
    none: str = "",
    tenant: str = "",
) -> None:
    """Rows as a table of these columns, or whole as JSON with the cursor of the next page.

    `none` says that there are no rows; with `tenant` it says how to look at another. Where that is all of
    them, each row says whose it is.
    """
    if tenant == ALL_TENANTS:
        columns = (columns[0], TENANT_COLUMN, *columns[1:])
    found = [as_dict(row) for row in rows]
    if as_json:
        typer.echo(escape_control(msgspec.json.encode({"items": found, "cursor": cursor}).decode()))
        return
    if not found:
        typer.echo(none or "nothing there")
        if tenant == PLATFORM:
            typer.echo("this is the platform itself; --tenant ID looks at a tenant")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in found:
        # As `Text`, or square brackets would style it.
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
    console.print(table, markup=False)
    if cursor:
        typer.echo(f"more: --cursor {cursor}")


def _cell(value: Any) -> Any:
    return Text("" if value is None else escape_control(str(value)))
