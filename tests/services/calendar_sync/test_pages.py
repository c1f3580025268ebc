"""The service's pages in the console: what they show to whom."""

from __future__ import annotations

import aiohttp
from yarl import URL

from holdfast.console import routes
from holdfast.http.app import create_app
from holdfast.kit.access import Sessions, Users
from holdfast.simulators.google import RevokeAccess
from tests.services.calendar_sync.harness import ALICE, ALICE2, BOB, STRANGER, Harness

DAY = 86_400


async def _page(harness: Harness, path: str, *, role: str = "owner", status: int = 200) -> str:
    harness.server.app = create_app(harness.runtime, more=routes(harness.runtime))
    name = f"{role}-{len(path)}"
    user = await Users(harness.runtime.store).add(name, role=role, tenant_id="-")  # type: ignore[arg-type]
    cookie = await Sessions(harness.runtime.store).begin(user)
    jar = aiohttp.CookieJar(unsafe=True)
    jar.update_cookies({"holdfast_session": cookie}, URL(harness.config.public_url))
    async with (
        aiohttp.ClientSession(harness.config.public_url, cookie_jar=jar) as visitor,
        visitor.get(f"/console/calendar-sync{path}", allow_redirects=False) as answer,
    ):
        text = await answer.text()
        assert answer.status == status, text
        return text


async def test_calendars_are_shown_with_their_channels_and_what_can_be_done(harness: Harness) -> None:
    await harness.begin()
    text = await _page(harness, "")
    assert ALICE in text
    assert ALICE2 in text
    assert 'data-act="/calendar-sync/admin/force-register-channels"' in text
    assert 'data-act="/calendar-sync/admin/renew-expiring-channels"' in text
    assert "ends " in text.lower()


async def test_a_viewer_sees_and_finds_nothing_to_press(quick_harness: Harness) -> None:
    await quick_harness.begin()
    text = await _page(quick_harness, "", role="viewer")
    assert ALICE in text
    assert "/calendar-sync/admin/" not in text


async def test_trouble_is_what_is_seen_first(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    harness.google.run(RevokeAccess(email=ALICE))
    await harness.later(6 * DAY + 3_600)
    text = await _page(harness, "")
    assert f"needs attention, credentials are gone: {ALICE}" in text
    assert "invalid_grant" in text
    assert f'data-key="{BOB}"' not in text, "only what needs somebody, unless asked for others"
    assert f'data-key="{BOB}"' in await _page(harness, "?status=fine")


async def test_one_calendar_shows_what_was_done_to_its_events(harness: Harness) -> None:
    await harness.begin()
    event_id = harness.create(ALICE, STRANGER)
    await harness.work()
    text = await _page(harness, f"/calendars/{ALICE}")
    assert event_id in text
    assert f"+{ALICE2}" in text
    assert "opened" in text
    assert 'data-act="/calendar-sync/admin/stop-channel"' in text


async def test_pages_that_are_not_there_or_asked_wrongly_say_so(quick_harness: Harness) -> None:
    await quick_harness.begin()
    assert "is not mapped" in await _page(quick_harness, "/calendars/nobody@hoge.jp", status=404)
    assert "status is one of" in await _page(quick_harness, "?status=asleep", status=422)


async def test_hostile_names_stay_text(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    harness.map({ALICE: [ALICE2], "<script>alert(1)</script>@hoge.jp": [ALICE2]})
    await harness.engine.refresh()
    text = await _page(harness, "")
    assert "<script>alert" not in text
