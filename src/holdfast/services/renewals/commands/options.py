"""What the service's commands have in common."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import date, datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from holdfast.kit import NO_TENANT
from holdfast.kit.runs import RunModels, Runner, Workflow
from holdfast.operation import Operator
from holdfast.service import CommandContext
from holdfast.services.renewals.operations import Renewals

T = TypeVar("T")
OWN = NO_TENANT

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Tenant: TypeAlias = Annotated[
    str, typer.Option(metavar="ID", help="Whose portfolio; '-' unless there are several.")
]
Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")]
Cursor: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Go on where the last page ended.")
]
PropertyId: TypeAlias = Annotated[str, typer.Argument(metavar="PROPERTY", help="The property's id.")]


def terminal(ctx: typer.Context) -> CommandContext:
    found: CommandContext = ctx.obj
    return found


def with_renewals(ctx: typer.Context, act: Callable[[Renewals], Awaitable[T]]) -> T:
    """Run an act on the service, on the configured store."""
    return terminal(ctx).with_service("renewals", act)


def operate(ctx: typer.Context, act: Callable[[Renewals, Operator], Awaitable[T]], *, tenant: str = OWN) -> T:
    """Call an operation as the person at this terminal."""
    return terminal(ctx).operate_service("renewals", act, tenant_id=tenant)


def listing(
    ctx: typer.Context,
    act: Callable[[Renewals], Awaitable[tuple[Sequence[Any], str | None]]],
    *,
    columns: Sequence[str],
    as_json: bool,
    none: str,
) -> None:
    """Print a page of rows, with the cursor of the next."""
    rows, more = with_renewals(ctx, act)
    terminal(ctx).print_table(rows, columns, as_json=as_json, cursor=more, none=none)


def day(text: str | None) -> date | None:
    """A day from the command line; anything else is wrong usage."""
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day such as 2026-03-01") from None


def among(words: Sequence[str]) -> Callable[[list[str] | None], list[str] | None]:
    """Checks an option that may be repeated against the words there are."""

    def check(given: list[str] | None) -> list[str] | None:
        for one in given or ():
            if one not in words:
                raise typer.BadParameter(f"{one!r} is none of {', '.join(words)}")
        return given

    return check


@contextlib.asynccontextmanager
async def working(renewals: Renewals, workflow: Workflow, *, models: RunModels) -> AsyncIterator[None]:
    """Work on jobs in this process too, so that one ends also where no other process works."""
    stop = asyncio.Event()
    runner = Runner(renewals.privileged_store(), [workflow], models=models)
    task = asyncio.create_task(runner.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task
