"""Errors in the format and with the statuses that a service declares, and the platform's beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LimitReachedError
from holdfast.store.transforms import Increment
from tests.examples.clubs import TOASTS_MAX, service
from tests.http.server_harness import ServerHarness, serving

API = "/clubs/api/v1"


@pytest.fixture
async def clubs(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with serving(tmp_path, services=[service]) as harness:
        yield harness


async def test_a_limit_tells_usage_plan_and_when_to_come_again_with_the_declared_status(
    clubs: ServerHarness,
) -> None:
    token = await clubs.token("developer", "acme")
    answers = [
        await clubs.ask("POST", f"{API}/clubs/acme/toasts", token=token, json={"text": "cheers"})
        for _ in range(TOASTS_MAX + 1)
    ]
    assert [status for status, _, _ in answers] == [200] * TOASTS_MAX + [403]
    _, body, headers = answers[-1]
    assert body == {
        "error": "limit_reached",
        "message": "2 used, 1 requested, 2 allowed by the plan free",
        "details": {"usage": 2, "limit": 2, "plan": "free"},
    }
    assert headers["retry-after"] == "30"


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "error"),
    [
        ("GET", "/notes/none", {}, 401, "unverified"),
        ("GET", "/clubs/other/notes", {"role": "owner"}, 403, "forbidden"),
        ("GET", "/nowhere", {}, 404, "not_found"),
        ("PUT", "/open", {}, 405, "method_not_allowed"),
        ("POST", "/clubs/acme/notes", {"role": "owner", "json": {"title": 1}}, 422, "invalid"),
        ("POST", "/clubs/acme/notes", {"role": "owner", "data": b"[" * 4_000}, 400, "malformed"),
    ],
)
async def test_every_error_of_the_service_has_its_format(
    clubs: ServerHarness, method: str, path: str, more: dict[str, Any], status: int, error: str
) -> None:
    role = more.pop("role", None)
    token = await clubs.token(role, "acme") if role else None
    found, body, headers = await clubs.ask(method, f"{API}{path}", token=token, **more)
    assert (found, body["error"]) == (status, error)
    assert body.keys() <= {"error", "message", "details"}
    assert headers["x-request-id"]


async def test_a_refusal_names_what_was_needed(clubs: ServerHarness) -> None:
    token = await clubs.token("viewer", "acme")
    _, body, _ = await clubs.ask("GET", f"{API}/clubs/acme/ledger", token=token)
    assert body["details"] == {"act": "read of notes", "needs": ["admin", "service"], "has": "viewer"}


async def test_the_platforms_own_routes_keep_their_format(clubs: ServerHarness) -> None:
    for path in ("/api/v1/deliveries", "/api/v1/nowhere", "/clubsandwich"):
        _, body, _ = await clubs.ask("GET", path)
        assert set(body["error"]) == {"code", "message", "details", "requestId"}, path


async def test_the_description_tells_each_format(clubs: ServerHarness) -> None:
    _, described, _ = await clubs.ask("GET", "/openapi.json", token=await clubs.token("viewer"))

    def shape(path: str) -> str:
        reference = described["paths"][path]["get"]["responses"]["403"]["$ref"]
        answer = described["components"]["responses"][reference.rpartition("/")[2]]
        return str(answer["content"]["application/json"]["schema"]["$ref"]).rpartition("/")[2]

    assert (shape(f"{API}/own"), shape("/api/v1/deliveries")) == ("FlatErrorResponse", "ErrorResponse")


def test_the_store_tells_how_much_is_used() -> None:
    with pytest.raises(LimitReachedError) as reached:
        Increment(2, at_most=5).apply(4)
    assert reached.value.details == {"usage": 4, "limit": 5}
    assert reached.value.under("team").details == {"usage": 4, "limit": 5, "plan": "team"}
