"""How the service says it is: channels as JSON and as a table, health, and rest without settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing import ManualClock
from tests.services.calendar_sync.harness import ACTS, ALICE, BOB, Harness, calendar_harness

DAY = 86_400


async def test_channel_status_as_json(harness: Harness) -> None:
    await harness.begin()
    token = await harness.token()
    await harness.clock.advance(11 * 3_600 + 26 * 60)  # type: ignore[attr-defined]
    _, told, _ = await harness.ask("GET", "/admin/channel-status", token=token)
    assert [one["expiresIn"] for one in told["channels"]] == ["6d 12h 34m"] * 2
    assert not any(one["warning"] for one in told["channels"])
    assert told["summary"] == {"total": 2, "active": 2, "expired": 0, "stopped": 0, "warnings": 0}
    assert told["health"]["lastRenewalAt"]
    assert told["health"]["nextRenewalAt"]
    await harness.clock.advance(6 * DAY)  # type: ignore[attr-defined]
    _, told, _ = await harness.ask("GET", "/admin/channel-status?filter=active", token=token)
    assert all(one["warning"] for one in told["channels"])
    _, told, _ = await harness.ask("GET", "/admin/channel-status?filter=expired", token=token)
    assert told["channels"] == []
    _, first, _ = await harness.ask("GET", "/admin/channel-status?limit=1", token=token)
    _, second, _ = await harness.ask(
        "GET", f"/admin/channel-status?limit=1&cursor={first['cursor']}", token=token
    )
    names = [page["channels"][0]["calendarId"] for page in (first, second)]
    assert sorted(names) == [ALICE, BOB]


async def test_channel_status_as_a_table(quick_harness: Harness) -> None:
    await quick_harness.begin()
    _, text, headers = await quick_harness.ask(
        "GET", "/admin/channel-status?format=table", token=await quick_harness.token()
    )
    assert headers["content-type"].startswith("text/plain")
    lines = text.splitlines()
    assert lines[0].split() == ["CHANNEL", "CALENDAR", "STATUS", "EXPIRES", "IN"]
    assert len({line.index("active") for line in lines[1:3]}) == 1, "columns stand under each other"
    assert lines[-1] == "ok: 2 total, 2 active, 0 expired, 0 stopped, 0 warnings"


@pytest.mark.parametrize("query", ["format=xml", "filter=dead", "limit=0", "limit=many", "cursor=nonsense"])
async def test_a_bad_question_is_refused(quick_harness: Harness, query: str) -> None:
    await quick_harness.begin()
    status, _, _ = await quick_harness.ask(
        "GET", f"/admin/channel-status?{query}", token=await quick_harness.token()
    )
    assert status in (400, 422)


async def test_health_is_for_everybody_its_counts_are_for_viewers_and_it_names_nobody(
    harness: Harness,
) -> None:
    status, told, _ = await harness.ask("GET", "/health")
    assert (status, told) == (200, {"status": "degraded"}), "nothing was read yet"
    await harness.engine.refresh()
    status, told, _ = await harness.ask("GET", "/health")
    assert (status, told["status"]) == (503, "critical"), "wanted, and nothing is live"
    await harness.work()
    for stranger in (None, "hf_nobody", await harness.token("viewer", "acme")):
        status, told, _ = await harness.ask("GET", "/health", token=stranger)
        assert (status, told) == (200, {"status": "ok"})
    status, told, _ = await harness.ask("GET", "/health", token=await harness.token("viewer"))
    assert (status, told["status"]) == (200, "ok")
    assert told["mappings"]["count"] == 2
    assert told["mappings"]["ageSeconds"] == 0
    assert told["channels"] == {"active": 2, "expired": 0, "stopped": 0}
    assert told["lastSyncAt"]
    assert "@" not in str(told)


async def test_without_settings_the_service_rests_and_says_so(
    one_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with calendar_harness(
        one_url, clock, tmp_path, settings={"service_account": "", "mappings": ""}
    ) as harness:
        _, told, _ = await harness.ask("GET", "/health", token=await harness.token("viewer"))
        assert (told["status"], told["inUse"]) == ("ok", False)
        assert not harness.runtime.parts["calendar_sync"].loops
        for act in ACTS[:3]:
            status, body, _ = await harness.ask("POST", f"/admin/{act}", token=await harness.token())
            assert status == 409
            assert "set its service_account" in body["error"]["message"]


async def test_warnings_are_counted_over_all_channels(harness: Harness, clock: ManualClock) -> None:
    await harness.begin()
    await clock.advance(6 * 86_400 + 3_600)
    _, body, _ = await harness.ask("GET", "/admin/channel-status?limit=1", token=await harness.token())
    assert len(body["channels"]) == 1
    assert body["summary"]["warnings"] == 2
