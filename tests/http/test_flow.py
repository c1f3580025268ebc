"""What comes in goes out: a webhook, the inbox, its handler, a delivery; and what operators see and do."""

from __future__ import annotations

from holdfast.kit.audit import AuditEntry
from holdfast.kit.metering import Meter
from tests.http.server_harness import Echo, ServerHarness
from tests.kit.receiver import OK, answering, serving

REPLAY = "/api/v1/dead-letters/holdfast/replay"
GONE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno"


async def _drain(harness: ServerHarness, token: str) -> None:
    status, body, _ = await harness.ask("POST", "/work/drain", token=token, json={"seconds": 20})
    assert (status, body["idle"]) == (200, True)


async def test_a_webhook_is_kept_worked_on_and_sent_on(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    async with serving(answering(OK)) as there:
        await harness.endpoint(there.url())
        assert await harness.send("m1", "moin") == 202
        assert await harness.send("m1", "moin") == 200
        assert await harness.runtime.store.get(Echo, "m1") is None
        await _drain(harness, token)
        assert [request.body for request in there.requests] == [b"moin"]
    assert await harness.runtime.store.get(Echo, "m1") is not None
    _, inbox, _ = await harness.ask("GET", "/api/v1/inbox?status=done", token=token)
    assert [item["messageId"] for item in inbox["items"]] == ["m1"]
    _, page, _ = await harness.ask("GET", "/api/v1/deliveries?status=delivered", token=token)
    assert [item["id"] for item in page["items"]] == ["m1~there"]
    created = page["items"][0]["createdAt"]
    for query, count in (("since", 1), ("until", 0)):
        path = f"/api/v1/deliveries?status=delivered&{query}={created}"
        assert len((await harness.ask("GET", path, token=token))[1]["items"]) == count, query
    status, refused, _ = await harness.ask("GET", "/api/v1/deliveries?since=noon", token=token)
    assert (status, refused["error"]["details"]["path"]) == (422, "since")
    _, one, _ = await harness.ask("GET", "/api/v1/deliveries/holdfast/m1~there", token=token)
    assert (one["body"], one["bodyIsBase64"], one["attempts"][0]["status"]) == ("moin", False, 200)


async def test_a_dead_letter_is_seen_and_put_out_again(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    async with serving(answering(GONE, OK)) as there:
        await harness.endpoint(there.url())
        await harness.send("m1")
        await _drain(harness, token)
        _, dead, _ = await harness.ask("GET", "/api/v1/dead-letters", token=token)
        assert [letter["id"] for letter in dead["items"]] == ["m1~there"]
        _, would, _ = await harness.ask("POST", REPLAY, token=token, json={})
        assert (would["matched"], would["changed"], would["dryRun"]) == (1, 0, True)
        _, did, _ = await harness.ask("POST", REPLAY, token=token, json={"dryRun": False})
        assert did["changed"] == 1
        await _drain(harness, token)
        assert len(there.requests) == 2
    _, one, _ = await harness.ask("GET", "/api/v1/deliveries/holdfast/m1~there", token=token)
    assert (one["status"], one["replayCount"]) == ("delivered", 1)
    _, trail, _ = await harness.ask("GET", "/api/v1/audit", token=token)
    assert [(event["action"], event["actor"]) for event in trail["items"]] == [
        ("dead_letters.replayed", f"token:{token[3:19]}")
    ]
    _, verdict, _ = await harness.ask("POST", "/api/v1/audit/verify", token=token)
    assert verdict == {"sound": True, "events": 1, "fault": None}


async def test_lists_page_by_cursor(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    for number in range(5):
        await harness.send(f"m{number}")
    seen: list[str] = []
    cursor = ""
    for _ in range(3):
        _, page, _ = await harness.ask("GET", f"/api/v1/inbox?limit=2{cursor}", token=token)
        seen += [item["messageId"] for item in page["items"]]
        cursor = f"&cursor={page['cursor']}"
    assert seen == ["m4", "m3", "m2", "m1", "m0"]


async def test_a_message_is_worked_on_again(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    await harness.send("m1")
    _, early, _ = await harness.ask("POST", "/api/v1/inbox/echoes_m1/replay", token=token)
    assert early == {"id": "echoes_m1", "replayed": False}
    await _drain(harness, token)
    _, again, _ = await harness.ask("POST", "/api/v1/inbox/echoes_m1/replay", token=token)
    assert again["replayed"] is True
    _, pending, _ = await harness.ask("GET", "/api/v1/inbox", token=token)
    assert [item["id"] for item in pending["items"]] == ["echoes_m1"]


async def test_a_schedule_is_switched_off_and_run_by_hand(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    await _drain(harness, token)
    _, page, _ = await harness.ask("GET", "/api/v1/schedules", token=token)
    assert [(item["name"], item["enabled"]) for item in page["items"]] == [("daily", True)]
    _, off, _ = await harness.ask("POST", "/api/v1/schedules/-_daily/switch", token=token, json={"on": False})
    assert off["enabled"] is False
    await harness.ask("POST", "/api/v1/schedules/-_daily/run", token=token)
    await _drain(harness, token)
    assert await harness.runtime.store.get(Echo, "daily") is not None


async def test_a_tenants_token_sees_nothing_of_the_platforms(harness: ServerHarness) -> None:
    await harness.send("m1")
    token = await harness.token("admin", "acme")
    _, page, _ = await harness.ask("GET", "/api/v1/inbox", token=token)
    assert page["items"] == []
    status, _, _ = await harness.ask("POST", "/api/v1/inbox/echoes_m1/replay", token=token)
    assert status == 404


async def test_usage_is_the_exact_sum_of_a_month(harness: ServerHarness) -> None:
    now = harness.runtime.clock.now()
    await Meter(harness.runtime.store, tenant_id="acme").record(
        [("f1", {"runs": 2}, now), ("f2", {"runs": 3, "tokens": 7}, now)]
    )
    _, used, _ = await harness.ask("GET", "/api/v1/usage", token=await harness.token("viewer", "acme"))
    acme = [
        {"tenantId": "acme", "metric": "runs", "used": 5},
        {"tenantId": "acme", "metric": "tokens", "used": 7},
    ]
    month = now.strftime("%Y-%m")
    assert used == {"month": month, "metrics": {"runs": 5, "tokens": 7}, "items": acme}
    await Meter(harness.runtime.store, tenant_id="other").record([("f1", {"runs": 1}, now)])
    for tenant_id in ("acme", "other"):
        await harness.runtime.audit(tenant_id).append(AuditEntry(action="joined", actor="user:ann"))
    _, used, _ = await harness.ask("GET", "/api/v1/usage", token=await harness.token("admin", "-"))
    assert used["metrics"] == {"runs": 6, "tokens": 7}
    assert used["items"] == [*acme, {"tenantId": "other", "metric": "runs", "used": 1}]
    status, refused, _ = await harness.ask(
        "GET", "/api/v1/usage?month=2026-13", token=await harness.token("viewer")
    )
    assert (status, refused["error"]["details"]["path"]) == (422, "month")
