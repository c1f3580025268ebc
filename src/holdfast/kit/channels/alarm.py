"""Channels about to expire, or expired, without a replacement; for health and metrics."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.kit.channels.ids import format_duration
from holdfast.kit.channels.models import ChannelFields
from holdfast.kit.channels.reconciler import epoch_ms
from holdfast.model import schema_of
from holdfast.store import Query, Store

# Renewal comes a day before the end, or at half the lifetime; this late it has failed for long.
LATE_S: Final = 3_600.0
LATE_SHARE: Final = 0.1
CHECKED_MAX: Final = 20


class ExpiringChannel(msgspec.Struct, frozen=True):
    """A channel without a replacement; `left_s` below 0 when it has expired."""

    channel_id: str
    watched_id: str
    left_s: float

    def __str__(self) -> str:
        when = f"expires in {format_duration(self.left_s)}" if self.left_s > 0 else "has expired"
        return f"the channel of {self.watched_id} {when} and was not renewed"


async def earliest_expiration_s(store: Store, kind: type[ChannelFields]) -> float | None:
    """When the first open channel expires, in seconds since 1970; None when none is open."""
    first = (await store.privileged().query(_open(kind).limit(1))).docs
    return first[0].expiration / 1000 if first else None


async def expiring_channels(store: Store, kind: type[ChannelFields]) -> list[ExpiringChannel]:
    """Open channels so near to their end that their renewal must have failed; the first few."""
    now_ms = epoch_ms(store.clock.now())
    page = await store.privileged().query(_open(kind).limit(CHECKED_MAX))
    late = [one for one in page.docs if is_late(one, now_ms)]
    return [
        ExpiringChannel(one.channel_id, one.watched_id, (one.expiration - now_ms) / 1000)
        for one in late
        if not await _replaced(_store_of(store, one), one)
    ]


def is_late(channel: ChannelFields, now_ms: int) -> bool:
    """Whether so little time is left that the channel should have been renewed long ago."""
    life_s = (channel.expiration - channel.registered_at) / 1000
    return (channel.expiration - now_ms) / 1000 < min(LATE_S, life_s * LATE_SHARE)


async def _replaced(store: Store, channel: ChannelFields) -> bool:
    """Whether another open channel watches the same for longer: the old one only waits to be stopped."""
    later = Query(type(channel)).where("watched_id", "==", channel.watched_id)
    later = later.where("expiration", ">", channel.expiration).order_by("expiration").limit(CHECKED_MAX)
    return any(one.status == "active" for one in (await store.query(later)).docs)


def _open(kind: type[ChannelFields]) -> Query[ChannelFields]:
    query: Query[Any] = Query(kind)
    return query.where("status", "==", "active").order_by("expiration")


def _store_of(store: Store, channel: ChannelFields) -> Store:
    tenant = schema_of(type(channel)).tenant
    return store if tenant is None else store.tenant(str(tenant.read(channel)))
