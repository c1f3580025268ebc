"""What the service promises beside its data model: how long things are kept, its jobs, its routes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.kit.channels import ChannelPolicy
from holdfast.model import schema_of
from holdfast.services.calendar_sync.models import (
    DOCUMENTS,
    CalendarState,
    ChannelEvent,
    SyncedEvent,
    WatchChannel,
)
from holdfast.services.calendar_sync.settings import CalendarSyncSettings
from tests.services.calendar_sync.harness import Harness

DAY = 86_400


def test_what_is_kept_how_long() -> None:
    channel = schema_of(WatchChannel).retention
    assert channel is not None
    assert (channel.field, channel.after_s, channel.when) == (
        "last_updated_at", 30 * DAY, {"status": "expired"}
    )  # fmt: skip
    assert CalendarSyncSettings().keep_stopped_s == 0
    assert all(schema_of(kind).retention for kind in (SyncedEvent, ChannelEvent))
    assert schema_of(ChannelEvent).append_only


def test_a_channel_lives_seven_days_and_is_renewed_within_the_last() -> None:
    assert (ChannelPolicy().ttl_s, CalendarSyncSettings().renew_before_s) == (7 * DAY, DAY)
    assert CalendarSyncSettings().safety_poll_s == timedelta(hours=6).total_seconds()


async def test_these_jobs_recur(quick_harness: Harness) -> None:
    jobs = {job.name: job for job in quick_harness.runtime.parts["calendar_sync"].jobs}
    told: dict[str, Any] = {
        name: (job.cron, job.zone, job.time_limit_s, job.retries) for name, job in jobs.items()
    }
    assert told["renew-watch-channels"] == ("0 18 * * *", "UTC", 60, 3)
    assert told["health-check"] == ("0 */6 * * *", "UTC", 30, 3)
    assert told["refresh-user-mappings"][0] == "*/5 * * * *"
    assert told["sweep-calendar-sync"][0] == "40 3 * * *"
    await quick_harness.begin()
    slot: Any = None
    for job in jobs.values():
        assert json.loads(msgspec.json.encode(await job.act(slot)))


async def test_these_routes_answer(quick_harness: Harness) -> None:
    await quick_harness.begin()
    token = await quick_harness.token()
    routes = {
        ("POST", "/webhook"): 400, ("GET", "/health"): 200, ("POST", "/admin/reload-mappings"): 200,
        ("POST", "/admin/renew-expiring-channels"): 200, ("POST", "/admin/force-register-channels"): 200,
        ("GET", "/admin/channel-status"): 200, ("POST", "/admin/stop-channel"): 422,
    }  # fmt: skip
    for (method, path), expected in routes.items():
        status, _, _ = await quick_harness.ask(method, path, token=token)
        assert status == expected, path


def test_what_else_is_kept() -> None:
    places = {schema_of(kind).path.names[0] for kind in DOCUMENTS}
    assert places == {
        "watchChannels", "calendarSyncMappings", "calendarSyncReloads", "calendarSyncCalendars",
        "calendarSyncEvents", "calendarSyncChannelEvents", "calendarSyncOrders",
    }  # fmt: skip
    assert schema_of(CalendarState).declared.claim is not None
