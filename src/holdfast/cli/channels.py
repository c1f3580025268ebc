"""`holdfast channels`: list the watch channels that are kept open."""

from __future__ import annotations

from datetime import datetime

import msgspec
import typer

from holdfast.cli.context import PLATFORM, AsJson, Cursor, Limit, Tenant, print_table, with_runtime
from holdfast.kit.channels.models import Watch
from holdfast.model import schema_of
from holdfast.runtime import Runtime
from holdfast.store import Query, QueryPage

commands = typer.Typer(no_args_is_help=True)


class _ChannelLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    watched_id: str
    status: str
    channel_id: str
    ends_at: datetime | None
    renew_at: datetime | None
    failures: int
    error: str


def _row(watch: Watch) -> _ChannelLine:
    current = watch.current
    return _ChannelLine(
        name=watch.name, watched_id=watch.watched_id, status=watch.status, renew_at=watch.renew_at,
        channel_id=current.channel_id if current else "", ends_at=current.ends_at if current else None,
        failures=watch.failures, error=watch.error,
    )  # fmt: skip


@commands.command("list")
def list_command(
    tenant: Tenant = PLATFORM, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False
) -> None:
    """Show what is watched, until when, and what is in the way.

    \b
    Examples:
      holdfast channels list
      holdfast channels list --json | jq -r '.items[] | select(.status == "attention") | .watchedId'
    """

    async def act(runtime: Runtime) -> QueryPage[Watch]:
        if schema_of(Watch) not in runtime.store.catalog:
            return QueryPage([], None)
        return await runtime.store.tenant(tenant).query(
            Query(Watch).order_by("renew_at").limit(limit).after(cursor)
        )

    page = with_runtime(act, services=None)
    columns = ("name", "watchedId", "status", "endsAt", "renewAt", "failures", "error")
    rows = [_row(doc) for doc in page.docs]
    print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="nothing is watched")
