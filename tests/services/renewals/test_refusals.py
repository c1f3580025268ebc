"""What is not there, does not fit or is another's is refused, and says so; every route has an example."""

from __future__ import annotations

from typing import Any

from holdfast.kit.access import ApiTokens
from holdfast.services.renewals.routes import ROUTES
from tests.services.renewals.server import ENDPOINTS, P, Server

CALCULATE = f"/properties/{P}/renewal-risk/calculate"
OUTCOME = {"residentId": "nobody", "leaseId": "l", "outcome": "left", "decidedOn": "2026-03-01"}
NOT_THERE = [
    ("POST", "/properties/nowhere/renewal-risk/calculate", {}),
    ("GET", "/jobs/run-nothing", None),
    ("GET", "/trigger-jobs/run-nothing", None),
    ("GET", "/trigger-jobs/__x__", None),
    ("GET", "/properties/nowhere/renewal-risk", None),
    ("GET", "/residents/nobody/risk-history", None),
    ("POST", "/properties/nowhere/residents/john/trigger-renewal-event", {}),
    ("POST", f"/properties/{P}/residents/nobody/trigger-renewal-event", {}),
    ("POST", "/properties/nowhere/trigger-renewal-events", {"tier": "high"}),
    ("GET", "/properties/nowhere/deliveries", None),
    ("GET", "/deliveries/nothing", None),
    ("GET", "/deliveries/__x__", None),
    ("GET", "/jobs/%01", None),
    ("GET", f"/properties/{'x' * 600}/renewal-risk", None),
    ("GET", "/residents/__x__/risk-history", None),
    ("POST", "/properties/__x__/renewal-risk/calculate", {}),
    ("POST", f"/properties/{P}/residents/__x__/trigger-renewal-event", {}),
    ("POST", "/dlq/__x__/replay", {}),
    ("POST", "/api/v1/dead-letters/renewals/nothing/resolve", {"note": "x"}),
    ("POST", "/dlq/nothing/replay", {}),
    ("POST", "/properties/nowhere/what-if", {}),
    ("GET", "/calibration?propertyId=nowhere", None),
    ("GET", f"{ENDPOINTS}/nowhere", None),
    ("POST", ENDPOINTS, {"id": "nowhere", "url": "https://rms.example/1"}),
    ("POST", f"{ENDPOINTS}/nowhere/rotate", {}),
    ("POST", f"{ENDPOINTS}/nowhere/pause", {}),
    ("GET", "/properties/nowhere/rules", None),
    ("PUT", "/properties/nowhere/rules", {}),
    ("POST", "/outcomes", OUTCOME),
]


WRONG: list[tuple[str, str, Any, str]] = [
    ("POST", CALCULATE, {"asOfDate": "soon"}, "asOfDate"),
    ("POST", CALCULATE, {"asOfDate": 5}, "asOfDate"),
    ("POST", CALCULATE, {"asOfDate": "0001-01-01"}, "asOfDate"),
    ("POST", CALCULATE, {"colour": "red"}, "colour"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"tier": "huge"}, "tier"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"residents": []}, "residents"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {}, "name a tier"),
    ("POST", f"/properties/{P}/renewal-risk/calculate", {"asOfDate": "2098-01-01"}, "in the future"),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"tier": "high", "residents": ["jane"]}, "not both"),
    ("POST", f"/properties/{P}/what-if", {"weights": {"expiry": 99}}, "weights"),
    ("POST", f"/properties/{P}/what-if", {"thresholds": {"high": 300}}, "high"),
    ("POST", "/dlq/replay", {"dryRun": "perhaps"}, "dryRun"),
    ("POST", "/outcomes", {"residentId": "jane"}, "leaseId"),
    ("POST", "/outcomes", {**OUTCOME, "outcome": "fled"}, "outcome"),
    ("PUT", f"{ENDPOINTS}/{P}", {"url": "javascript:alert(1)"}, "url"),
    ("PUT", f"{ENDPOINTS}/{P}", {}, "url"),
    ("PUT", f"/properties/{P}/rules", {"send": "all"}, "send"),
    ("GET", f"/properties/{P}/renewal-risk?tier=huge", None, "tier"),
    ("GET", f"/properties/{P}/renewal-risk?limit=0", None, "limit"),
    ("GET", f"/properties/{P}/renewal-risk?asOf=soon", None, "asOf"),
    ("GET", f"/properties/{P}/renewal-risk.csv?asOf=soon", None, "asOf"),
    ("GET", f"/properties/{P}/deliveries?status=lost", None, "status"),
]  # fmt: skip


async def test_what_is_not_there_is_404_and_what_does_not_fit_is_422_with_its_field(
    server: Server,
) -> None:
    await server.calculate()
    await server.endpoint()
    for method, path, body in NOT_THERE:
        status, answer = await server.ask(method, path, json=body)
        assert (status, answer["error"]["code"]) == (404, "not_found"), (method, path, answer)
    for method, path, body, field in WRONG:
        status, answer = await server.ask(method, path, json=body)
        assert status == 422, (method, path, body, answer)
        assert field in str(answer["error"]), (method, path, body, answer)
    status, answer = await server.ask("GET", f"/properties/{P}/renewal-risk?cursor=nonsense")
    assert (status, answer["error"]["code"]) == (400, "bad_cursor")


async def test_another_portfolio_sees_nothing_of_this_one(server: Server) -> None:
    await server.calculate()
    server.token = await ApiTokens(server.runtime.store).create("other", role="admin", tenant_id="acme")
    assert (await server.get("/portfolio"))["items"] == []
    for path in (f"/properties/{P}/renewal-risk", "/residents/jane/risk-history"):
        status, _ = await server.ask("GET", path)
        assert status == 404


def test_every_route_says_what_it_does_with_an_example() -> None:
    for route in ROUTES:
        assert "Example:" in (route.fn.__doc__ or ""), route.paths
