"""Every route and every kind of caller: the declared answer, and no route without a declaration."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from litestar import get
from yarl import URL

from holdfast import console, site
from holdfast.clock import SystemClock
from holdfast.errors import DeclarationError
from holdfast.http.app import create_app
from holdfast.kit.access.authorization import KINDS
from holdfast.runtime import Runtime, find_services
from holdfast.web import next_of
from tests.examples.clubs import service as clubs
from tests.http.callers import ROLES, SAFE, Route, Visitor, expected, routes_of, visitors
from tests.http.issuer import StandIn, issuing
from tests.http.server_harness import ServerHarness, echo_service, serving

NOBODY: Final = Visitor(known=False)
# Written by hand, so that a new route fails here until somebody has thought about who may use it.
# A star marks routes about the whole: a tenant's token, whatever its role, has no business there.
DECLARED: Final = {
    "GET /health": "public",
    "GET /health/ready": "public",
    "GET /echo-chamber/hello": "viewer",
    "GET /echo-chamber/page": "viewer",
    "GET /metrics": "viewer*",
    "GET /openapi.json": "viewer",
    "GET /api/v1/health": "viewer*",
    "GET /api/v1/changes": "viewer",
    "GET /api/v1/channels": "admin",
    "POST /api/v1/channels/{watch_id:str}/renew": "admin",
    "POST /api/v1/channels/{watch_id:str}/stop": "admin",
    "GET /api/v1/connections": "admin",
    "GET /api/v1/connections/{connection_id:str}": "admin",
    "POST /api/v1/connections/links": "admin",
    "POST /api/v1/connections/{connection_id:str}/reconnect": "admin",
    "POST /api/v1/connections/{connection_id:str}/check": "admin",
    "POST /api/v1/connections/{connection_id:str}/revoke": "admin",
    "GET /api/v1/deliveries": "viewer",
    "GET /api/v1/deliveries/{outbox:str}/{delivery_id:str}": "viewer",
    "GET /api/v1/deliveries/{outbox:str}/{delivery_id:str}/attempts/{number:int}": "viewer",
    "POST /api/v1/deliveries/{outbox:str}/{delivery_id:str}/cancel": "admin",
    "POST /api/v1/deliveries/{outbox:str}/{delivery_id:str}/replay": "admin",
    "GET /api/v1/dead-letters": "viewer",
    "POST /api/v1/dead-letters/{outbox:str}/replay": "admin",
    "POST /api/v1/dead-letters/{outbox:str}/{delivery_id:str}/replay": "admin",
    "POST /api/v1/dead-letters/{outbox:str}/{delivery_id:str}/resolve": "admin",
    "GET /api/v1/endpoints": "developer",
    "GET /api/v1/endpoints/{outbox:str}/{endpoint_id:str}": "developer",
    "POST /api/v1/endpoints/{outbox:str}": "admin",
    "PUT /api/v1/endpoints/{outbox:str}/{endpoint_id:str}": "admin",
    "DELETE /api/v1/endpoints/{outbox:str}/{endpoint_id:str}": "admin",
    **{
        f"POST /api/v1/endpoints/{{outbox:str}}/{{endpoint_id:str}}/{verb}": "admin"
        for verb in ("pause", "resume", "disable", "enable", "rotate", "test", "replay-skipped")
    },
    "GET /api/v1/documents": "admin",
    "GET /api/v1/documents/{collection:str}": "admin",
    "GET /api/v1/documents/{collection:str}/document": "admin",
    "GET /api/v1/inbox": "admin",
    "POST /api/v1/inbox/{item_id:str}/replay": "admin",
    "POST /api/v1/inbox/replay": "admin",
    "GET /api/v1/runs": "viewer",
    "GET /api/v1/runs/{collection:str}/{run_id:str}": "viewer",
    "POST /api/v1/runs/{collection:str}/{run_id:str}/cancel": "admin",
    "POST /api/v1/runs/{collection:str}/{run_id:str}/retry": "admin",
    "POST /api/v1/runs/{collection:str}/{run_id:str}/wake": "admin",
    "GET /api/v1/schedules": "viewer",
    "GET /api/v1/search": "viewer",
    "POST /api/v1/schedules/{schedule_id:str}/run": "admin",
    "POST /api/v1/schedules/{schedule_id:str}/switch": "admin",
    "GET /api/v1/audit": "admin",
    "POST /api/v1/audit/verify": "admin",
    "GET /api/v1/audit/export": "admin",
    "GET /api/v1/tokens": "admin",
    "POST /api/v1/tokens": "admin",
    "POST /api/v1/tokens/{token_id:str}/revoke": "admin",
    "GET /api/v1/usage": "viewer",
    "GET /api/v1/usage/allowances": "viewer",
    "POST /api/v1/usage/rebuild": "admin",
    "GET /api/v1/users": "admin*",
    "POST /api/v1/users": "admin*",
    "POST /api/v1/users/{name:str}/link": "admin*",
    "POST /api/v1/users/{name:str}/disable": "admin*",
    "POST /api/v1/users/{name:str}/enable": "admin*",
    "POST /api/v1/users/{name:str}/sign-out": "admin*",
    "POST /api/v1/users/{name:str}/password": "admin*",
    "POST /work/drain": "admin*",
}


@pytest.fixture
async def issuer() -> AsyncIterator[StandIn]:
    async with issuing(SystemClock()) as made:
        yield made


@contextlib.asynccontextmanager
async def _whole(home: Path, issuer: StandIn) -> AsyncIterator[ServerHarness]:
    """Everything that can be served: the operator's routes, the services and their pages, the console."""
    # gwi gives roles by its own memberships, as clubs do here: its tests have it as the one that does.
    others = [service for service in find_services() if service.name != "gwi"]
    services = [echo_service(), clubs, *others]

    def pages(runtime: Runtime) -> list[Any]:
        return [*console.routes(runtime), *site.routes(runtime)]

    async with serving(home, services=services, more=pages, oidc=[issuer.settings()]) as harness:
        yield harness


async def status_of(harness: ServerHarness, route: Route, visitor: Visitor) -> int:
    more: dict[str, Any] = {}
    if route.method not in SAFE:
        more["json"] = {"on": True} if "switch" in route.path else {}
    url, headers = route.url + visitor.query, dict(visitor.headers)
    # The body is not read: a stream has no end.
    async with harness.client.request(
        route.method, url, headers=headers, allow_redirects=False, **more
    ) as answer:
        return answer.status


def fits(status: int, wanted: int | None, route: Route) -> bool:
    if wanted is not None:
        return status == wanted
    # What all may ask can refuse for reasons of its own, such as a wrong password.
    return status < 500 and (route.needs == "public" or status not in (401, 403))


async def test_the_routes_there_are_need_what_is_written_here(harness: ServerHarness) -> None:
    found = {route.name: route.needs + ("*" if route.platform else "") for route in routes_of(harness)}
    assert found == DECLARED


async def test_every_route_answers_every_kind_of_caller_as_it_declares(
    tmp_path: Path, issuer: StandIn
) -> None:
    async with _whole(tmp_path, issuer) as harness:
        callers, routes = await visitors(harness, issuer), routes_of(harness)
        assert {route.needs for route in routes} >= set(KINDS), "a kind of caller without a route"
        assert any(route.tenant for route in routes)
        assert any(route.page for route in routes)
        wrong = []
        for (name, visitor), route in itertools.product(callers.items(), routes):
            status, wanted = await status_of(harness, route, visitor), expected(route, visitor)
            if not fits(status, wanted, route):
                wrong.append(f"{name} at {route.name}: {status}, not {wanted or 'let in'}")
        assert not wrong, "\n".join(wrong)


async def test_a_service_at_the_root_lets_nobody_in_either(tmp_path: Path) -> None:
    for service in (echo_service(), *find_services()):
        more = functools.partial(console.routes, at_root=True)
        async with serving(tmp_path / service.name, services=[service], at_root=True, more=more) as harness:
            webhooks = set(harness.surface.webhooks)
            assert {path.removeprefix(f"/{service.address}") for path in webhooks} <= webhooks, (
                "also at the root"
            )
            for route in routes_of(harness):
                status, wanted = await status_of(harness, route, NOBODY), expected(route, NOBODY)
                assert fits(status, wanted, route), (service.name, route.name, status)


async def test_whoever_signs_in_goes_on_where_they_wanted_to(tmp_path: Path, issuer: StandIn) -> None:
    async with _whole(tmp_path, issuer) as harness:
        for asked, after in [
            ("/echo-chamber/page?status=dead&x=%26", "/echo-chamber/page?status=dead&x=%26"),
            ("/echo-chamber/page?next=//evil.example", "/echo-chamber/page?next=//evil.example"),
        ]:
            async with harness.client.get(URL(asked, encoded=True), allow_redirects=False) as answer:
                assert answer.status == 303
                assert answer.headers["location"] == f"/sign-in?{urlencode({'next': after})}"


@pytest.mark.parametrize(
    ("path", "query", "after"),
    [
        ("/a", "b=c", "/a?b=c"),
        ("/café", "q=日本", "/caf%C3%A9?q=%E6%97%A5%E6%9C%AC"),
        ("//evil.example", "", "/"),
        ("/\\evil.example", "", "/"),
        ("/\t/evil.example", "", "/"),
        ("https://evil.example", "", "/"),
        ("", "", "/"),
    ],
)
def test_nobody_is_sent_to_another_site(path: str, query: str, after: str) -> None:
    assert next_of(path, query) == after


async def test_a_hook_asks_for_the_senders_proof_whatever_credentials_come_along(
    tmp_path: Path, issuer: StandIn
) -> None:
    async with _whole(tmp_path, issuer) as harness:
        callers = await visitors(harness, issuer)
        assert "/echo-chamber/webhook" in harness.surface.webhooks
        for path, ingest in harness.surface.webhooks.items():
            answers = ingest.hook.statuses
            for name, visitor in callers.items():
                route = Route("POST", path, "public")
                status = await status_of(harness, route, visitor)
                assert status in (answers.unverified, answers.malformed), (path, name, status)
            get_it = Route("GET", path, "public")
            assert await status_of(harness, get_it, callers["the service"]) == 405


async def test_an_administrator_of_the_whole_may_ask_for_any_tenant(harness: ServerHarness) -> None:
    for role in ROLES:
        token = await harness.token(role)
        for route in routes_of(harness):
            if route.needs != "public":
                visitor = Visitor(headers={"authorization": f"Bearer {token}"}, asks="other")
                allowed = await status_of(harness, route, visitor) != 403
                assert allowed == (role in ("admin", "owner")), (role, route.name)


async def test_a_scope_narrows_what_a_role_may(harness: ServerHarness) -> None:
    token = await harness.token("owner", scopes=["deliveries:read"])
    assert (await harness.ask("GET", "/api/v1/deliveries", token=token))[0] == 200
    assert (await harness.ask("POST", "/api/v1/deliveries/holdfast/none/replay", token=token))[0] == 403
    assert (await harness.ask("GET", "/api/v1/audit", token=token))[0] == 403
    assert (await harness.ask("GET", "/echo-chamber/hello", token=token))[0] == 403


async def test_a_route_that_says_nothing_keeps_the_server_from_starting(harness: ServerHarness) -> None:
    @get("/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(DeclarationError, match="GET /forgotten does not say what it needs"):
        create_app(harness.runtime, more=[forgotten])
