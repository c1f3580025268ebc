"""Every route and every kind of caller: the declared answer, and no route without a declaration."""

from __future__ import annotations

from typing import Any, Final

import pytest
from litestar import get

from holdfast.errors import DeclarationError
from holdfast.http.app import create_app
from holdfast.http.door import declared_routes
from holdfast.kit.access import Tokens
from tests.http.bed import Bed

ROLES: Final = ("viewer", "developer", "admin", "owner")
# Written by hand, so that a new route fails here until somebody has thought about who may use it.
# A star marks routes about the whole: a tenant's token, whatever its role, has no business there.
DECLARED: Final = {
    "GET /health": "public",
    "GET /health/ready": "public",
    "GET /echo-chamber/broken": "public",
    "GET /echo-chamber/hello": "viewer",
    "GET /metrics": "viewer*",
    "GET /openapi.json": "viewer",
    "GET /api/v1/health": "viewer*",
    "GET /api/v1/deliveries": "viewer",
    "GET /api/v1/deliveries/{delivery_id:str}": "viewer",
    "POST /api/v1/deliveries/{delivery_id:str}/replay": "admin",
    "GET /api/v1/dead-letters": "viewer",
    "POST /api/v1/dead-letters/replay": "admin",
    "GET /api/v1/inbox": "admin",
    "POST /api/v1/inbox/{item_id:str}/replay": "admin",
    "GET /api/v1/schedules": "viewer",
    "POST /api/v1/schedules/{schedule_id:str}/run": "admin",
    "POST /api/v1/schedules/{schedule_id:str}/switch": "admin",
    "GET /api/v1/audit": "admin",
    "POST /api/v1/audit/verify": "admin",
    "GET /api/v1/usage": "viewer",
    "POST /work/drain": "admin*",
}


def _routes(bed: Bed) -> dict[str, str]:
    return {
        f"{method} {path}": handler.opt["needs"] + ("*" if handler.opt.get("platform") else "")
        for path, method, handler in declared_routes(bed.surface.app)
    }


async def _status(bed: Bed, route: str, token: str | None, query: str = "") -> int:
    method, path = route.split(" ")
    for name in ("delivery_id", "item_id", "schedule_id"):
        path = path.replace(f"{{{name}:str}}", "none")
    more: dict[str, Any] = {"json": {"on": True} if "switch" in path else {}} if method == "POST" else {}
    return (await bed.ask(method, path + query, token=token, **more))[0]


def _may(needs: str, role: str, *, of_the_whole: bool) -> bool:
    if needs.endswith("*") and not of_the_whole:
        return False
    return ROLES.index(role) >= ROLES.index(needs.rstrip("*"))


async def test_the_routes_there_are_need_what_is_written_here(bed: Bed) -> None:
    assert _routes(bed) == DECLARED


async def test_nobody_gets_past_a_closed_door(bed: Bed) -> None:
    expired = await bed.token("owner", expires_in_s=0.000001)
    revoked = await bed.token("owner")
    await Tokens(bed.runtime.store).revoke(revoked[3:19])
    never = "hf_" + "a" * 64
    for route, needs in DECLARED.items():
        for token in (None, expired, revoked, never, "nonsense"):
            status = await _status(bed, route, token)
            assert (status == 401) == (needs != "public"), (route, token, status)


@pytest.mark.parametrize("tenant", ["-", "acme"])
@pytest.mark.parametrize("role", ROLES)
async def test_a_role_opens_what_it_is_declared_for(bed: Bed, role: str, tenant: str) -> None:
    token = await bed.token(role, tenant)
    for route, needs in DECLARED.items():
        status = await _status(bed, route, token)
        may = needs == "public" or _may(needs, role, of_the_whole=tenant == "-")
        assert status != 401, route
        assert (status != 403) == may, (route, status)


async def test_the_service_itself_may_do_everything(bed: Bed) -> None:
    token = await bed.token("service")
    for route in DECLARED:
        assert await _status(bed, route, token) not in (401, 403), route


@pytest.mark.parametrize("role", ROLES)
async def test_another_tenant_is_out_of_reach(bed: Bed, role: str) -> None:
    theirs, whole = await bed.token(role, "acme"), await bed.token(role, "-")
    for route, needs in DECLARED.items():
        if needs == "public":
            continue
        assert await _status(bed, route, theirs, "?tenant=other") == 403, route
        privileged = role in ("admin", "owner")
        assert (await _status(bed, route, whole, "?tenant=other") != 403) == privileged, route


async def test_a_scope_narrows_what_a_role_may(bed: Bed) -> None:
    token = await bed.token("owner", scopes=["deliveries:read"])
    assert await _status(bed, "GET /api/v1/deliveries", token) == 200
    assert await _status(bed, "POST /api/v1/deliveries/{delivery_id:str}/replay", token) == 403
    assert await _status(bed, "GET /api/v1/audit", token) == 403
    assert await _status(bed, "GET /echo-chamber/hello", token) == 403


async def test_a_route_that_says_nothing_keeps_the_server_from_starting(bed: Bed) -> None:
    @get("/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(DeclarationError, match="GET /forgotten does not say what it needs"):
        create_app(bed.runtime, more=[forgotten])
