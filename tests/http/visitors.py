"""Every kind of caller there is, and what a route's declaration says each must be answered."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from litestar.handlers import HTTPRouteHandler

from holdfast.errors import AlreadyExistsError
from holdfast.http.guard import declared_routes
from holdfast.kit.access import ApiTokens, Sessions, Users
from holdfast.kit.access.sessions import COOKIE, csrf_of
from tests.http.bed import TENANT, Bed
from tests.http.issuer import StandIn

ROLES = ("viewer", "developer", "admin", "owner")
SAFE = ("GET", "HEAD", "OPTIONS")
Standing = Literal["nobody", "known", "forbidden"]


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody at the door: what they bring, and what they are to be taken for."""

    headers: Mapping[str, str] = {}
    query: str = ""
    standing: Standing = "known"
    role: str = ""
    of_the_whole: bool = False
    acts: bool = True  # False: may look, but an act must be refused
    foreign: bool = False  # sent by another site's page: acts are refused even where all may come


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    needs: str
    platform: bool
    page: bool

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def url(self) -> str:
        return re.sub(r"\{[^}]+:(\w+)\}", lambda found: "1" if found[1] == "int" else "none", self.path)


def routes_of(bed: Bed) -> list[Route]:
    """Every route the application has, from its own table; the one that ends a session at the end."""
    found = [_route(path, method, handler) for path, method, handler in declared_routes(bed.surface.app)]
    return sorted(found, key=lambda route: route.path == "/sign-out")


def _route(path: str, method: str, handler: HTTPRouteHandler) -> Route:
    opt = handler.opt
    return Route(method, path, opt["needs"], bool(opt.get("platform")), bool(opt.get("page")))


def expected(route: Route, visitor: Visitor) -> int | None:
    """The status that the declaration demands; None for any but a refusal."""
    acts = route.method not in SAFE
    if acts and visitor.foreign:
        return 403
    if route.needs == "public":
        return None
    if visitor.standing == "nobody":
        return 303 if route.page and route.method == "GET" else 401
    if visitor.standing == "forbidden" or (acts and not visitor.acts):
        return 403
    if visitor.role == "service":
        return None
    if route.needs == "service" or (route.platform and not visitor.of_the_whole):
        return 403
    return None if ROLES.index(visitor.role) >= ROLES.index(route.needs) else 403


async def visitors(bed: Bed, issuer: StandIn) -> dict[str, Visitor]:
    """All of them, by name."""
    return {**await _nobodies(bed, issuer), **await _known(bed, issuer), **await _in_browsers(bed)}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def _nobodies(bed: Bed, issuer: StandIn) -> dict[str, Visitor]:
    revoked = await bed.token("owner")
    await ApiTokens(bed.runtime.store).revoke(revoked[3:19])
    ended = int(issuer.clock.now().timestamp()) - 3_600
    brought = {
        "nothing": {},
        "garbage": _bearer("nonsense"),
        "another scheme": {"authorization": "Basic YWRtaW46YWRtaW4="},
        "a token never given": _bearer("hf_" + "a" * 64),
        "an expired token": _bearer(await bed.token("owner", expires_in_s=0.000001)),
        "a revoked token": _bearer(revoked),
        "a garbled identity token": _bearer("a.b.c"),
        "an identity token for others": _bearer(issuer.token(aud="https://other.example")),
        "an expired identity token": _bearer(issuer.token(exp=ended)),
        "a session never begun": {"cookie": f"{COOKIE}={'a' * 43}"},
        "a bad token with a good session": {**_bearer("nonsense"), **await _session(bed, "mixed", "owner")},
    }
    return {name: Visitor(headers=headers, standing="nobody") for name, headers in brought.items()}


async def _known(bed: Bed, issuer: StandIn) -> dict[str, Visitor]:
    found: dict[str, Visitor] = {
        "the service": Visitor(headers=_bearer(await bed.token("service")), role="service"),
        "an admin by identity": Visitor(headers=_bearer(issuer.token()), role="admin", of_the_whole=True),
        "a tenant's viewer by identity": Visitor(
            headers=_bearer(issuer.token(sub="s-acme", email=None)), role="viewer"
        ),
        "an identity token of a stranger": Visitor(
            headers=_bearer(issuer.token(email="eve@other.example")), standing="forbidden"
        ),
        "a token without the scope": Visitor(
            headers=_bearer(await bed.token("owner", scopes=["nothing:read"])), standing="forbidden"
        ),
    }
    for role in ROLES:
        whole, theirs = await bed.token(role), await bed.token(role, "acme")
        found[f"{role} of the whole"] = Visitor(headers=_bearer(whole), role=role, of_the_whole=True)
        found[f"{role} of a tenant"] = Visitor(headers=_bearer(theirs), role=role)
        found[f"{role} of another tenant"] = Visitor(
            headers=_bearer(theirs), query="?tenant=other", standing="forbidden"
        )
    return found


async def _in_browsers(bed: Bed) -> dict[str, Visitor]:
    """People with sessions, each their own: signing out must end nobody else's."""
    here, other = {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "cross-site"}
    origin, evil = {"origin": str(bed.client._base_url)}, {"origin": "https://evil.example"}

    async def ann(where: Mapping[str, str], *, csrf: str | None = None, **more: Any) -> Visitor:
        cookie = await _session(bed, "ann", "admin")
        token = csrf_of(_value(cookie)) if csrf is None else csrf
        headers = {**cookie, **where, **({"x-csrf-token": token} if token else {})}
        return Visitor(headers=headers, role="admin", of_the_whole=True, **more)

    viewer = await _session(bed, "vic", "viewer")
    theirs = csrf_of(_value(viewer))
    return {
        "a session": await ann(here),
        "a viewer's session": Visitor(
            headers={**viewer, **here, "x-csrf-token": theirs}, role="viewer", of_the_whole=True
        ),
        "a session by its origin": await ann(origin),
        "a session without the page's token": await ann(here, csrf="", acts=False),
        "a session with another's token": await ann(here, csrf=theirs, acts=False),
        "a session from nowhere": await ann({}, acts=False),
        "a session from another site": await ann(other, foreign=True),
        "a session from another origin": await ann(evil, foreign=True),
        "a session from a broken origin": await ann({"origin": "http://[::1"}, foreign=True),
        "a session from no origin": await ann({"origin": "null"}, foreign=True),
    }


async def _session(bed: Bed, name: str, role: Any) -> dict[str, str]:
    users = Users(bed.runtime.store)
    with contextlib.suppress(AlreadyExistsError):
        await users.add(name, role=role, tenant_id=TENANT)
    return {"cookie": f"{COOKIE}={await Sessions(bed.runtime.store).begin(await users.get(name))}"}


def _value(cookie: Mapping[str, str]) -> str:
    return cookie["cookie"].partition("=")[2]
