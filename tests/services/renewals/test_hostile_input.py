"""Every route against input nobody should send: it is told what is wrong, and never a fault of ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from holdfast.errors import InvalidError
from holdfast.kit.access import ApiTokens
from holdfast.kit.outbox.endpoint_secrets import LIVE_MAX
from holdfast.operations import endpoints
from holdfast.operations.endpoints import NewEndpoint
from holdfast.routing import PREFIX
from holdfast.services.renewals.routes import ROUTES
from tests.services.renewals.server import ENDPOINTS, P, Person, Server, serving, settle_in

IDS: Final = {
    "long": "x" * 10_000, "very long": "é" * 600, "up": "..", "here": ".", "nul": "a\0b", "line": "a\nb",
    "emoji": "🏚", "slash": "a/b", "reserved": "__x__", "tilde": "a~b", "space": " ", "quote": "'; --",
    "percent": "%2e%2e", "star": "*", "template": "{{7*7}}", "number": "0", "null": "null",
}  # fmt: skip

# Bodies that fit no route, whatever it takes.
BODIES: Final[dict[str, bytes]] = {
    "not JSON": b"{", "a list": b"[]", "text": b'"x"', "a number": b"1e400", "not a number": b"NaN",
    "not UTF-8": b'{"tier": "\xff"}', "half a pair": b'{"tier": "\\ud800"}', "deep": b"[" * 5_000,
    "unknown": b'{"colour": 1}', "a huge key": b'{"' + b"x" * 50_000 + b'": 1}',
}  # fmt: skip

HUGE: Final = 10**400
# Per route, below the service's own path: bodies with one wrong value each, and the field to be named.
FIELDS: Final[list[tuple[str, str, dict[str, Any], str]]] = [
    ("POST", f"/properties/{P}/renewal-risk/calculate", {"asOfDate": "2026-02-30"}, "asOfDate"),
    ("POST", f"/properties/{P}/renewal-risk/calculate", {"asOfDate": "2026-03-01T00:00:00Z"}, "asOfDate"),
    ("POST", f"/properties/{P}/renewal-risk/calculate", {"asOfDate": "9999-12-31"}, "asOfDate"),
    ("POST", f"/properties/{P}/renewal-risk/calculate", {"asOfDate": []}, "asOfDate"),
    ("POST", f"/properties/{P}/what-if", {"weights": {"expiry": HUGE}}, "expiry"),
    ("POST", f"/properties/{P}/what-if", {"weights": {"expiry": -1}}, "expiry"),
    ("POST", f"/properties/{P}/what-if", {"weights": {"expiry": 40.5}}, "expiry"),
    ("POST", f"/properties/{P}/what-if", {"weights": {"expiry": True}}, "expiry"),
    ("POST", f"/properties/{P}/what-if", {"weights": []}, "weights"),
    ("POST", f"/properties/{P}/what-if", {"thresholds": {"high": 10, "medium": 20}}, "thresholds"),
    ("PUT", f"/properties/{P}/rules", {"toleranceCents": -1}, "toleranceCents"),
    ("PUT", f"/properties/{P}/rules", {"toleranceCents": HUGE}, "toleranceCents"),
    ("PUT", f"/properties/{P}/rules", {"toleranceCents": 1.5}, "toleranceCents"),
    ("PUT", f"/properties/{P}/rules", {"weights": {"expiry": 100, "noOffer": 100}}, "weights"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"residents": ["john"] * 1_001}, "residents"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"residents": [1]}, "residents"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"residents": "john"}, "residents"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"tier": "low"}, "tier"),
    ("POST", "/dlq/replay", {"propertyId": ""}, "propertyId"),
    ("POST", "/dlq/replay", {"propertyId": "x" * 10_000}, "propertyId"),
    ("POST", "/dlq/replay", {"dryRun": 5}, "dryRun"),
    ("POST", "/outcomes", {"residentId": "x" * 10_000}, "residentId"),
    ("POST", "/outcomes", {"decidedOn": "0001-01-01"}, "decidedOn"),
    ("POST", "/outcomes", {"decidedOn": "9999-12-31"}, "decidedOn"),
    ("POST", "/outcomes", {"decidedOn": "soon"}, "decidedOn"),
    ("POST", "/outcomes", {"outcome": None}, "outcome"),
    ("POST", ENDPOINTS, {"url": "https://user:secret@rms.example/"}, "url"),
    ("POST", ENDPOINTS, {"url": "https://rms.example/#part"}, "url"),
    ("POST", ENDPOINTS, {"url": "https://rms.exämple/"}, "url"),
    ("POST", ENDPOINTS, {"url": "https://rms.example:99999/"}, "url"),
    ("POST", ENDPOINTS, {"url": "https://0x7f.1/"}, "url"),
    ("POST", ENDPOINTS, {"url": "https://[::1/"}, "url"),
    ("POST", ENDPOINTS, {"url": "ftp://rms.example/"}, "url"),
    ("POST", ENDPOINTS, {"url": "https://" + "x" * 3_000}, "url"),
    ("POST", ENDPOINTS, {"url": "https://rms.example/a\0b"}, "url"),
    ("POST", ENDPOINTS, {"concurrency": 0}, "concurrency"),
    ("POST", ENDPOINTS, {"concurrency": HUGE}, "concurrency"),
    ("POST", ENDPOINTS, {"ratePerS": 0}, "ratePerS"),
    ("POST", ENDPOINTS, {"ratePerS": -1.5}, "ratePerS"),
    ("POST", ENDPOINTS, {"ratePerS": 1e300}, "ratePerS"),
    ("POST", f"{ENDPOINTS}/{P}/pause", {"reason": "x" * 501}, "reason"),
]  # fmt: skip
WHOLE: Final[dict[str, dict[str, Any]]] = {
    "/outcomes": {
        "residentId": "john", "leaseId": "lease-john", "outcome": "left", "decidedOn": "2026-03-01",
    },
    ENDPOINTS: {"id": P, "url": "https://rms.example/1"},
    f"/properties/{P}/trigger-renewal-events": {"tier": "high"},
}  # fmt: skip

QUERIES: Final = [
    f"/properties/{P}/renewal-risk?tier=", f"/properties/{P}/renewal-risk?tier=%00",
    f"/properties/{P}/renewal-risk?limit=-1", f"/properties/{P}/renewal-risk?limit={'9' * 400}",
    f"/properties/{P}/renewal-risk?limit=1.5", f"/properties/{P}/renewal-risk?sort=name",
    f"/properties/{P}/renewal-risk?asOf=2026-13-01", f"/properties/{P}/renewal-risk?cursor=%00",
    f"/properties/{P}/renewal-risk?cursor={'A' * 5_000}", f"/properties/{P}/renewal-risk?cursor=🏚",
    f"/properties/{P}/renewal-risk?cursor=eyJhIjoxfQ", f"/properties/{P}/deliveries?status=dead",
    "/residents/john/risk-history?limit=0", "/portfolio?limit=501", "/portfolio?cursor=..",
    "/dlq?resolved=perhaps", f"/dlq?propertyId={'x' * 200}", "/api/v1/endpoints?outbox=renewals&cursor=%ff",
    f"/properties/{P}/renewal-risk.csv?tier=huge",
]  # fmt: skip


def paths() -> list[tuple[str, str, list[str]]]:
    """Every route's method, path and the names of its parameters."""
    made: list[tuple[str, str, list[str]]] = []
    for route in ROUTES:
        path = sorted(route.paths)[0].removeprefix(PREFIX)
        names = [part[1:-1].partition(":")[0] for part in path.split("/") if part.startswith("{")]
        made.append((sorted(route.http_methods)[0], path, names))
    return made


def filled(path: str, values: dict[str, str]) -> str:
    parts = [part[1:-1].split(":") if part.startswith("{") else [part] for part in path.split("/")]
    return "/".join(quote(values[part[0]], safe="") if len(part) > 1 else part[0] for part in parts)


@pytest.fixture(params=["sqlite", "postgres"])
async def hard(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    async with serving(tmp_path, url=url) as server:
        await settle_in(server.store)
        await server.calculate()
        yield server


async def raw(server: Server, method: str, path: str, body: bytes) -> tuple[int, Any]:
    return await server.ask(method, path, data=body, headers={"content-type": "application/json"})


async def test_every_route_survives_ids_bodies_and_questions_nobody_should_send(hard: Server) -> None:
    await hard.create_endpoint(P, "https://rms.example/1")
    real = {"property_id": P, "resident_id": "john"}
    for method, path, names in paths():
        for name in names:
            for kind, id in IDS.items():
                # A server takes `.` and `..` out of a path before anybody sees them.
                if id in (".", ".."):
                    continue
                values = {**dict.fromkeys(names, "x"), **real, name: id}
                body = WHOLE.get(filled(path, {**values, **real}), {})
                status, answer = await hard.ask(method, filled(path, values), json=body)
                assert status in (404, 414), (method, path, name, kind, status, answer)
        if method in ("POST", "PUT") and not path.endswith(("trigger-renewal-event", "/replay")):
            await refuses_bodies(hard, method, filled(path, {**dict.fromkeys(names, "x"), **real}))
    status, answer = await hard.ask("POST", f"/properties/{P}/renewal-risk/calculate")
    assert (status, "send a JSON body" in str(answer["error"]["details"])) == (422, True)
    for path in QUERIES:
        status, answer = await hard.ask("GET", path)
        assert status in (400, 404, 422), (path, status, answer)
        assert answer["error"]["message"]


async def refuses_bodies(server: Server, method: str, path: str) -> None:
    for kind, body in BODIES.items():
        status, answer = await raw(server, method, path, body)
        assert status in (400, 422), (method, path, kind, status, answer)
        assert answer["error"]["code"], (method, path, kind, answer)


async def test_what_is_wrong_in_a_body_is_named(hard: Server) -> None:
    for method, path, body, field in FIELDS:
        whole = {**WHOLE.get(path, {}), **body}
        status, answer = await raw(hard, method, path, json.dumps(whole).encode())
        assert status == 422, (method, path, body, status, answer)
        assert field in str(answer["error"]), (method, path, body, answer)
    status, _ = await hard.ask("GET", f"{ENDPOINTS}/{P}")
    assert status == 404


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0, 0.0, 100_001.0], ids=str)
async def test_a_rate_that_is_no_number_is_refused_from_the_command_line_too(
    server: Server, rate: float
) -> None:
    new = NewEndpoint(id=P, url="https://rms.example/1", rate_per_s=rate)
    with pytest.raises(InvalidError, match="ratePerS"):
        await endpoints.create(server.runtime, server.by, "renewals", new)


async def test_two_who_create_or_rotate_an_endpoint_at_once_both_get_their_answer(hard: Server) -> None:
    orders = [{"id": P, "url": f"https://rms.example/{n}"} for n in range(6)]
    made = await asyncio.gather(*(hard.ask("POST", ENDPOINTS, json=order) for order in orders))
    assert sorted(status for status, _ in made) == [201] + [409] * 5
    rotated = await asyncio.gather(*(hard.post(f"{ENDPOINTS}/{P}/rotate") for _ in range(4)))
    assert len({one["secret"] for one in rotated}) == 4
    assert (await hard.get(f"{ENDPOINTS}/{P}"))["secrets"] == LIVE_MAX


async def test_text_of_any_kind_is_kept_as_it_was_written(hard: Server) -> None:
    await hard.create_endpoint(P, "https://rms.example/1")
    for text in ("\0", "🏚 \u202e", "<script>", "x" * 500):
        assert (await hard.change_endpoint("pause", reason=text))["reason"] == text
        await hard.change_endpoint("resume")
    path = f"/properties/{P}/trigger-renewal-events"
    told = await hard.post(path, {"residents": ["john", "🏚", "__x__", "", "john", "nobody", "alice"]})
    assert told["counts"]["created"] == 1
    assert told["skipped"] == ["🏚", "__x__", "", "nobody", "alice"]
    for id in ("a/b", "\0", "x" * 10_000):
        status, answer = await hard.ask("POST", path, json={"residents": ["john", id]})
        assert (status, answer["error"]["details"]["path"]) == (422, "residents"), answer


async def test_a_cursor_goes_on_only_where_it_came_from(hard: Server) -> None:
    await settle_in(hard.store, [Person(name, 30, 1_000) for name in ("Una", "Ugo")], property_id="p-2")
    await hard.calculate("p-2")
    risk = f"/properties/{P}/renewal-risk"
    cursor = (await hard.get(f"{risk}?limit=1"))["cursor"]
    assert (await hard.get(f"{risk}?limit=1&cursor={cursor}"))["items"]
    for path in (
        f"{risk}?sort=days&limit=1", f"{risk}?tier=high&limit=1", "/properties/p-2/renewal-risk?limit=1",
        "/portfolio?limit=1", "/residents/john/risk-history?limit=1", f"/properties/{P}/deliveries?limit=1",
        "/dlq?limit=1", "/api/v1/endpoints?outbox=renewals&limit=1",
    ):  # fmt: skip
        status, answer = await hard.ask("GET", f"{path}&cursor={cursor}")
        assert (status, answer["error"]["code"]) == (400, "bad_cursor"), (path, answer)
    await hard.calculate()
    status, answer = await hard.ask("GET", f"{risk}?limit=1&cursor={cursor}")
    assert (status, answer["error"]["code"]) == (400, "bad_cursor"), answer


async def test_a_viewer_looks_and_nobody_else_comes_in(hard: Server) -> None:
    real = {"property_id": P, "resident_id": "john"}
    viewer = await ApiTokens(hard.runtime.store).create("v", role="viewer", tenant_id="-")
    for token, allowed in ((viewer, True), ("x", False)):
        hard.token = token
        for method, path, names in paths():
            if path.endswith(".csv"):
                continue
            more: dict[str, Any] = {} if method == "GET" else {"json": {}}
            status, _ = await hard.ask(method, filled(path, {**dict.fromkeys(names, "x"), **real}), **more)
            looks = method == "GET" or path.endswith("/what-if")
            expected = {200, 404} if looks else {403}
            assert status in (expected if allowed else {401}), (allowed, method, path, status)


async def test_another_portfolios_ids_are_not_there(hard: Server) -> None:
    await hard.create_endpoint(P, "https://rms.example/1")
    job = await hard.post(f"/properties/{P}/renewal-risk/calculate", status=202)
    told = await hard.post(f"/properties/{P}/residents/john/trigger-renewal-event")
    real = {
        "property_id": P, "resident_id": "john", "job_id": job["jobId"], "run_id": job["jobId"],
        "delivery_id": told["deliveryId"], "letter_id": told["deliveryId"],
    }  # fmt: skip
    first = (await hard.get("/portfolio?limit=1"))["cursor"]
    hard.token = await ApiTokens(hard.runtime.store).create("other", role="admin", tenant_id="acme")
    for method, path, names in paths():
        if names:
            body = WHOLE.get(filled(path, real), {})
            status, answer = await hard.ask(method, filled(path, real), json=body)
            assert (status, answer["error"]["code"]) == (404, "not_found"), (method, path, answer)
    assert (await hard.ask("POST", "/outcomes", json=WHOLE["/outcomes"]))[0] == 404
    assert (await hard.ask("GET", f"/calibration?propertyId={P}"))[0] == 404
    assert (await hard.ask("GET", f"/portfolio?limit=1&cursor={first}"))[0] == 400
    assert (await hard.get("/dlq"))["items"] == []
    assert (await hard.post("/dlq/replay", {"dryRun": False}))["matched"] == 0
    assert (await hard.ask("POST", "/dlq/replay", json={"propertyId": P, "dryRun": False}))[0] == 404
