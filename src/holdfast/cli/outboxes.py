"""What the commands for deliveries, dead letters and endpoints share: the outbox's name, and lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from holdfast.cli.context import print_table, with_runtime
from holdfast.errors import InvalidError
from holdfast.runtime import Runtime

OutboxName: TypeAlias = Annotated[
    str, typer.Option("--outbox", metavar="NAME", help="The outbox: the kit's own, or a service's.")
]


def print_page(
    outbox: str,
    tenant: str,
    act: Callable[[Runtime], Awaitable[Any]],
    *,
    columns: Sequence[str],
    what: str,
    as_json: bool,
) -> None:
    """Print a page of an outbox's rows; an empty one names the other outboxes."""

    async def page_and_others(runtime: Runtime) -> tuple[Any, list[str]]:
        return await act(runtime), [name for name in runtime.outboxes if name != outbox]

    try:
        page, others = with_runtime(page_and_others, services=None)
    except InvalidError as fault:
        raise typer.BadParameter(fault.message) from None
    elsewhere = f"; other outboxes (--outbox): {', '.join(others)}" if others else ""
    none = f"no {what} like this in outbox {outbox}{elsewhere}"
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none, tenant=tenant)
