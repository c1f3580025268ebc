"""What is watched at providers, soonest renewed first."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.channels import Watch
from holdfast.kit.channels.models import WatchStatus
from holdfast.routing import Cursor, Limit, TenantId, read_route
from holdfast.store import Query


class ChannelRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    watched_id: str
    status: WatchStatus
    channel_id: str
    ends_at: datetime | None
    renew_at: datetime | None
    failures: int
    error: str


class ChannelPage(msgspec.Struct, frozen=True):
    items: list[ChannelRow]
    cursor: str | None


def row(watch: Watch) -> ChannelRow:
    current = watch.current
    return ChannelRow(
        name=watch.name, watched_id=watch.watched_id, status=watch.status, renew_at=watch.renew_at,
        channel_id=current.channel_id if current else "", ends_at=current.ends_at if current else None,
        failures=watch.failures, error=watch.error,
    )  # fmt: skip


@read_route("/channels", "admin", area="channels")
async def channels(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ChannelPage:
    """What is watched, until when, and what is in the way."""
    query = Query(Watch).order_by("renew_at").limit(limit).after(cursor)
    page = await runtime.store.tenant(tenant_id).query(query)
    return ChannelPage([row(doc) for doc in page.docs], page.cursor)


ROUTES: Final = (channels,)
