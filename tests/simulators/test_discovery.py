"""Our calls and the simulator's answers, held against the documents Google describes its APIs with."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from holdfast.clock import from_us
from holdfast.errors import HoldfastError
from holdfast.providers.google_calendar import (
    CalendarListQuery,
    EventAttendee,
    EventDateTime,
    EventPatch,
    EventQuery,
    ExtendedProperties,
    GoogleCalendar,
    InstanceQuery,
    NewEvent,
    PushChannel,
)
from holdfast.providers.google_sheets import Cell, ValueQuery
from holdfast.simulators.google import DeleteEvent, Respond, SetSheet, UpdateEvent
from holdfast.simulators.server import RecordedCall
from tests.providers.provider_fixture import ALICE, BOB, START, Setting, an_hour, guests
from tests.simulators.api_description import Description

CALENDAR = Description("calendar.v3")
SHEETS = Description("sheets.v4")
WEEKLY = ["RRULE:FREQ=WEEKLY;COUNT=6"]


def _calls(setting: Setting, prefix: str) -> list[RecordedCall]:
    return [call for call in setting.google.calls if call.path.startswith(prefix)]


async def _write_events(calendar: GoogleCalendar) -> None:
    when = EventDateTime(date_time=START, time_zone="Asia/Tokyo")
    marks = ExtendedProperties(private={"origin": "holdfast"})
    new = NewEvent(id="abcde", summary="Standup", start=when, end=when, extended_properties=marks)
    made = await calendar.insert_event("primary", new, send_updates="all")
    patch = EventPatch(attendees=[EventAttendee(email=BOB, optional=True, comment="bring cake")])
    await calendar.patch_event(ALICE, made.id, patch=patch, etag=made.etag, send_updates="all")
    await calendar.get_event("primary", made.id)
    await calendar.delete_event("primary", made.id, send_updates="none")


async def _read_events(setting: Setting, calendar: GoogleCalendar) -> None:
    series = setting.event(recurrence=WEEKLY, attendees=guests(BOB))["id"]
    setting.event(start={"date": "2026-01-06"}, end={"date": "2026-01-07"}, summary="Away")
    await calendar.list_instances("primary", series, query=InstanceQuery(max_results=2, time_min=START))
    full = EventQuery(max_results=1, show_deleted=True)
    pages = [page async for page in calendar.event_pages("primary", full)]
    instances = await calendar.list_instances("primary", series)
    setting.google.run(
        UpdateEvent(calendar=ALICE, event_id=instances.items[1].id, patch={"summary": "Moved"})
    )
    setting.google.run(DeleteEvent(calendar=ALICE, event_id=instances.items[2].id))
    setting.google.run(Respond(calendar=BOB, event_id=series, status="accepted"))
    await calendar.list_events("primary", EventQuery(sync_token=pages[-1].next_sync_token))
    await calendar.list_events("primary", EventQuery(single_events=True, order_by="startTime", q="plan"))
    await calendar.list_events("primary", EventQuery(time_min=START, time_max=from_us(2**51)))
    await calendar.list_events("primary", EventQuery(updated_min=setting.clock.now()))
    await calendar.list_calendars(CalendarListQuery(max_results=10))


async def test_every_calendar_call_we_make_and_every_answer_is_as_google_describes_it(
    setting: Setting,
) -> None:
    calendar = setting.calendar()
    await _write_events(calendar)
    await _read_events(setting, calendar)
    asked = PushChannel(
        id="calendar-sync-1", address="http://127.0.0.1:9/hook", token="t", params={"ttl": "60"}
    )
    channel = await calendar.watch_events("primary", asked)
    await calendar.stop_channel(channel.id, channel.resource_id)
    checked = {CALENDAR.check(call) for call in _calls(setting, "/calendar/v3")}
    assert checked == {
        "calendar.calendarList.list",
        "calendar.channels.stop",
        "calendar.events.delete",
        "calendar.events.get",
        "calendar.events.insert",
        "calendar.events.instances",
        "calendar.events.list",
        "calendar.events.patch",
        "calendar.events.watch",
    }


async def test_every_sheets_call_we_make_and_every_answer_is_as_google_describes_it(setting: Setting) -> None:
    rows: list[list[Cell]] = [
        ["primary", "secondaries", "status"],
        [ALICE, "a@fuga.jp, b@fuga.jp"],
        [BOB, 7, True],
    ]
    setting.google.run(SetSheet(spreadsheet_id="S1", sheet="User Mappings", rows=rows))
    sheets = setting.sheets()
    await sheets.values("S1", "User Mappings!A2:C")
    query = ValueQuery(major_dimension="COLUMNS", value_render_option="UNFORMATTED_VALUE")
    await sheets.batch_values("S1", ["'User Mappings'!A1", "User Mappings!A:C"], query=query)
    checked = {SHEETS.check(call) for call in _calls(setting, "/v4")}
    assert checked == {"sheets.spreadsheets.values.get", "sheets.spreadsheets.values.batchGet"}


def test_an_attendee_has_every_field_google_gives_one_so_that_a_patch_drops_nothing() -> None:
    ours = {field.encode_name for field in msgspec.structs.fields(EventAttendee)}
    assert ours == set(CALENDAR.schema("EventAttendee")["properties"])


def _call(**changed: Any) -> RecordedCall:
    fields: dict[str, Any] = {
        "method": "GET",
        "path": "/calendar/v3/calendars/primary/events",
        "query": [],
        "headers": {},
        "body": "",
        "status": 200,
        "answer": json.dumps({"kind": "calendar#events", "items": []}),
    }
    return RecordedCall(**(fields | changed))


WRONG: dict[str, dict[str, Any]] = {
    "an unknown path": {"path": "/calendar/v3/calendars/primary/happenings"},
    "a wrong verb": {"method": "PUT"},
    "an unknown parameter": {"query": [("syncTokn", "x")]},
    "a parameter given twice": {"query": [("pageToken", "x"), ("pageToken", "y")]},
    "a value outside the choices": {"query": [("orderBy", "end")]},
    "a number too small": {"query": [("maxResults", "0")]},
    "a time without offset": {"query": [("timeMin", "2026-01-01T00:00:00")]},
    "a body where none belongs": {"body": "{}"},
    "an unknown field in the answer": {"answer": json.dumps({"things": []})},
    "a wrong type in the answer": {"answer": json.dumps({"items": [{"sequence": "1"}]})},
    "a bad time in the answer": {"answer": json.dumps({"updated": "yesterday"})},
    "a bad time deep in the answer": {"answer": json.dumps({"items": [{"start": {"date": "2026-1-1"}}]})},
}


@pytest.mark.parametrize("fault", WRONG)
def test_the_check_itself_sees(fault: str) -> None:
    CALENDAR.check(_call())
    with pytest.raises((AssertionError, ValueError)):
        CALENDAR.check(_call(**WRONG[fault]))


async def test_a_refusal_is_checked_too_for_the_call_that_met_it(setting: Setting) -> None:
    with pytest.raises(HoldfastError):
        await setting.calendar().get_event("primary", "nosuch")
    (call,) = _calls(setting, "/calendar/v3")
    assert (CALENDAR.check(call), call.status) == ("calendar.events.get", 404)


def test_an_hour_in_these_tests_is_an_event_as_described() -> None:
    CALENDAR.check_value(an_hour(), {"$ref": "Event"}, at="event")
