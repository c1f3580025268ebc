"""Google's own client library, pointed at the simulator, finds what Google's documentation promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import google_auth_httplib2
import httplib2
import pytest
from google.auth.exceptions import RefreshError
from google.oauth2 import service_account
from googleapiclient.discovery import build_from_document
from googleapiclient.errors import HttpError

from holdfast.clock import SystemClock
from holdfast.simulators.google import DeleteEvent, ExpireSyncTokens, RevokeAccess, SetSheet, UpdateEvent
from tests.kit.receiver import OK, answering, serving
from tests.providers.provider_fixture import ALICE, BOB, Setting, a_setting, an_hour, guests
from tests.simulators.api_description import Description

_Credentials: Any = service_account.Credentials
SCOPES = ["https://www.googleapis.com/auth/calendar", "https://www.googleapis.com/auth/spreadsheets.readonly"]


class Library:
    """The library's clients for one person; each act runs in a thread, for it knows no event loop."""

    def __init__(self, setting: Setting, email: str = ALICE) -> None:
        credentials = _Credentials.from_service_account_info(setting.key_file, scopes=SCOPES, subject=email)
        self._http = httplib2.Http(timeout=60)
        http = google_auth_httplib2.AuthorizedHttp(credentials, http=self._http)
        self.calendar = _built("calendar.v3", setting.google.calendar_url + "/", http)
        self.sheets = _built("sheets.v4", setting.google.url, http)

    async def do(self, request: Any, *, if_match: str = "") -> Any:
        if if_match:
            request.headers["If-Match"] = if_match
        return await asyncio.to_thread(request.execute)

    def close(self) -> None:
        self._http.close()


def _built(name: str, url: str, http: object) -> Any:
    document = json.dumps(Description(name).document)
    return build_from_document(document, http=http, client_options={"api_endpoint": url})


@pytest.fixture
async def real() -> AsyncIterator[Setting]:
    # The library reads the machine's clock, so the simulator must too.
    async with a_setting(SystemClock()) as made:
        yield made


@pytest.fixture
def library(real: Setting) -> Iterator[Library]:
    made = Library(real)
    yield made
    made.close()


def _reason(error: HttpError) -> tuple[int, str]:
    return error.resp.status, json.loads(error.content)["error"]["errors"][0]["reason"]


async def _refused(act: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(HttpError) as raised:
        await act()
    return _reason(raised.value)


async def test_it_signs_in_as_a_person_by_delegation_and_lists_their_events(
    real: Setting, library: Library
) -> None:
    made = real.event(attendees=guests(BOB))
    page = await library.do(library.calendar.events().list(calendarId="primary"))
    assert [event["id"] for event in page["items"]] == [made["id"]]
    assert page["items"][0]["organizer"] == {"email": ALICE, "self": True}


async def test_it_inserts_and_patches_and_a_stale_etag_is_refused(real: Setting, library: Library) -> None:
    events = library.calendar.events()
    made = await library.do(events.insert(calendarId=ALICE, body=an_hour() | {"id": "chosen0001"}))
    taken = events.insert(calendarId=ALICE, body=an_hour() | {"id": "chosen0001"})
    assert await _refused(lambda: library.do(taken)) == (409, "duplicate")
    patch = {"attendees": guests(BOB)}
    request = events.patch(calendarId=ALICE, eventId=made["id"], body=patch, sendUpdates="all")
    now = await library.do(request, if_match=made["etag"])
    assert now["attendees"] == [{"email": BOB, "responseStatus": "needsAction"}]
    again = events.patch(calendarId=ALICE, eventId=made["id"], body={"summary": "Late"})
    assert await _refused(lambda: library.do(again, if_match=made["etag"])) == (412, "conditionNotMet")


async def test_it_pages_to_the_sync_token_and_then_sees_only_what_changed(
    real: Setting, library: Library
) -> None:
    events = library.calendar.events()
    made = [real.event(summary=f"event {number}")["id"] for number in range(5)]
    request, pages = events.list(calendarId="primary", maxResults=2), []
    while request is not None:
        pages.append(await library.do(request))
        request = events.list_next(request, pages[-1])
    assert [item["id"] for page in pages for item in page["items"]] == made
    assert ["nextSyncToken" in page for page in pages] == [False, False, True]
    real.google.run(UpdateEvent(calendar=ALICE, event_id=made[1], patch={"summary": "changed"}))
    real.google.run(DeleteEvent(calendar=ALICE, event_id=made[3]))
    token = pages[-1]["nextSyncToken"]
    changes = await library.do(events.list(calendarId="primary", syncToken=token))
    assert [(item["id"], item["status"]) for item in changes["items"]] == [
        (made[1], "confirmed"),
        (made[3], "cancelled"),
    ]
    after = await library.do(events.list(calendarId="primary", syncToken=changes["nextSyncToken"]))
    assert after["items"] == []


async def test_an_expired_sync_token_is_gone_and_one_with_restrictions_is_refused(
    real: Setting, library: Library
) -> None:
    events = library.calendar.events()
    token = (await library.do(events.list(calendarId="primary")))["nextSyncToken"]
    restricted = events.list(calendarId="primary", syncToken=token, timeMin="2026-01-01T00:00:00Z")
    assert (await _refused(lambda: library.do(restricted)))[0] == 400
    real.google.run(ExpireSyncTokens(calendar=ALICE))
    expired = events.list(calendarId="primary", syncToken=token)
    assert await _refused(lambda: library.do(expired)) == (410, "fullSyncRequired")


async def test_it_expands_a_series_into_instances(real: Setting, library: Library) -> None:
    series = real.event(recurrence=["RRULE:FREQ=DAILY;COUNT=3"])["id"]
    found = await library.do(library.calendar.events().instances(calendarId="primary", eventId=series))
    assert [item["id"] for item in found["items"]] == [
        f"{series}_20260105T090000Z",
        f"{series}_20260106T090000Z",
        f"{series}_20260107T090000Z",
    ]
    assert {item["recurringEventId"] for item in found["items"]} == {series}


async def test_it_opens_a_channel_is_told_of_changes_and_stops_it(real: Setting, library: Library) -> None:
    async with serving(answering(OK)) as hook:
        body = {"id": "chan-1", "type": "web_hook", "address": hook.url(), "token": "secret=1"}
        channel = await library.do(library.calendar.events().watch(calendarId="primary", body=body))
        real.event()
        await real.google.wait_for_pushes()
        await library.do(
            library.calendar.channels().stop(body={"id": "chan-1", "resourceId": channel["resourceId"]})
        )
        real.event()
        await real.google.wait_for_pushes()
    states = [request.headers["X-Goog-Resource-State"] for request in hook.requests]
    assert states == ["sync", "exists"]
    week_ms = timedelta(days=7) / timedelta(milliseconds=1)
    assert abs(int(channel["expiration"]) - real.clock.now_us() / 1000 - week_ms) < 60_000


async def test_it_reads_values_of_a_quoted_sheet(real: Setting, library: Library) -> None:
    rows = [["primary", "secondaries", "status"], [ALICE, "a@fuga.jp"], [], [BOB, "b@fuga.jp", "active"]]
    real.google.run(SetSheet(spreadsheet_id="S1", sheet="User Mappings", rows=rows))
    values = library.sheets.spreadsheets().values()
    got = await library.do(values.get(spreadsheetId="S1", range="User Mappings!A2:C"))
    assert got == {
        "range": "'User Mappings'!A2:C1000",
        "majorDimension": "ROWS",
        "values": [[ALICE, "a@fuga.jp"], [], [BOB, "b@fuga.jp", "active"]],
    }
    both = await library.do(
        values.batchGet(spreadsheetId="S1", ranges=["'User Mappings'!A1", "User Mappings!B2:B"])
    )
    assert [one["values"] for one in both["valueRanges"]] == [
        [["primary"]],
        [["a@fuga.jp"], [], ["b@fuga.jp"]],
    ]


async def test_a_revoked_person_gets_no_token(real: Setting, library: Library) -> None:
    real.google.run(RevokeAccess(email=ALICE))
    with pytest.raises(RefreshError, match="invalid_grant"):
        await library.do(library.calendar.events().list(calendarId="primary"))
