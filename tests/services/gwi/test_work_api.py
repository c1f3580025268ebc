"""Signals, queue and candidates over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import ManualClock
from tests.services.gwi.api import TENANT, Api, gwi_api, user_id

W = f"/gwi/v1/tenants/{TENANT}"
REPO = {"owner": "acme", "name": "shop", "fullName": "acme/shop", "id": 42}
PATCH = {
    "changes": [{"file": "src/cart.py", "action": "modify", "content": "x = 1\n"}],
    "commitMessage": "Mend the cart",
}


@pytest.fixture
async def api(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Api]:
    async with gwi_api(tmp_path, clock) as made:
        await made.found(adam="admin", dora="developer", dean="developer", vera="viewer")
        yield made


async def _signals(api: Api, *numbers: int, **context: Any) -> list[Any]:
    """Record signals about issues and process them; return the items by score."""
    for number in numbers:
        about = {"repo": REPO, "resourceType": "issue", "resourceNumber": number, "title": f"Issue {number}"}
        body = {"externalId": f"d{number}", "source": "github_issue", "context": about | context}
        await api.done("dora", "POST", f"{W}/signals", body)
    await api.done("dora", "POST", f"{W}/signals/process")
    return list((await api.done("vera", "GET", f"{W}/queue"))["items"])


async def test_a_signal_becomes_an_item_that_members_see(api: Api) -> None:
    (item,) = await _signals(api, 1, labels=["urgent"])
    assert (item["type"], item["score"], item["status"]) == ("issue_to_code", 85, "queued")
    assert await api.done("vera", "GET", f"{W}/queue/{item['id']}") == item
    (signal,) = (await api.done("vera", "GET", f"{W}/signals?status=processed"))["signals"]
    assert signal["processingMeta"]["workItemId"] == item["id"]
    assert await api.done("vera", "GET", f"{W}/signals/{signal['id']}") == signal
    status, refused = await api.ask("vera", "POST", f"{W}/signals/process")
    assert (status, refused["error"], refused["details"]["userRole"]) == (403, "forbidden", "viewer")
    body = {"externalId": "d1", "source": "github_issue", "context": {}}
    assert (await api.ask("dora", "POST", f"{W}/signals", body))[0] == 409
    assert (await api.ask("dora", "POST", f"{W}/signals", {"externalId": "d2"}))[0] in (400, 422)
    assert (await api.ask("vera", "GET", f"{W}/signals/sig-none"))[0] == 404


async def test_the_queue_is_filtered_in_the_query_and_paged_by_cursor(api: Api) -> None:
    await _signals(api, 1, labels=["urgent"])
    await _signals(api, 2, title="docs: explain")
    await _signals(api, 3, repo=REPO | {"fullName": "acme/api"})
    await _signals(api, 4, labels=["bug"])
    first = await api.done("vera", "GET", f"{W}/queue?limit=3")
    rest = await api.done("vera", "GET", f"{W}/queue?limit=3&cursor={first['cursor']}")
    scores = [one["score"] for one in (*first["items"], *rest["items"])]
    assert (scores, rest["cursor"]) == ([85, 70, 60, 35], None)
    queries = {
        "type=docs_update": [2], "repo=acme/api": [3], "minScore=70": [1, 4], "status=dismissed": [],
        "status=queued&status=in_progress&type=issue_to_code&minScore=65": [1, 4],
        "repo=acme/shop&type=issue_to_code": [1, 4], "assignee=nobody": [],
    }  # fmt: skip
    for query, numbers in queries.items():
        page = await api.done("vera", "GET", f"{W}/queue?{query}")
        assert sorted(one["resourceNumber"] for one in page["items"]) == numbers, query
    stats = await api.done("vera", "GET", f"{W}/queue/stats")
    assert (stats["total"], stats["live"], stats["byStatus"]["queued"]) == (4, 4, 4)
    assert (stats["byType"]["issue_to_code"], stats["averageScore"]) == (3, 62.5)
    for wrong in ("status=none", "minScore=101", "cursor=x", "type=none"):
        assert (await api.ask("vera", "GET", f"{W}/queue?{wrong}"))[0] in (400, 422), wrong


async def test_items_are_assigned_snoozed_dated_and_dismissed_one_or_many(
    api: Api, clock: ManualClock
) -> None:
    first, second, third = await _signals(api, 1, 2, 3)
    friday = (clock.now() + timedelta(days=4)).isoformat()
    changed = await api.done(
        "dora", "POST", f"{W}/queue/{first['id']}", {"assignedTo": user_id("dean"), "dueAt": friday}
    )
    assert (changed["assignedTo"], changed["dueAt"][:10]) == (user_id("dean"), friday[:10])
    both = {"ids": [second["id"], third["id"]], "change": {"snoozedUntil": friday}}
    assert [one["snoozed"] for one in (await api.done("dora", "POST", f"{W}/queue/bulk", both))["items"]] == [
        True, True,
    ]  # fmt: skip
    shown = [one["id"] for one in (await api.done("vera", "GET", f"{W}/queue"))["items"]]
    hidden = [one["id"] for one in (await api.done("vera", "GET", f"{W}/queue?snoozed=true"))["items"]]
    assert (shown, sorted(hidden)) == ([first["id"]], sorted([second["id"], third["id"]]))
    assert (await api.done("vera", "GET", f"{W}/queue/stats"))["snoozed"] == 2
    await api.done("dora", "POST", f"{W}/queue/{second['id']}/dismiss", {"reason": "a duplicate"})
    # All or none: one of them is finished.
    both["change"] = {"status": "dismissed"}
    assert (await api.ask("dora", "POST", f"{W}/queue/bulk", both))[0] == 409
    assert (await api.done("vera", "GET", f"{W}/queue/{third['id']}"))["status"] == "queued"
    assert (await api.done("vera", "GET", f"{W}/queue/{second['id']}"))["closeReason"] == "a duplicate"
    await _expect_refusals(api, third["id"], second["id"])


async def _expect_refusals(api: Api, live: str, finished: str) -> None:
    """What makes no sense is refused with a reason, and changes nothing."""
    bodies: dict[str, Any] = {
        "nothing": {}, "reason": {"reason": "x"}, "stranger": {"assignedTo": "nobody"},
        "viewer": {"assignedTo": user_id("vera")}, "past": {"snoozedUntil": "2001-01-01T00:00:00Z"},
        "status": {"status": "approved"}, "unknown": {"colour": "red"},
    }  # fmt: skip
    for name, body in bodies.items():
        assert (await api.ask("dora", "POST", f"{W}/queue/{live}", body))[0] in (400, 422), name
    assert (await api.ask("dora", "POST", f"{W}/queue/{finished}", {"status": "queued"}))[0] in (409, 422)
    assert (await api.ask("dora", "POST", f"{W}/queue/wi-none", {"status": "dismissed"}))[0] == 404
    assert (await api.ask("vera", "POST", f"{W}/queue/{live}", {"status": "dismissed"}))[0] == 403


async def test_snoozed_items_come_back_when_their_time_has_come(api: Api, clock: ManualClock) -> None:
    (item,) = await _signals(api, 1)
    later = (clock.now() + timedelta(hours=1)).isoformat()
    await api.done("dora", "POST", f"{W}/queue/{item['id']}", {"snoozedUntil": later})
    job = next(one for one in api.harness.runtime.parts["gwi"].jobs if one.name == "gwi-snoozes")
    act: Any = job.act
    assert await act(None) == {"woken": 0}
    await clock.advance(3_601)
    assert await act(None) == {"woken": 1}
    assert [one["id"] for one in (await api.done("vera", "GET", f"{W}/queue"))["items"]] == [item["id"]]


async def test_a_candidate_is_proposed_voted_on_and_refused_where_it_must_be(api: Api) -> None:
    (item,) = await _signals(api, 1)
    made = await api.done("dora", "POST", f"{W}/queue/{item['id']}/candidate", {"patch": PATCH})
    path = f"/gwi/v1/candidates/{made['id']}"
    assert (made["status"], made["risk"]["level"], made["requiredApprovals"]) == ("ready", "low", 1)
    assert await api.done("vera", "GET", path) == made
    listed = await api.done("vera", "GET", f"{W}/candidates?status=ready")
    assert [one["id"] for one in listed["candidates"]] == [made["id"]]
    for name, status in {"vera": 403, "dora": 403, "mallory": 403}.items():
        assert (await api.ask(name, "POST", f"{path}/approve", {}))[0] == status, name
    stale = {"decision": "approved", "patchHash": "0" * 64}
    assert (await api.ask("dean", "POST", f"{path}/approve", stale))[0] == 409
    vote = {"decision": "approved", "patchHash": made["patchHash"], "comment": "Good"}
    voted = await api.done("dean", "POST", f"{path}/approve", vote, key="v1")
    assert (voted["status"], voted["approvals"][0]["userId"]) == ("approved", user_id("dean"))
    _, again, headers = await api.request("dean", "POST", f"{path}/approve", vote, key="v1")
    assert (again, headers["Idempotency-Replayed"]) == (voted, "true")
    # Only admins apply, and this item's repository is connected to nothing.
    assert (await api.ask("dora", "POST", f"{path}/apply"))[0] == 403
    assert (await api.ask("adam", "POST", f"{path}/apply"))[0] == 404
    assert (await api.ask("adam", "POST", "/gwi/v1/candidates/cand-none/apply"))[0] == 404


async def test_a_member_of_another_tenant_finds_no_candidate(api: Api) -> None:
    (item,) = await _signals(api, 1)
    made = await api.done("dora", "POST", f"{W}/queue/{item['id']}/candidate", {"patch": PATCH})
    await api.done("mallory", "POST", "/gwi/tenants", {"githubOrgId": 8, "githubOrgLogin": "other"})
    path = f"/gwi/v1/candidates/{made['id']}"
    for method, place in (("GET", path), ("POST", f"{path}/approve"), ("POST", f"{path}/apply")):
        status, body = await api.ask("mallory", method, place)
        assert status == 404
        assert "cart" not in str(body)
    assert (await api.ask("mallory", "GET", f"{W}/queue/{item['id']}"))[0] == 403
