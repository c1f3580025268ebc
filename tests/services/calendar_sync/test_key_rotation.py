"""Pushes keep arriving while the keys that sign the tokens of channels are replaced."""

from __future__ import annotations

from holdfast.cli.checkup.operations import channel_keys
from holdfast.kit.channels.key_uses import channels_of_key
from holdfast.kit.vault import new_key
from holdfast.runtime.key_uses import old_key_uses
from tests.services.calendar_sync.harness import ALICE, ALICE2, BOB, Harness

OLD, NEW = new_key("old"), new_key("new")


async def _is_pushed(harness: Harness) -> bool:
    """Whether a change of a calendar is synced without the help of the clock."""
    event_id = harness.create(ALICE)
    await harness.work()
    return harness.attendees(ALICE, event_id) == [ALICE2]


async def test_pushes_arrive_after_a_rotation_and_without_the_old_key(harness: Harness) -> None:
    await harness.restart(keys=OLD)
    await harness.begin()
    assert await _is_pushed(harness)
    await harness.restart(keys=f"{NEW},{OLD}")
    store, vault = harness.runtime.store, harness.runtime.vault
    (count, until), (channel, _) = await channels_of_key(store, "old"), await harness.channels()
    assert count == 2
    assert until is not None
    uses = [one for one in await old_key_uses(store, vault, harness.runtime.services) if one.until == until]
    assert [one.use for one in uses] == ["tokens of 2 open push channels"]
    await harness.begin()
    assert await channels_of_key(store, "old") == (0, None)
    assert harness.live() == [ALICE, BOB], "the old channels are stopped"
    assert channel.channel_id not in [one.channel_id for one in await harness.channels()]
    await harness.restart(keys=NEW)
    assert await _is_pushed(harness)
    assert (await harness.runtime.health()).status == "ok"


async def test_a_channel_whose_key_is_gone_is_in_health_and_doctor_until_it_is_replaced(
    quick_harness: Harness,
) -> None:
    harness = quick_harness
    await harness.restart(keys=OLD)
    await harness.begin()
    assert (await channel_keys(harness.runtime)).fine
    await harness.restart(keys=NEW)
    assert not await _is_pushed(harness)
    health, found = await harness.runtime.health(), await channel_keys(harness.runtime)
    assert health.status == "degraded"
    reason = "notifications of 2 push channels are refused: the key that signed their tokens is not set (old)"
    assert f"channels: {reason}" in health.reasons
    assert (found.fine, found.message) == (False, reason)
    await harness.begin()
    assert await _is_pushed(harness)
    assert (await harness.runtime.health()).status == "ok"
    assert (await channel_keys(harness.runtime)).fine
