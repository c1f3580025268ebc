"""Watch channels of every service: list, renew, retry, stop.

A change is an order to the loop that tends the channels: it calls the provider at its next turn.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.errors import ConflictError, NotFoundError
from holdfast.kit.channels import Watch, decision
from holdfast.kit.channels.models import WatchStatus
from holdfast.kit.channels.watch_registry import Change, apply_change
from holdfast.model import schema_of
from holdfast.operation import Operator, operation
from holdfast.projection import project
from holdfast.runtime import Runtime
from holdfast.store import Query, Transaction


class ChannelRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    tenant_id: str
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
    channel_id, ends_at = (current.channel_id, current.ends_at) if current else ("", None)
    return project(watch, ChannelRow, channel_id=channel_id, ends_at=ends_at)


async def list_channels(
    runtime: Runtime, tenant_id: str, *, limit: int = 50, cursor: str | None = None
) -> ChannelPage:
    """What is watched, until when, and what is wrong with it; next to be renewed first."""
    if schema_of(Watch) not in runtime.store.catalog:
        return ChannelPage([], None)
    query = Query(Watch).order_by("renew_at").limit(limit).after(cursor)
    page = await runtime.store_of(tenant_id).query(query)
    return ChannelPage([row(doc) for doc in page.docs], page.cursor)


async def get(runtime: Runtime, tenant_id: str, watch_id: str) -> Watch:
    """Return one watch as it is stored, or raise NotFoundError."""
    stored = await runtime.store_of(tenant_id).get(Watch, watch_id)
    if stored is None:
        raise NotFoundError(f"nothing is watched under {watch_id!r}")
    return stored.doc


@operation("channel.renewal_requested", area="channels", verb="renew", needs="admin", subject="watch_id")
async def renew(runtime: Runtime, by: Operator, watch_id: str) -> ChannelRow:
    """Replace the channel by a new one at the next turn, also after failures or lost credentials."""
    return await _change(runtime, by, watch_id, decision.request_renewal)


@operation("channel.stop_requested", area="channels", verb="stop", needs="admin", subject="watch_id")
async def stop(runtime: Runtime, by: Operator, watch_id: str) -> ChannelRow:
    """Stop the current channel. What is still wanted gets another first, so that nothing goes unseen."""
    watch = await get(runtime, by.tenant_id, watch_id)
    if watch.current is None:
        raise ConflictError(f"no channel is open under {watch_id!r}")
    current = watch.current.channel_id
    return await _change(
        runtime, by, watch_id, lambda watch, now: decision.release_channel(watch, current, None)
    )


async def _change(runtime: Runtime, by: Operator, watch_id: str, change: Change) -> ChannelRow:
    watch = await get(runtime, by.tenant_id, watch_id)

    async def act(tx: Transaction) -> bool:
        return await apply_change(tx, watch_id, change, now=runtime.clock.now())

    await by.commit(act, details={"watched": watch.watched_id, "name": watch.name})
    return row(await get(runtime, by.tenant_id, watch_id))
