"""The Calendar client against the simulator: what it reads and writes, and what each failure becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from holdfast import providers
from holdfast.errors import (
    AlreadyExistsError,
    ForbiddenError,
    FullSyncRequiredError,
    GoneError,
    HoldfastError,
    InvalidError,
    NotFoundError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.providers.google_calendar import (
    EventAttendee,
    EventDateTime,
    EventPatch,
    EventQuery,
    Events,
    GoogleCalendar,
    NewEvent,
    PushChannel,
)
from holdfast.providers.rest import CallLimits
from holdfast.simulators.google import (
    DeleteEvent,
    EndTokens,
    ExpireSyncTokens,
    InjectedFault,
    RevokeAccess,
    SetQuota,
    UpdateEvent,
)
from tests.providers.provider_fixture import ALICE, BOB, START, HastyClock, Setting, an_hour, guests

FIXTURES = Path(providers.__path__[0]) / "google_calendar" / "fixtures"
WHEN = EventDateTime(date_time=START, time_zone="Asia/Tokyo")


def test_a_page_is_read_with_all_that_matters() -> None:
    page = msgspec.json.decode((FIXTURES / "events.json").read_bytes(), type=Events)
    series, moved, left_out, deleted, all_day = page.items
    assert page.next_sync_token == "CPDAlvWDx70CEPDAlvWDx70CGAU="
    assert series.recurrence == ["RRULE:FREQ=WEEKLY;BYDAY=MO"]
    assert series.attendees[2] == EventAttendee(
        email="bob@example.org",
        response_status="needsAction",
        optional=True,
        comment="may be late",
        additional_guests=2,
    )
    assert moved.recurring_event_id == left_out.recurring_event_id == series.id
    assert (left_out.cancelled, deleted.cancelled, deleted.attendees) == (True, True, [])
    assert all_day.start == EventDateTime(date=date(2026, 3, 20))
    assert all_day.attendees_omitted


def test_a_channel_is_read_and_its_token_is_not_shown() -> None:
    channel = msgspec.json.decode((FIXTURES / "channel.json").read_bytes(), type=PushChannel)
    assert channel.expiration_ms == 1_773_020_800_000
    assert channel.token not in repr(channel)


async def test_guests_that_were_read_are_written_back_untouched(setting: Setting) -> None:
    carol = {
        "email": "carol@x.jp",
        "displayName": "Carol",
        "optional": True,
        "comment": "maybe",
        "additionalGuests": 3,
        "responseStatus": "tentative",
    }
    made = setting.event(attendees=[carol, *guests(BOB)])
    calendar = setting.calendar()
    event = await calendar.get_event("primary", made["id"])
    patch = EventPatch(attendees=[*event.attendees, EventAttendee(email="alice@fuga.jp")])
    after = await calendar.patch_event("primary", event.id, patch=patch, etag=event.etag, send_updates="all")
    assert after.attendees[0] == event.attendees[0]
    assert [guest.email for guest in after.attendees] == ["carol@x.jp", BOB, "alice@fuga.jp"]
    call = setting.google.calls[-1]
    assert (call.query, call.headers["If-Match"]) == ([("sendUpdates", "all")], event.etag)
    assert set(msgspec.json.decode(call.body)) == {"attendees"}


async def test_all_pages_of_a_list_end_in_one_sync_token(setting: Setting) -> None:
    made = [setting.event()["id"] for _ in range(5)]
    calendar = setting.calendar()
    pages = [page async for page in calendar.event_pages("primary", EventQuery(max_results=2))]
    assert [event.id for page in pages for event in page.items] == made
    assert [bool(page.next_sync_token) for page in pages] == [False, False, True]
    setting.google.run(DeleteEvent(calendar=ALICE, event_id=made[0]))
    query = EventQuery(sync_token=pages[-1].next_sync_token)
    (change,) = [event async for page in calendar.event_pages("primary", query) for event in page.items]
    assert (change.id, change.cancelled) == (made[0], True)


async def test_an_insert_with_a_chosen_id_can_be_repeated_without_harm(setting: Setting) -> None:
    setting.google.inject(InjectedFault(status=503, method="POST", path="/events", late=True))
    new = NewEvent(id="evt0001", summary="Lunch", start=WHEN, end=WHEN)
    calendar = setting.calendar()
    with pytest.raises(OutcomeUnknownError):
        await calendar.insert_event("primary", new)
    with pytest.raises(AlreadyExistsError):
        await calendar.insert_event("primary", new)
    assert len((await calendar.list_events("primary")).items) == 1


async def test_a_calendar_id_with_odd_characters_reaches_the_api_whole(setting: Setting) -> None:
    with pytest.raises(NotFoundError):
        await setting.calendar().list_events("en.japanese#holiday@group.v.calendar.google.com")
    assert "%23holiday@" in setting.google.calls[-1].path


async def test_an_ended_token_is_renewed_unseen(setting: Setting) -> None:
    calendar = setting.calendar()
    await calendar.list_events("primary")
    setting.google.run(EndTokens())
    assert (await calendar.list_events("primary")).items == []
    statuses = [call.status for call in setting.google.calls if call.path.startswith("/calendar")]
    assert statuses == [200, 401, 200]


async def test_a_revoked_grant_needs_its_owner(setting: Setting) -> None:
    calendar = setting.calendar()
    await calendar.list_events("primary")
    setting.google.run(RevokeAccess(email=ALICE))
    with pytest.raises(ReauthRequiredError):
        await calendar.list_events("primary")


Act = Callable[[GoogleCalendar, Setting], Awaitable[object]]


def _stale_patch(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    made = setting.event()
    setting.google.run(UpdateEvent(calendar=ALICE, event_id=made["id"], patch={"summary": "Mine"}))
    return calendar.patch_event("primary", made["id"], patch=EventPatch(summary="Yours"), etag=made["etag"])


async def _expired_sync(calendar: GoogleCalendar, setting: Setting) -> object:
    token = (await calendar.list_events("primary")).next_sync_token
    setting.google.run(ExpireSyncTokens())
    return await calendar.list_events("primary", EventQuery(sync_token=token))


async def _restricted_sync(calendar: GoogleCalendar, setting: Setting) -> object:
    token = (await calendar.list_events("primary")).next_sync_token
    return await calendar.list_events("primary", EventQuery(sync_token=token, time_min=START))


async def _deleted_twice(calendar: GoogleCalendar, setting: Setting) -> None:
    event_id = setting.event()["id"]
    await calendar.delete_event("primary", event_id)
    await calendar.delete_event("primary", event_id)


async def _channel_twice(calendar: GoogleCalendar, setting: Setting) -> object:
    asked = PushChannel(id="chan-1", address="https://hooks.invalid/x")
    await calendar.watch_events("primary", asked)
    return await calendar.watch_events("primary", asked)


def _guest_renames(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    made = setting.event(BOB, attendees=guests(ALICE))
    return calendar.patch_event("primary", made["id"], patch=EventPatch(summary="Mine now"))


def _plain_http(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    return calendar.watch_events("primary", PushChannel(id="c", address="http://example.com/hook"))


def _long_ago(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    return calendar.list_events(
        "primary", EventQuery(updated_min=datetime.fromisoformat("2020-01-01T00:00:00Z"))
    )


def _own_account(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    return calendar.get_event(BOB, "any")


def _no_time(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    return calendar.insert_event("primary", NewEvent(summary="Some day"))


def _bad_id(calendar: GoogleCalendar, setting: Setting) -> Awaitable[object]:
    return calendar.insert_event("primary", NewEvent(id="EVT-1", start=WHEN, end=WHEN))


REFUSED: dict[str, tuple[Act, type[HoldfastError], str]] = {
    "a stale etag": (_stale_patch, VersionConflictError, "conditionNotMet"),
    "an expired sync token": (_expired_sync, FullSyncRequiredError, "fullSyncRequired"),
    "a sync with restrictions": (_restricted_sync, InvalidError, "badRequest"),
    "changes since too long ago": (_long_ago, FullSyncRequiredError, "updatedMinTooLongAgo"),
    "an unknown event": (lambda c, s: c.get_event("primary", "nosuch"), NotFoundError, "notFound"),
    "another's calendar": (_own_account, NotFoundError, "notFound"),
    "a second delete": (_deleted_twice, GoneError, "deleted"),
    "a channel id used before": (_channel_twice, InvalidError, "channelIdNotUnique"),
    "a plain http address": (_plain_http, InvalidError, "webhookUrlNotHttps"),
    "an unknown channel": (lambda c, s: c.stop_channel("x", "y"), NotFoundError, "notFound"),
    "a guest who renames": (_guest_renames, ForbiddenError, "only the organizer"),
    "an event without a time": (_no_time, InvalidError, "Missing start time"),
    "an id of wrong characters": (_bad_id, InvalidError, "Invalid resource id"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_refused_by_the_simulator(what: str, setting: Setting, hasty: HastyClock) -> None:
    act, kind, said = REFUSED[what]
    with pytest.raises(kind, match=said) as raised:
        await act(setting.calendar(), setting)
    assert type(raised.value) is kind
    assert hasty.slept == []


@pytest.mark.parametrize("status", [403, 429])
async def test_over_the_quota_it_waits_for_the_next_minute_or_tells_how_long(
    setting: Setting, hasty: HastyClock, status: int
) -> None:
    hasty.tick(50)
    setting.google.run(SetQuota(per_minute=1, status=403 if status == 403 else 429))
    calendar = setting.calendar(limits=CallLimits(wait_s_max=20.0))
    await calendar.list_events("primary")
    await calendar.list_events("primary")
    assert hasty.slept == [10.0]
    with pytest.raises(RetryLaterError) as raised:
        await calendar.list_events("primary")
    assert raised.value.after_s > 50


@pytest.mark.parametrize("reason", ["rateLimitExceeded", "userRateLimitExceeded"])
async def test_a_write_over_the_rate_is_made_again_for_it_had_no_effect(
    setting: Setting, hasty: HastyClock, reason: str
) -> None:
    setting.google.inject(InjectedFault(count=2, status=403, reason=reason, method="POST", path="/events"))
    made = await setting.calendar().insert_event("primary", NewEvent(start=WHEN, end=WHEN))
    assert made.id
    assert len(hasty.slept) == 2


async def test_an_exhausted_daily_quota_is_left_to_the_caller(setting: Setting, hasty: HastyClock) -> None:
    setting.google.inject(InjectedFault(status=403, reason="quotaExceeded", path="/events"))
    with pytest.raises(RetryLaterError) as raised:
        await setting.calendar().list_events("primary")
    assert (raised.value.after_s, hasty.slept) == (3_600.0, [])


async def test_a_backend_error_while_reading_is_outlasted_and_while_writing_is_told(
    setting: Setting, hasty: HastyClock
) -> None:
    calendar = setting.calendar()
    setting.google.inject(InjectedFault(count=2, status=503, path="/calendar/v3"))
    assert (await calendar.list_events("primary")).items == []
    made = setting.event()
    setting.google.inject(InjectedFault(status=500, method="PATCH", path="/events"))
    with pytest.raises(OutcomeUnknownError):
        await calendar.patch_event("primary", made["id"], patch=EventPatch(summary="x"))


async def test_a_cut_link_and_a_hanging_server_are_outlasted_while_reading(
    setting: Setting, hasty: HastyClock
) -> None:
    calendar = setting.calendar(limits=CallLimits(call_s=0.3))
    await calendar.list_events("primary")
    setting.google.inject(InjectedFault(cut=True, path="/events"))
    setting.google.inject(InjectedFault(hang=True, path="/events"))
    assert (await calendar.list_events("primary")).items == []


async def test_a_channel_lives_as_long_as_google_grants_not_as_was_asked(setting: Setting) -> None:
    month = setting.clock.now() + timedelta(days=30)
    asked = PushChannel(
        id="calendar-sync-1", address="https://hooks.invalid/x", expiration=str(int(month.timestamp() * 1000))
    )
    channel = await setting.calendar().watch_events("primary", asked)
    week_ms = int((setting.clock.now() + timedelta(days=7)).timestamp() * 1000)
    assert (channel.id, channel.expiration_ms) == ("calendar-sync-1", week_ms)
    await setting.calendar().stop_channel(channel.id, channel.resource_id)


async def test_an_instance_is_patched_without_touching_its_series(setting: Setting) -> None:
    series = setting.event(**an_hour(), recurrence=["RRULE:FREQ=DAILY;COUNT=3"])
    calendar = setting.calendar()
    second = (await calendar.list_instances("primary", series["id"])).items[1]
    patch = EventPatch(attendees=[EventAttendee(email=BOB)])
    changed = await calendar.patch_event("primary", second.id, patch=patch, etag=second.etag)
    assert (changed.recurring_event_id, changed.original_start_time) == (series["id"], second.start)
    assert (await calendar.get_event("primary", series["id"])).attendees == []
    assert [event.id for event in (await setting.calendar(BOB).list_events("primary")).items] == [second.id]
