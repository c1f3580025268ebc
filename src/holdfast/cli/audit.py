"""`holdfast audit`: list, verify or export a tenant's audit trails."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    Tenants,
    print_table,
    services_of,
    verify_trail,
    with_runtime,
)
from holdfast.errors import ConfigError
from holdfast.ids import ulid
from holdfast.kit import ALL_TENANTS
from holdfast.operations import audit
from holdfast.runtime import KIT_PART, Runtime

commands = typer.Typer(no_args_is_help=True)

_Trail = Annotated[
    str, typer.Option("--trail", metavar="NAME", help="The trail: the kit's own, or a service's.")
]


@commands.command("list")
def list_command(
    action: Annotated[str | None, typer.Option(metavar="TEXT", help="Of this kind alone.")] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="ID", help="What this one did; the prefix may be left out.")
    ] = None,
    subject: Annotated[str | None, typer.Option(metavar="ID", help="What was done to this.")] = None,
    trail: _Trail = KIT_PART,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show who did what to what, newest first.

    \b
    Examples:
      holdfast audit list --tenant acme
      holdfast audit list --tenant acme --actor ann@acme.example
      holdfast audit list --action delivery.replayed --json | jq -r '.items[].actor'
    """
    if sum(given is not None for given in (action, actor, subject)) > 1:
        raise typer.BadParameter("give one of --action, --actor and --subject")
    page = with_runtime(
        lambda runtime: audit.list_events(
            runtime, tenant, trail, action=action, actor=actor, subject=subject, limit=limit, cursor=cursor
        ),
        services=services_of(trail),
    )
    columns = ("sequence", "at", "actor", "action", "outcome", "subject")
    none = "nothing is on record like this"
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none, tenant=tenant)


@commands.command("verify")
def verify_command(trail: _Trail = KIT_PART, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Walk the whole chain: finds any change, gap, insertion, reorder or cut-off tail.

    \b
    Examples:
      holdfast audit verify --tenant acme
      holdfast audit verify --tenant acme --trail reviews

    Exit code 0 when it is sound, 1 when it is not.
    """
    verify_trail(trail, tenant, as_json=as_json)


@commands.command("export")
def export_command(
    trail: _Trail = KIT_PART,
    tenant: Tenant = PLATFORM,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write there instead of printing.")] = None,
) -> None:
    """Write the chain as JSON lines, oldest first.

    \b
    Examples:
      holdfast audit export --tenant acme > acme-audit.jsonl
      holdfast audit export --tenant acme --out acme-audit.jsonl
    """

    async def copy(runtime: Runtime, file: BinaryIO) -> None:
        async for line in audit.export(runtime, tenant, trail):
            file.write(line)
        file.flush()

    if out is None:
        with_runtime(lambda runtime: copy(runtime, sys.stdout.buffer), services=services_of(trail))
        return
    try:
        with _replacing(Path(out)) as file:
            with_runtime(lambda runtime: copy(runtime, file), services=services_of(trail))
    except OSError as fault:
        raise ConfigError(f"can't write {out}: {fault.strerror}") from None


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears once it is complete, so that a failed export replaces no good one."""
    if path.exists() and not path.is_file():
        # A device or a pipe: nothing can be put in its place.
        with path.open("wb") as file:
            yield file
        return
    # What a link leads to, never the link itself.
    path = path.resolve()
    unfinished = path.with_name(f".{path.name}.{ulid()}")
    try:
        with unfinished.open("xb") as file:
            yield file
        if path.exists():
            shutil.copymode(path, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
