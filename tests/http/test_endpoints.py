"""Endpoints are managed over HTTP: created with a secret that is shown once, switched, tested, deleted."""

from __future__ import annotations

from typing import Any, Final

from tests.http.server_harness import ServerHarness
from tests.kit.receiver import OK, answering, serving

LIST: Final = "/api/v1/endpoints"
OUTBOX: Final = f"{LIST}/holdfast"
ONE: Final = f"{OUTBOX}/crm"
URL: Final = "https://crm.example/hook"


async def _ask(harness: ServerHarness, method: str, path: str, token: str, body: Any = None) -> Any:
    status, shown, _ = await harness.ask(method, path, token=token, json=body)
    assert status in (200, 201), shown
    return shown


async def test_an_endpoint_lives_from_its_creation_to_its_deletion(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    async with serving(answering(OK)) as receiver:
        new = {"id": "crm", "url": receiver.url(), "eventTypes": ["lease.*"], "ratePerS": 5}
        status, made, _ = await harness.ask("POST", OUTBOX, token=token, json=new)
        assert (status, made["id"], made["secrets"], made["ratePerS"]) == (201, "crm", 1, 5.0)
        assert made["secret"].startswith("whsec_")
        shown = await _ask(harness, "GET", ONE, token)
        assert (shown["secret"], shown["eventTypes"], shown["notices"]) == (None, ["lease.*"], [])
        paused = await _ask(harness, "POST", f"{ONE}/pause", token, {"reason": "maintenance"})
        assert (paused["status"], paused["reason"]) == ("paused", "maintenance")
        sent = await _ask(harness, "POST", f"{ONE}/test", token)
        await _ask(harness, "POST", f"{ONE}/resume", token, {})
        await _ask(harness, "POST", "/work/drain", token, {"seconds": 20})
        assert [request.headers["webhook-id"] for request in receiver.requests] == [sent["eventId"]]
    rotated = await _ask(harness, "POST", f"{ONE}/rotate", token)
    assert (rotated["secrets"], rotated["secret"] != made["secret"]) == (2, True)
    assert (await _ask(harness, "POST", f"{ONE}/rotate?end_others=true", token))["secrets"] == 1
    updated = await _ask(harness, "PUT", ONE, token, {"url": URL, "concurrency": 3})
    assert (updated["url"], updated["concurrency"], updated["eventTypes"], updated["ratePerS"]) == (
        URL, 3, [], None,
    )  # fmt: skip
    for verb, state in (("disable", "disabled"), ("enable", "active")):
        assert (await _ask(harness, "POST", f"{ONE}/{verb}", token, {}))["status"] == state
    shown = await _ask(harness, "GET", ONE, token)
    assert [one["kind"] for one in shown["notices"]] == ["enabled", "disabled", "resumed", "paused"]
    assert await _ask(harness, "DELETE", ONE, token) == {"id": "crm", "cancelled": 0}
    assert (await _ask(harness, "GET", LIST, token))["items"] == []
    trail = await _ask(harness, "GET", "/api/v1/audit", token)
    assert [event["action"] for event in reversed(trail["items"])] == [
        "endpoint.created", "endpoint.paused", "endpoint.tested", "endpoint.resumed",
        "endpoint.secret_rotated", "endpoint.secret_rotated", "endpoint.updated", "endpoint.disabled",
        "endpoint.enabled", "endpoint.disabled", "endpoint.deleted",
    ]  # fmt: skip
    assert "whsec_" not in str(trail)


async def test_what_does_not_fit_is_refused_with_its_field(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "url"), ({"url": URL, "concurrency": 0}, "concurrency"), ({"url": URL, "rate": 5}, "rate"),
        ({"url": URL, "eventTypes": ["a b"]}, "eventTypes"), ({"url": "ftp://crm.example"}, "url"),
    ]  # fmt: skip
    for body, named in wrong:
        status, told, _ = await harness.ask("POST", OUTBOX, token=token, json=body)
        assert (status, named in str(told)) == (422, True), (body, told)
    await _ask(harness, "POST", OUTBOX, token, {"id": "crm", "url": URL})
    asked: list[tuple[str, str, Any, int]] = [
        ("POST", OUTBOX, {"id": "crm", "url": URL}, 409),
        ("GET", f"{OUTBOX}/none", None, 404),
        ("POST", f"{OUTBOX}/none/pause", {}, 404),
        ("GET", f"{LIST}?outbox=cellar", None, 404),
        ("GET", f"{LIST}?status=asleep", None, 422),
    ]
    for method, path, given, expected in asked:
        assert (await harness.ask(method, path, token=token, json=given))[0] == expected, path


async def test_a_url_that_is_not_sent_to_is_refused_when_it_is_saved(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    await _ask(harness, "POST", OUTBOX, token, {"id": "crm", "url": URL})
    for url in (
        "http://169.254.169.254/latest/meta-data", "http://10.0.0.7/hook", "http://[::1]/hook",
        "http://localhost:8080/hook", "https://crm.example:22/hook",
    ):  # fmt: skip
        for method, path, body in (("POST", OUTBOX, {"id": "inner"}), ("PUT", ONE, {})):
            status, told, _ = await harness.ask(method, path, token=token, json={**body, "url": url})
            assert (status, told["error"]["details"]["path"]) == (422, "url"), (url, told)


async def test_a_delivery_that_waits_is_cancelled_and_a_dead_letter_resolved(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    await _ask(harness, "POST", OUTBOX, token, {"id": "crm", "url": URL})
    await _ask(harness, "POST", f"{ONE}/pause", token, {})
    sent = await _ask(harness, "POST", f"{ONE}/test", token)
    delivery = f"/api/v1/deliveries/holdfast/{sent['id']}"
    assert (await _ask(harness, "POST", f"{delivery}/cancel", token))["status"] == "cancelled"
    assert (await harness.ask("POST", f"{delivery}/cancel", token=token))[0] == 409
    letter = f"/api/v1/dead-letters/holdfast/{sent['id']}"
    assert (await harness.ask("POST", f"{letter}/resolve", token=token, json={"note": "n"}))[0] == 404
    assert (await harness.ask("POST", f"{letter}/resolve", token=token, json={"note": ""}))[0] == 422
    refused = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno"
    async with serving(answering(refused)) as receiver:
        await harness.endpoint(receiver.url())
        await harness.send("m1")
        await _ask(harness, "POST", "/work/drain", token, {"seconds": 20})
    letter = "/api/v1/dead-letters/holdfast/m1~there"
    done = await _ask(harness, "POST", f"{letter}/resolve", token, {"note": "by telephone"})
    assert (done["resolved"], done["resolution"]) == (True, "by telephone")
    assert (await _ask(harness, "GET", "/api/v1/dead-letters", token))["items"] == []
    assert (await _ask(harness, "POST", f"{letter}/replay", token))["replayed"] is True
