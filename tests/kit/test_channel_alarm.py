"""Which channels end with nothing to take their place, on every engine."""

from __future__ import annotations

from holdfast.kit.channels import Channel
from holdfast.kit.channels.alarm import ExpiringChannel, earliest_expiration_s, expiring_channels
from holdfast.store import Store, create, patch
from holdfast.testing import ManualClock

DOCUMENTS = [Channel]
HOUR_MS = 3_600_000


def _channel(id: str, watched: str, clock: ManualClock, *, hours: float, tenant: str = "acme") -> Channel:
    now_ms = int(clock.now().timestamp() * 1000)
    return Channel(
        channel_id=id, tenant_id=tenant, resource_id="r", watched_id=watched,
        expiration=now_ms + int(hours * HOUR_MS), registered_at=now_ms - 24 * HOUR_MS, last_updated_at=now_ms,
    )  # fmt: skip


async def test_only_what_nothing_replaces_is_told(kit_store: Store, clock: ManualClock) -> None:
    every = kit_store.privileged()
    assert await expiring_channels(kit_store, Channel) == []
    assert await earliest_expiration_s(kit_store, Channel) is None
    await every.commit(
        create(_channel("lone", "room-1", clock, hours=0.5)),
        create(_channel("old", "room-2", clock, hours=0.25)),
        create(_channel("new", "room-2", clock, hours=20)),
        create(_channel("theirs", "room-2", clock, hours=0.75, tenant="other")),
        create(_channel("far", "room-3", clock, hours=20)),
    )
    assert await expiring_channels(kit_store, Channel) == [
        ExpiringChannel("lone", "room-1", 1_800.0), ExpiringChannel("theirs", "room-2", 2_700.0)
    ]  # fmt: skip
    assert await earliest_expiration_s(kit_store, Channel) == clock.now().timestamp() + 900
    # A replacement that was stopped replaces nothing.
    await every.commit(patch(Channel, "new", changes={"status": "stopped"}))
    assert [one.channel_id for one in await expiring_channels(kit_store, Channel)] == [
        "old",
        "lone",
        "theirs",
    ]
