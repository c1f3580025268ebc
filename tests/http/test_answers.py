"""How it answers: one shape for errors, safe headers, health that tells the truth, figures that parse."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from litestar import get
from prometheus_client.parser import text_string_to_metric_families

from holdfast.http.app import BODY_BYTES_MAX, create_app
from holdfast.kit.inbox import InboxItem
from holdfast.store import create
from tests.http.server_harness import SECRET, ServerHarness, serving


@get("/broken", opt={"needs": "public"})
async def broken() -> None:
    raise RuntimeError("a secret that must not be told")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with serving(tmp_path, more=lambda runtime: [broken]) as made:
        yield made


_HOOK = "/echo-chamber/webhook"
_KNOWN = {"x-word": SECRET, "x-name": "m"}


def _is_fault(body: Any, headers: Mapping[str, str], code: str) -> None:
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "details", "requestId"}
    assert body["error"]["code"] == code
    assert body["error"]["requestId"] == headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "code"),
    [
        ("GET", "/nowhere", {}, 404, "not_found"),
        ("GET", "/api/v1/deliveries/holdfast/none", {}, 404, "not_found"),
        ("DELETE", "/health", {}, 405, "method_not_allowed"),
        ("GET", _HOOK, {}, 405, "method_not_allowed"),
        ("GET", "/api/v1/deliveries?status=lost", {}, 422, "invalid"),
        ("GET", "/api/v1/deliveries?limit=0", {}, 422, "invalid"),
        ("GET", "/api/v1/deliveries?cursor=x", {}, 400, "bad_cursor"),
        ("POST", "/work/drain", {"json": {"seconds": 100_000}}, 422, "invalid"),
        ("POST", "/work/drain", {"json": {"minutes": 1}}, 422, "invalid"),
        ("POST", "/work/drain", {"data": "{"}, 400, "malformed"),
        ("POST", "/work/drain", {"data": "[" * 100_000}, 400, "malformed"),
        ("POST", "/work/drain", {"data": b"\xff"}, 400, "malformed"),
        ("POST", "/work/drain", {"data": io.BytesIO(b"x" * (BODY_BYTES_MAX + 1))}, 413, "too_large"),
        ("POST", _HOOK, {"headers": {"x-word": "no", "x-name": "m"}}, 401, "unverified"),
        ("POST", _HOOK, {"headers": _KNOWN, "data": b"x" * 20_000}, 413, "too_large"),
        ("POST", _HOOK, {"headers": {"x-word": SECRET}}, 500, "internal"),
        ("GET", "/broken", {}, 500, "internal"),
    ],
)  # fmt: skip
async def test_every_error_has_one_shape(
    harness: ServerHarness, method: str, path: str, more: dict[str, Any], status: int, code: str
) -> None:
    token = await harness.token("admin")
    answered, body, headers = await harness.ask(method, path, token=token, **more)
    assert answered == status, body
    _is_fault(body, headers, code)
    assert "Traceback" not in str(body)
    assert "must not be told" not in str(body)


async def test_every_answer_of_a_route_is_safe_to_show(harness: ServerHarness) -> None:
    for path in ("/health", "/nowhere", "/broken"):
        _, _, headers = await harness.ask("GET", path)
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


async def test_browsers_are_told_to_stay_with_https_where_that_is_how_it_is_reached(tmp_path: Path) -> None:
    for number, (url, told) in enumerate([("https://a.example", True), ("http://a.example", False)]):
        async with serving(tmp_path / str(number), public_url=url) as harness:
            _, _, headers = await harness.ask("GET", "/health")
            assert ("strict-transport-security" in headers) == told


async def test_a_sane_request_id_is_kept_and_another_is_not(harness: ServerHarness) -> None:
    _, _, headers = await harness.ask("GET", "/health", headers={"x-request-id": "from-the-proxy-1"})
    assert headers["x-request-id"] == "from-the-proxy-1"
    _, _, headers = await harness.ask("GET", "/health", headers={"x-request-id": "<script>"})
    assert headers["x-request-id"] != "<script>"


async def test_a_refused_caller_is_told_how_to_ask(harness: ServerHarness) -> None:
    status, body, headers = await harness.ask("GET", "/api/v1/usage")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    _is_fault(body, headers, "unverified")


async def test_it_is_not_ready_until_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path, ready=False) as harness:
        status, _, headers = await harness.ask("GET", "/health/ready")
        assert (status, headers["retry-after"]) == (503, "1")
        harness.surface.ready = True
        assert (await harness.ask("GET", "/health/ready"))[:2] == (200, {"status": "ready"})


async def test_an_old_backlog_shows_in_health_and_goes_when_it_is_worked_off(harness: ServerHarness) -> None:
    token = await harness.token("admin")
    then = harness.runtime.clock.now() - timedelta(minutes=5)
    old = InboxItem.received(tenant_id="-", source="echoes", message_id="old", received_at=then, due_at=then)
    await harness.runtime.store.privileged().commit(create(old))
    assert (await harness.ask("GET", "/health"))[1]["status"] == "degraded"
    _, body, _ = await harness.ask("GET", "/api/v1/health", token=token)
    assert "inbox: the oldest due work has waited" in body["reasons"][0]
    await harness.ask("POST", "/work/drain", token=token, json={"seconds": 10})
    assert (await harness.ask("GET", "/health"))[1]["status"] == "ok"


async def test_figures_parse_and_count_what_was_asked(harness: ServerHarness) -> None:
    await harness.send("m1")
    await harness.ask("GET", "/api/v1/deliveries/holdfast/none")
    status, text, _ = await harness.ask("GET", "/metrics", token=await harness.token("viewer"))
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    asked = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["holdfast_http_requests"].samples
        if sample.name.endswith("_total")
    }
    assert asked[_HOOK, "202"] == 1
    # By route, not by path: what callers make up must not make new series.
    assert asked["/api/v1/deliveries/{outbox}/{delivery_id}", "401"] == 1
    loops = {sample.labels["loop"] for sample in families["holdfast_loop_running"].samples}
    assert {"inbox", "outbox", "schedules"} <= loops
    queues = {
        sample.labels["queue"]: sample.value for sample in families["holdfast_oldest_due_age_seconds"].samples
    }
    assert queues["inbox"] > 0


async def test_the_description_names_every_route_and_how_it_is_refused(harness: ServerHarness) -> None:
    status, described, _ = await harness.ask("GET", "/openapi.json", token=await harness.token("viewer"))
    assert status == 200
    assert {
        "/health",
        "/work/drain",
        "/api/v1/deliveries/{outbox}/{delivery_id}",
        "/echo-chamber/hello",
    } <= set(described["paths"])
    listed = described["paths"]["/api/v1/deliveries"]["get"]
    assert {"200", "401", "403", "422"} <= set(listed["responses"])
    assert {one["name"] for one in listed["parameters"]} == {
        "outbox",
        "status",
        "endpoint",
        "since",
        "until",
        "limit",
        "cursor",
        "tenant",
    }


async def test_one_service_alone_is_at_the_root(harness: ServerHarness) -> None:
    surface = create_app(harness.runtime, at_root=True)
    assert "/webhook" in surface.webhooks
    assert "/hello" in {route.path for route in surface.app.routes}
    assert "/health" in {route.path for route in surface.app.routes}


@pytest.mark.parametrize("path", ["/health", "/api/v1/usage", "/work/drain", "/api/v1/inbox/none/replay"])
async def test_anybody_may_ask_what_a_path_takes(harness: ServerHarness, path: str) -> None:
    status, _, headers = await harness.ask("OPTIONS", path)
    assert status == 204
    assert "OPTIONS" in headers["allow"]


async def test_a_head_is_that_of_what_a_get_answers(harness: ServerHarness) -> None:
    token = await harness.token("viewer")
    for path, given in (("/health", None), ("/api/v1/usage", token), ("/api/v1/usage", None), ("/no", None)):
        wanted, _, whole = await harness.ask("GET", path, token=given)
        status, _, head = await harness.ask("HEAD", path, token=given)
        assert (status, head["content-length"]) == (wanted, whole["content-length"]), path
    # Nothing hangs on the connection: what follows on it is answered as ever.
    assert (await harness.ask("GET", "/health"))[0] == 200
    assert (await harness.ask("HEAD", "/api/v1/changes", token=token))[0] == 405
    assert (await harness.ask("HEAD", "/work/drain", token=token))[0] == 405
