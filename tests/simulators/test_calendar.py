"""The simulated Calendar keeps the documented promises about guests, series, deletions and sync."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ForbiddenError, InvalidError
from holdfast.providers.google_calendar import (
    CalendarEvent,
    EventAttendee,
    EventPatch,
    EventQuery,
    InstanceQuery,
    NewEvent,
)
from holdfast.simulators.google import AddPerson, CreateEvent, DeleteEvent, Respond, UpdateEvent
from holdfast.simulators.google.calendars import Calendars
from holdfast.simulators.google.events import view
from holdfast.simulators.google.refusals import Refusal
from holdfast.testing import ManualClock
from tests.providers.provider_fixture import ALICE, BOB, START, Setting, an_hour, guests
from tests.simulators.api_description import Description

CALENDAR = Description("calendar.v3")
WORDS = ["dateTime", "date", "timeZone", "email", "private", "responseStatus", "useDefault"]
DAILY = ["RRULE:FREQ=DAILY;COUNT=3"]


async def _sync_token(setting: Setting, email: str = ALICE, *, single: bool = False) -> str:
    return (
        await setting.calendar(email).list_events("primary", EventQuery(single_events=single))
    ).next_sync_token


async def _changes(
    setting: Setting, token: str, email: str = ALICE, *, single: bool = False
) -> list[CalendarEvent]:
    query = EventQuery(sync_token=token, single_events=single)
    return (await setting.calendar(email).list_events("primary", query)).items


async def test_a_guest_sees_the_same_event_marked_as_their_own(setting: Setting) -> None:
    made = setting.event(attendees=guests(ALICE, BOB))
    (event,) = (await setting.calendar(BOB).list_events("primary")).items
    assert (event.id, event.etag) == (made["id"], made["etag"])
    assert [(guest.email, guest.self, guest.organizer) for guest in event.attendees] == [
        (ALICE, False, True),
        (BOB, True, False),
    ]
    assert event.organizer is not None
    assert not event.organizer.self


async def test_whoever_is_taken_off_an_event_sees_it_cancelled(setting: Setting) -> None:
    made = setting.event(attendees=guests(BOB))
    token = await _sync_token(setting, BOB)
    setting.google.run(UpdateEvent(calendar=ALICE, event_id=made["id"], patch={"attendees": []}))
    (gone,) = await _changes(setting, token, BOB)
    assert (gone.id, gone.status, gone.summary) == (made["id"], "cancelled", "")
    assert (await setting.calendar(BOB).list_events("primary")).items == []


async def test_a_guest_may_answer_and_invite_but_not_uninvite(setting: Setting) -> None:
    made = setting.event(BOB, attendees=guests(ALICE, "carol@x.jp"))
    setting.google.run(Respond(calendar=ALICE, event_id=made["id"], status="accepted"))
    alice = setting.calendar(ALICE)
    event = await alice.get_event("primary", made["id"])
    assert event.attendees[0].response_status == "accepted"
    more = EventPatch(attendees=[*event.attendees, EventAttendee(email="alice@fuga.jp")])
    event = await alice.patch_event("primary", event.id, patch=more, etag=event.etag)
    assert len((await setting.calendar(BOB).get_event("primary", event.id)).attendees) == 3
    with pytest.raises(ForbiddenError, match="forbiddenForNonOrganizer"):
        await alice.patch_event("primary", event.id, patch=EventPatch(attendees=event.attendees[:2]))


async def test_guests_without_leave_may_not_invite(setting: Setting) -> None:
    made = setting.event(BOB, attendees=guests(ALICE), guestsCanInviteOthers=False)
    event = await setting.calendar().get_event("primary", made["id"])
    more = EventPatch(attendees=[*event.attendees, EventAttendee(email="alice@fuga.jp")])
    with pytest.raises(ForbiddenError):
        await setting.calendar().patch_event("primary", event.id, patch=more)


async def test_a_guest_who_deletes_an_event_leaves_it_to_the_others(setting: Setting) -> None:
    made = setting.event(BOB, attendees=guests(ALICE))
    await setting.calendar(ALICE).delete_event("primary", made["id"])
    assert (await setting.calendar(ALICE).list_events("primary")).items == []
    assert len((await setting.calendar(BOB).list_events("primary")).items) == 1


async def test_two_people_may_choose_the_same_id_for_their_events(setting: Setting) -> None:
    setting.event(ALICE, id="evt0001", summary="Hers")
    setting.event(BOB, id="evt0001", summary="His")
    assert (await setting.calendar(ALICE).get_event("primary", "evt0001")).summary == "Hers"
    assert (await setting.calendar(BOB).get_event("primary", "evt0001")).summary == "His"


async def test_a_service_account_that_speaks_for_nobody_may_not_invite(setting: Setting) -> None:
    setting.google.run(AddPerson(email=setting.key.client_email))
    calendar = setting.calendar("")
    new = NewEvent(attendees=[EventAttendee(email=BOB)])
    with pytest.raises(ForbiddenError, match="forbiddenForServiceAccounts"):
        await calendar.insert_event("primary", new)


async def test_a_sync_brings_each_changed_event_once_however_often_it_changed(setting: Setting) -> None:
    made, other = setting.event(), setting.event()
    token = await _sync_token(setting)
    for text in ("one", "two", "three"):
        setting.google.run(UpdateEvent(calendar=ALICE, event_id=made["id"], patch={"summary": text}))
    assert [(event.id, event.summary) for event in await _changes(setting, token)] == [(made["id"], "three")]
    assert other["id"] not in {event.id for event in await _changes(setting, token)}


async def test_a_change_between_two_pages_is_in_the_next_sync(setting: Setting) -> None:
    made = [setting.event()["id"] for _ in range(4)]
    calendar = setting.calendar()
    first = await calendar.list_events("primary", EventQuery(max_results=2))
    setting.google.run(UpdateEvent(calendar=ALICE, event_id=made[0], patch={"summary": "meanwhile"}))
    rest = EventQuery(max_results=2, page_token=first.next_page_token)
    last = await calendar.list_events("primary", rest)
    assert [event.id for event in last.items] == made[2:]
    assert [event.id for event in await _changes(setting, last.next_sync_token)] == made[:1]


async def test_a_page_may_be_asked_for_again(setting: Setting) -> None:
    for _ in range(3):
        setting.event()
    calendar = setting.calendar()
    first = await calendar.list_events("primary", EventQuery(max_results=2))
    rest = EventQuery(max_results=2, page_token=first.next_page_token)
    assert await calendar.list_events("primary", rest) == await calendar.list_events("primary", rest)


async def test_a_list_leaves_deleted_events_out_unless_asked(setting: Setting) -> None:
    made = setting.event()
    setting.google.run(DeleteEvent(calendar=ALICE, event_id=made["id"]))
    calendar = setting.calendar()
    assert (await calendar.list_events("primary")).items == []
    (shown,) = (await calendar.list_events("primary", EventQuery(show_deleted=True))).items
    assert shown.cancelled
    assert (await calendar.get_event("primary", made["id"])).cancelled


async def test_a_list_gives_a_series_as_one_event_or_as_its_instances(setting: Setting) -> None:
    series = setting.event(recurrence=DAILY)["id"]
    calendar = setting.calendar()
    (parent,) = (await calendar.list_events("primary")).items
    assert (parent.id, parent.recurrence) == (series, DAILY)
    single = (await calendar.list_events("primary", EventQuery(single_events=True))).items
    assert [(event.recurring_event_id, event.recurrence) for event in single] == [(series, [])] * 3


async def test_an_instance_taken_out_of_its_series_is_told_with_the_series(setting: Setting) -> None:
    series = setting.event(recurrence=DAILY)["id"]
    calendar = setting.calendar()
    second = (await calendar.list_instances("primary", series)).items[1]
    await calendar.delete_event("primary", second.id)
    parent, out = (await calendar.list_events("primary")).items
    assert (parent.id, out.id, out.status, out.recurring_event_id) == (series, second.id, "cancelled", series)
    assert out.original_start_time == second.start
    assert len((await calendar.list_instances("primary", series)).items) == 2
    assert len((await calendar.list_events("primary", EventQuery(single_events=True))).items) == 2


async def test_a_moved_instance_keeps_its_first_start_and_its_place(setting: Setting) -> None:
    series = setting.event(recurrence=DAILY)["id"]
    calendar = setting.calendar()
    second = (await calendar.list_instances("primary", series)).items[1]
    later = an_hour(START + timedelta(days=1, hours=5))
    patch = {"start": later["start"], "end": later["end"]}
    setting.google.run(UpdateEvent(calendar=ALICE, event_id=second.id, patch=patch))
    moved = (await calendar.list_instances("primary", series)).items[1]
    assert (moved.id, moved.original_start_time, moved.sequence) == (second.id, second.start, 1)


async def test_a_deleted_series_is_one_deletion_or_one_for_each_instance(setting: Setting) -> None:
    series = setting.event(recurrence=DAILY)["id"]
    whole, single = await _sync_token(setting), await _sync_token(setting, single=True)
    setting.google.run(DeleteEvent(calendar=ALICE, event_id=series))
    assert [(event.id, event.status) for event in await _changes(setting, whole)] == [(series, "cancelled")]
    ids = [event.id for event in await _changes(setting, single, single=True)]
    assert ids == [f"{series}_2026010{day}T090000Z" for day in (5, 6, 7)]


async def test_a_sync_token_belongs_to_its_calendar_and_to_its_way_of_listing(setting: Setting) -> None:
    token = await _sync_token(setting)
    for email, single in ((BOB, False), (ALICE, True)):
        with pytest.raises(InvalidError, match="Invalid sync token"):
            await _changes(setting, token, email, single=single)
    with pytest.raises(InvalidError, match="Invalid sync token"):
        await _changes(setting, "scribble")


@pytest.mark.parametrize("query", [EventQuery(q="plan"), EventQuery(order_by="updated")])
async def test_a_searched_or_ordered_list_gives_no_sync_token(setting: Setting, query: EventQuery) -> None:
    setting.event()
    page = await setting.calendar().list_events("primary", query)
    assert (len(page.items), page.next_sync_token) == (1, "")


async def test_times_bound_a_list_by_end_and_start(setting: Setting) -> None:
    setting.event()
    calendar, hour = setting.calendar(), timedelta(hours=1)
    for low, high, found in ((-1, 0, 0), (-1, 0.5, 1), (0.5, 3, 1), (1, 3, 0)):
        query = EventQuery(time_min=START + low * hour, time_max=START + high * hour)
        assert len((await calendar.list_events("primary", query)).items) == found


async def test_an_endless_series_is_listed_within_bounds(setting: Setting) -> None:
    series = setting.event(recurrence=["RRULE:FREQ=WEEKLY"])["id"]
    query = InstanceQuery(time_min=START, time_max=START + timedelta(days=15), max_results=2)
    page = await setting.calendar().list_instances("primary", series, query=query)
    assert (len(page.items), bool(page.next_page_token)) == (2, True)
    more = msgspec.structs.replace(query, page_token=page.next_page_token)
    last = await setting.calendar().list_instances("primary", series, query=more)
    assert [event.start.date_time for event in last.items if event.start] == [START + timedelta(days=14)]
    with pytest.raises(InvalidError, match="Invalid page token"):
        await setting.calendar().list_instances("primary", series, query=InstanceQuery(page_token="scribble"))


async def test_too_large_a_list_of_guests_is_cut_to_oneself_when_asked(setting: Setting) -> None:
    made = setting.event(attendees=guests(ALICE, BOB, "carol@x.jp"))
    token = await setting.account.tokens(["https://www.googleapis.com/auth/calendar"], subject=BOB)()
    url = f"{setting.google.calendar_url}/calendars/primary/events/{made['id']}"
    headers = {"Authorization": f"Bearer {token}"}
    async with setting.session.get(url, params={"maxAttendees": "2"}, headers=headers) as response:
        event = await response.json()
    assert ([guest["email"] for guest in event["attendees"]], event["attendeesOmitted"]) == ([BOB], True)


async def test_an_unchanged_event_is_not_sent_again(setting: Setting) -> None:
    made = setting.event()
    token = await setting.account.tokens(["https://www.googleapis.com/auth/calendar"], subject=ALICE)()
    headers = {"Authorization": f"Bearer {token}", "If-None-Match": made["etag"]}
    url = f"{setting.google.calendar_url}/calendars/primary/events/{made['id']}"
    async with setting.session.get(url, headers=headers) as response:
        assert response.status == 304


async def test_a_read_only_scope_reads_and_does_not_write(setting: Setting) -> None:
    token = await setting.account.tokens(
        ["https://www.googleapis.com/auth/calendar.readonly"], subject=ALICE
    )()
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{setting.google.calendar_url}/calendars/primary/events"
    async with setting.session.get(url, headers=headers) as response:
        assert response.status == 200
    async with setting.session.post(url, headers=headers, json=an_hour()) as response:
        assert (response.status, (await response.json())["error"]["errors"][0]["reason"]) == (
            403,
            "insufficientPermissions",
        )


BAD_EVENTS = {
    "no end": an_hour() | {"end": None},
    "end before start": an_hour() | {"end": {"dateTime": "2026-01-05T08:00:00Z"}},
    "a day that starts an hour": an_hour() | {"start": {"date": "2026-01-05"}},
    "no offset and no zone": an_hour() | {"start": {"dateTime": "2026-01-05T09:00:00"}},
    "an unknown zone": an_hour() | {"start": {"dateTime": "2026-01-05T09:00:00", "timeZone": "Mars/Olympus"}},
    "a guest without address": an_hour() | {"attendees": [{"displayName": "Bob"}]},
    "a rule that is none": an_hour() | {"recurrence": ["RRULE:FREQ=OFTEN"]},
    "a series without zone": an_hour() | {"start": {"dateTime": "2026-01-05T09:00:00Z"}, "recurrence": DAILY},
}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(CALENDAR.schema("Event")["properties"])), JSON, max_size=4))
def test_a_body_of_any_shape_makes_an_event_or_is_refused(body: dict[str, object]) -> None:
    calendars = Calendars(ManualClock(), lambda email: None)
    calendar = calendars.add(ALICE)
    with contextlib.suppress(Refusal):
        record = calendars.insert(calendar, an_hour() | body)
        CALENDAR.check_value(view(record, ALICE), {"$ref": "Event"}, at="event")


@pytest.mark.parametrize("what", BAD_EVENTS)
def test_an_event_is_refused_that_has(what: str, setting: Setting) -> None:
    with pytest.raises(ValueError, match=r"."):
        setting.google.run(CreateEvent(calendar=ALICE, event=BAD_EVENTS[what]))


@pytest.mark.parametrize("moment", ["9999-12-31T23:00:00-12:00", "0001-01-01T00:00:00+14:00"])
async def test_a_time_beyond_all_years_is_refused(setting: Setting, moment: str) -> None:
    when = {"dateTime": moment, "timeZone": "UTC"}
    with pytest.raises(Refusal, match="Invalid value for: start"):
        setting.event(start=when, end=when)
