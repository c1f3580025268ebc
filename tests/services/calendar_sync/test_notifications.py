"""What Google says of a channel: the right, the early, the forged, the unknown and the old."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.http.app import create_app
from holdfast.kit.inbox import InboxItem
from holdfast.kit.vault import new_key
from holdfast.providers.google_calendar import channel_token
from holdfast.runtime import Runtime
from holdfast.services.calendar_sync import service
from holdfast.simulators.google import InjectedFault, Pushes
from holdfast.store import Query
from tests.services.calendar_sync.harness import ALICE, ALICE2, BOB, STRANGER, Harness


def _headers(channel_id: str, token: str | None, **more: str) -> dict[str, str]:
    headers = {
        "X-Goog-Channel-ID": channel_id, "X-Goog-Resource-ID": "r", "X-Goog-Resource-State": "exists",
        "X-Goog-Message-Number": "7", **more,
    }  # fmt: skip
    return {name: text for name, text in headers.items() if text} | (
        {"X-Goog-Channel-Token": token} if token else {}
    )


async def test_the_notification_that_beats_our_commit_is_kept_and_leads_to_a_sync(harness: Harness) -> None:
    await harness.engine.refresh()
    calendar = harness.engine.google.calendar(ALICE)
    watch, heard = calendar.watch_events, asyncio.Event()

    async def slowly(*words: Any, **named: Any) -> Any:
        granted = await watch(*words, **named)
        await (
            harness.google.wait_for_pushes()
        )  # its first notification is here, and the channel is not on record
        assert await harness.channels() == []
        assert await harness.runtime.inbox_worker.turn() == 1
        heard.set()
        return granted

    calendar.watch_events = slowly  # type: ignore[method-assign]
    harness.engine.google._calendars.pop(BOB, None)
    await harness.engine.channels.set_wanted([ALICE])
    await harness.engine.channels.turn()
    assert heard.is_set()
    state = await harness.state(ALICE)
    assert state.notified_at is not None
    assert state.message_number == 1


@pytest.mark.parametrize(
    ("missing", "status"),
    [("X-Goog-Channel-ID", 400), ("X-Goog-Resource-ID", 400), ("X-Goog-Resource-State", 400), ("", 200)],
)
async def test_a_notification_without_a_required_header_is_refused(
    quick_harness: Harness, missing: str, status: int
) -> None:
    await quick_harness.begin()
    (channel, *_) = await quick_harness.channels()
    token = channel_token(quick_harness.channel_key, channel.channel_id)
    headers = _headers(channel.channel_id, token, **({missing: ""} if missing else {}))
    got, body, _ = await quick_harness.ask("POST", "/webhook", headers=headers)
    assert got == status
    assert body == {"status": "kept"} if status == 200 else body["error"]["code"] == "invalid"


async def test_forged_unknown_and_repeated_notifications(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    (channel, *_) = await harness.channels()
    good = channel_token(harness.channel_key, channel.channel_id)
    for token in ("", "forged", good[:-1] + ("0" if good[-1] != "0" else "1"), good.upper() + " "):
        status, _, _ = await harness.ask("POST", "/webhook", headers=_headers(channel.channel_id, token))
        assert status == 401
    for name in ("somebody-elses", channel.channel_id + "9", "x" * 64):
        status, body, _ = await harness.ask("POST", "/webhook", headers=_headers(name, good))
        assert (status, body) == (200, {"status": "ignored"})
    status, body, _ = await harness.ask("POST", "/webhook", headers=_headers(channel.channel_id, good))
    assert (status, body) == (200, {"status": "kept"})
    status, body, _ = await harness.ask("POST", "/webhook", headers=_headers(channel.channel_id, good))
    assert (status, body) == (200, {"status": "duplicate"})
    text = await harness.metrics()
    assert 'holdfast_calendar_sync_notifications_total{outcome="forged"} 4.0' in text
    assert 'holdfast_calendar_sync_notifications_total{outcome="ignored"} 3.0' in text
    kept = await harness.runtime.store.privileged().query(
        Query(InboxItem).where("status", "==", "pending").order_by("-received_at")
    )
    assert [item.message_id for item in kept.docs] == [f"{channel.channel_id}:7"]
    assert "x-goog-channel-token" not in kept.docs[0].headers


async def test_a_valid_token_for_a_channel_nobody_knows_is_kept_and_settled(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    name = "calendar-sync-ghost-hoge-jp-1767225600000"
    status, body, _ = await harness.ask(
        "POST", "/webhook", headers=_headers(name, channel_token(harness.channel_key, name))
    )
    assert (status, body) == (200, {"status": "kept"})
    await harness.work()
    items = await harness.runtime.store.privileged().query(
        Query(InboxItem).where("status", "==", "done").order_by("-received_at")
    )
    assert f"{name}:7" in [item.message_id for item in items.docs]


async def test_tokens_of_an_older_key_are_still_good(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    old = (harness.config.home / "keys").read_text()
    await harness.runtime.close()
    harness.config = msgspec.structs.replace(harness.config, keys=f"{new_key('second')},{old}")
    harness.runtime = await Runtime.open(harness.config, services=[service], clock=harness.clock)
    harness.server.app = create_app(harness.runtime)
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [STRANGER, ALICE2]


async def test_a_forged_token_is_refused_also_for_channels_another_process_opened(harness: Harness) -> None:
    other = await Runtime.open(harness.config, services=[service], clock=harness.clock)
    try:
        await harness.begin()
        (channel, *_) = await harness.channels()
        harness.server.app = create_app(other)
        status, _, _ = await harness.ask("POST", "/webhook", headers=_headers(channel.channel_id, "forged"))
        assert status == 401
        for name in ("somebody-elses", channel.channel_id + "9", "a/b/c-1", "-", "x" * 500):
            status, body, _ = await harness.ask("POST", "/webhook", headers=_headers(name, "forged"))
            assert (status, body) == (200, {"status": "ignored"}), name
    finally:
        await other.close()


async def test_any_notification_lets_a_half_opened_channel_be_stopped(quick_harness: Harness) -> None:
    harness = quick_harness
    harness.google.run(Pushes(act="drop", count=1))
    harness.google.inject(InjectedFault(count=1, path="/watch", status=502, late=True))
    harness.map({ALICE: [ALICE2]})
    await harness.engine.refresh()
    await harness.engine.channels.turn()
    assert harness.live() == [ALICE]
    harness.mappings.write_text(f"{ALICE},{ALICE2},inactive\n")
    harness.create(ALICE, STRANGER)
    await harness.later(60)
    assert harness.live() == []
