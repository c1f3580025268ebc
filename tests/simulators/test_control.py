"""A person with curl causes things: the control API over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.providers.google_calendar import EventQuery
from tests.providers.provider_fixture import ALICE, BOB, HastyClock, Setting, an_hour, guests


async def _do(setting: Setting, command: str, **body: Any) -> Any:
    async with setting.session.post(f"{setting.google.url}/_control/{command}", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def _titles(setting: Setting, email: str = ALICE) -> list[str]:
    return [event.summary for event in (await setting.calendar(email).list_events("primary")).items]


async def test_an_event_is_made_answered_changed_and_deleted(setting: Setting) -> None:
    made = await _do(setting, "create-event", calendar=ALICE, event=an_hour() | {"attendees": guests(BOB)})
    await _do(setting, "respond", calendar=BOB, eventId=made["id"], status="declined")
    await _do(setting, "update-event", calendar=ALICE, eventId=made["id"], patch={"summary": "New"})
    assert await _titles(setting, BOB) == ["New"]
    (shown,) = await _do(setting, "show-calendar", calendar=BOB)
    assert shown["attendees"][0]["responseStatus"] == "declined"
    await _do(setting, "delete-event", calendar=ALICE, eventId=made["id"])
    assert await _titles(setting, BOB) == []


async def test_the_next_calls_are_failed_as_told_and_no_others(setting: Setting, hasty: HastyClock) -> None:
    await _do(setting, "trouble", count=1, status=503, path="/events", method="GET")
    await setting.calendar().list_calendars()
    assert hasty.slept == []
    await setting.calendar().list_events("primary")
    assert len(hasty.slept) == 1


async def test_a_call_can_be_delayed(setting: Setting, hasty: HastyClock) -> None:
    await _do(setting, "trouble", delayS=3, path="/events")
    assert await _titles(setting) == []
    assert hasty.slept == [3.0]


async def test_what_came_in_is_listed_without_the_tokens(setting: Setting) -> None:
    await setting.calendar().list_events("primary", EventQuery(max_results=7))
    calls = await _do(setting, "calls")
    assert [(call["method"], call["path"]) for call in calls] == [
        ("POST", "/token"),
        ("GET", "/calendar/v3/calendars/primary/events"),
    ]
    assert calls[1]["query"] == [["maxResults", "7"]]
    assert "Authorization" not in calls[1]["headers"]


async def test_people_and_keys_are_made_and_all_is_forgotten(setting: Setting) -> None:
    await _do(setting, "people", email="carol@hoge.jp", timeZone="Europe/Paris")
    key = await _do(setting, "service-accounts", name="second")
    assert (key["type"], key["token_uri"]) == ("service_account", f"{setting.google.url}/token")
    assert await _titles(setting, "carol@hoge.jp") == []
    await _do(setting, "reset")
    assert await _do(setting, "calls") == []
    assert await _do(setting, "channels") == []


@pytest.mark.parametrize(
    ("command", "body"),
    [
        ("nonsense", {}),
        ("people", {"mail": ALICE}),
        ("create-event", {"calendar": "nobody@x.jp", "event": {}}),
        ("create-event", {"calendar": ALICE, "event": {"summary": "no time"}}),
        ("revoke", {"email": "nobody@x.jp"}),
        ("trouble", {"status": "bad"}),
    ],
)
async def test_a_command_that_makes_no_sense_says_why(
    setting: Setting, command: str, body: dict[str, Any]
) -> None:
    async with setting.session.post(f"{setting.google.url}/_control/{command}", json=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]


async def test_every_command_is_listed_with_what_it_takes(setting: Setting) -> None:
    async with setting.session.get(f"{setting.google.url}/_control") as response:
        listed = await response.json()
    assert {"trouble", "calls", "reset", "create-event", "pushes", "expire-sync-tokens"} <= listed.keys()
    assert all(listed.values())


async def test_every_other_command_does_what_it_says(setting: Setting) -> None:
    await _do(setting, "sheet", spreadsheetId="S1", sheet="One", rows=[["a", 1, True, None]])
    await _do(setting, "quota", perMinute=100, status=429)
    assert (await setting.sheets().values("S1", "One")).values == [["a", "1", "TRUE"]]
    await _do(setting, "end-tokens")
    await _do(setting, "pushes", act="double", count=2)
    assert (await _do(setting, "expire-sync-tokens"))["expired"] == [ALICE, BOB]
    await _do(setting, "revoke", email=BOB)
    await _do(setting, "restore", email=BOB)
    assert await _titles(setting, BOB) == []
