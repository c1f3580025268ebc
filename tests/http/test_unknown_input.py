"""What a route does not know is refused, with the field and what it takes."""

from __future__ import annotations

from pathlib import Path

from tests.http.server_harness import serving


async def test_an_unknown_query_parameter_is_refused_with_those_there_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        token = await harness.token("admin")
        status, body, _ = await harness.ask("GET", "/api/v1/deliveries?stauts=dead", token=token)
        error = body["error"]
        assert (status, error["code"]) == (422, "invalid")
        assert error["message"] == "stauts: unknown query parameter; did you mean 'status'?"
        assert error["details"]["path"] == "stauts"
        assert {"cursor", "limit", "status", "tenant"} <= set(error["details"]["allowed"])
        # Who is not let in learns nothing, and public routes take what others add to their links.
        assert (await harness.ask("GET", "/api/v1/deliveries?stauts=dead"))[0] == 401
        assert (await harness.ask("GET", "/health?probe=1"))[0] == 200


async def test_an_unknown_value_is_refused_with_those_there_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        token = await harness.token("admin")
        status, body, _ = await harness.ask("GET", "/api/v1/runs?status=done", token=token)
        details = body["error"]["details"]
        assert (status, details["path"]) == (422, "status")
        assert details["allowed"] == ["cancelled", "completed", "failed", "pending", "running"]
        assert "use one of cancelled, completed" in body["error"]["message"]
        status, body, _ = await harness.ask("GET", "/api/v1/deliveries?limit=many", token=token)
        assert (status, body["error"]["message"]) == (422, "limit: expected `int`, got `str`")


async def test_unknown_fields_and_values_of_a_body_are_named_in_the_same_shape(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        token = await harness.token("admin")
        status, body, _ = await harness.ask(
            "POST", "/api/v1/tokens", token=token, json={"name": "n", "role": "king"}
        )
        details = body["error"]["details"]
        assert (status, details["path"], "viewer" in details["allowed"]) == (422, "role", True)
        status, body, _ = await harness.ask("POST", "/api/v1/tokens", token=token, json={"nam": "n"})
        details = body["error"]["details"]
        assert (status, details["path"], "name" in details["allowed"]) == (422, "nam", True)
