"""Every kind of caller there is, and what a route's declaration says each must be answered."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from litestar.handlers import HTTPRouteHandler

from holdfast.errors import AlreadyExistsError
from holdfast.http.guard import declared_routes
from holdfast.kit.access import ApiTokens, Sessions, Users
from holdfast.kit.access.sessions import COOKIE, csrf_of
from holdfast.model import Document
from holdfast.store import create
from tests.examples.clubs import ClubMember
from tests.http.issuer import StandIn
from tests.http.server_harness import TENANT, ServerHarness

ROLES = ("viewer", "developer", "admin", "owner")
SAFE = ("GET", "HEAD", "OPTIONS")
HERE, ELSEWHERE = "acme", "other"
MEMBERS: Mapping[str, Mapping[str, str]] = {
    "viewer": {HERE: "viewer"},
    "owner": {HERE: "owner"},
    "owner-elsewhere": {ELSEWHERE: "owner"},
    "admin-and-viewer": {HERE: "admin", ELSEWHERE: "viewer"},
}


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody at the door: what they bring, and what they are to be taken for."""

    headers: Mapping[str, str] = {}
    asks: str = ""  # the tenant that the query names
    known: bool = True
    visits: str = ""  # the service whose visitor this is
    person: bool = False
    service: bool = False
    roles: Mapping[str, str] = {}  # of the caller itself
    memberships: Mapping[str, str] = {}  # by the collection that a service declares
    scoped: bool = True  # False: a token whose scopes cover nothing
    acts: bool = True  # False: may look, but an act must be refused
    foreign: bool = False  # sent by another site's page: acts are refused even where all may come

    @property
    def query(self) -> str:
        return f"?tenant={self.asks}" if self.asks else ""

    @property
    def of_the_whole(self) -> bool:
        return self.roles.get(TENANT) in ("admin", "owner")


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    needs: str
    platform: bool = False
    page: bool = False
    tenant: str = ""
    scheduler: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def url(self) -> str:
        path = self.path.replace(f"{{{self.tenant}:str}}", HERE) if self.tenant else self.path
        return re.sub(r"\{[^}]+:(\w+)\}", lambda found: "1" if found[1] == "int" else "none", path)


def routes_of(harness: ServerHarness) -> list[Route]:
    """Every route the application has, from its own table; what changes the caller comes last."""
    found = [_route(path, method, handler) for path, method, handler in declared_routes(harness.surface.app)]
    return sorted(
        found, key=lambda one: (one.needs == "person" and one.method not in SAFE, one.path == "/sign-out")
    )


def _route(path: str, method: str, handler: HTTPRouteHandler) -> Route:
    opt = handler.opt
    page, platform = bool(opt.get("page")), bool(opt.get("platform"))
    scheduler = bool(opt.get("scheduler"))
    return Route(method, path, opt["needs"], platform, page, opt.get("tenant", ""), scheduler)


def expected(route: Route, visitor: Visitor) -> int | None:
    """The status that the declaration demands; None for any but a refusal."""
    acts = route.method not in SAFE
    if acts and visitor.foreign:
        return 403
    if route.needs == "public":
        return None
    if route.needs == "visitor" and route.path.startswith(f"/{visitor.visits}/"):
        return None
    if route.scheduler and not visitor.known:
        return 403
    if not visitor.known or route.needs == "visitor":
        return 303 if route.page and route.method == "GET" else 401
    if not visitor.scoped or (acts and not visitor.acts):
        return 403
    return None if _meets(route, visitor) else 403


def _meets(route: Route, visitor: Visitor) -> bool:
    if route.needs == "person":
        return visitor.person
    if visitor.service or route.needs == "service":
        return visitor.service
    own = next(iter(visitor.roles or visitor.memberships), TENANT)
    tenant = HERE if route.tenant else visitor.asks or own
    roles = {**visitor.memberships, **visitor.roles}
    if not route.tenant and visitor.asks and visitor.asks not in roles and not visitor.of_the_whole:
        return False
    role = roles.get(TENANT if route.platform or visitor.of_the_whole else tenant)
    return role is not None and ROLES.index(role) >= ROLES.index(route.needs)


def club_member(user_id: str, tenant_id: str, role: Any) -> Document:
    return ClubMember(user_id=user_id, club_id=tenant_id, role=role)


async def visitors(
    harness: ServerHarness, issuer: StandIn, member_of: Callable[[str, str, Any], Document] = club_member
) -> dict[str, Visitor]:
    """All of them, by name; `member_of` makes the document that gives a person a role."""
    found = {
        **await _nobodies(harness, issuer),
        **await _known(harness, issuer),
        **await _in_browsers(harness),
    }
    return {**found, **await _members(harness, issuer, member_of)}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def _nobodies(harness: ServerHarness, issuer: StandIn) -> dict[str, Visitor]:
    revoked = await harness.token("owner")
    await ApiTokens(harness.runtime.store).revoke(revoked[3:19])
    ended = int(issuer.clock.now().timestamp()) - 3_600
    brought = {
        "nothing": {},
        "garbage": _bearer("nonsense"),
        "another scheme": {"authorization": "Basic YWRtaW46YWRtaW4="},
        "a token never given": _bearer("hf_" + "a" * 64),
        "an expired token": _bearer(await harness.token("owner", expires_in_s=0.000001)),
        "a revoked token": _bearer(revoked),
        "a garbled identity token": _bearer("a.b.c"),
        "an identity token for others": _bearer(issuer.token(aud="https://other.example")),
        "an expired identity token": _bearer(issuer.token(exp=ended)),
        "a session never begun": {"cookie": f"{COOKIE}={'a' * 43}"},
        "a visitor's forged session": {"cookie": f"clubs_visitor={'a' * 43}.{'b' * 43}"},
        "a bad token with a good session": {
            **_bearer("nonsense"),
            **await _session(harness, "mixed", "owner"),
        },
    }
    found = {name: Visitor(headers=headers, known=False) for name, headers in brought.items()}
    if "clubs" in harness.runtime.visitors:
        cookie = await harness.runtime.visitors["clubs"].begin("vera")
        headers = {"cookie": f"clubs_visitor={cookie}"}
        found["a visitor of a service"] = Visitor(headers=headers, known=False, visits="clubs")
    return found


async def _known(harness: ServerHarness, issuer: StandIn) -> dict[str, Visitor]:
    found: dict[str, Visitor] = {
        "the service": Visitor(headers=_bearer(await harness.token("service")), service=True),
        "an admin by identity": Visitor(
            headers=_bearer(issuer.token()), roles={TENANT: "admin"}, person=True
        ),
        "a tenant's viewer by identity": Visitor(
            headers=_bearer(issuer.token(sub="s-acme", email=None)), roles={HERE: "viewer"}, person=True
        ),
        "an identity token of a stranger": Visitor(
            headers=_bearer(issuer.token(email="eve@other.example")), person=True
        ),
        "a token without the scope": Visitor(
            headers=_bearer(await harness.token("owner", scopes=["nothing:read"])), scoped=False
        ),
    }
    for role in ROLES:
        whole, theirs = await harness.token(role), await harness.token(role, HERE)
        found[f"{role} of the whole"] = Visitor(headers=_bearer(whole), roles={TENANT: role})
        found[f"{role} of a tenant"] = Visitor(headers=_bearer(theirs), roles={HERE: role})
        found[f"{role} of another tenant"] = Visitor(
            headers=_bearer(theirs), roles={HERE: role}, asks=ELSEWHERE
        )
    return found


async def _members(
    harness: ServerHarness, issuer: StandIn, member_of: Callable[[str, str, Any], Document]
) -> dict[str, Visitor]:
    """People whom only a membership names, in one tenant or in two."""
    if harness.runtime.roles is None:
        return {}
    found: dict[str, Visitor] = {}
    for name, memberships in MEMBERS.items():
        email = f"{name}@people.example"
        for club, role in memberships.items():
            member = member_of(f"oidc:{email}", club, role)
            await harness.runtime.store.tenant(club).commit(create(member))
        headers = _bearer(issuer.token(email=email))
        found[f"{name} by membership"] = Visitor(headers=headers, memberships=memberships, person=True)
    both = found["admin-and-viewer by membership"]
    found["a member who asks for their other tenant"] = msgspec.structs.replace(both, asks=ELSEWHERE)
    outsider = found["viewer by membership"]
    found["a member who asks for another's tenant"] = msgspec.structs.replace(outsider, asks=ELSEWHERE)
    return found


async def _in_browsers(harness: ServerHarness) -> dict[str, Visitor]:
    """People with sessions, each their own: signing out must end nobody else's."""
    here, other = {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "cross-site"}
    origin, evil = {"origin": str(harness.client._base_url)}, {"origin": "https://evil.example"}

    async def ann(where: Mapping[str, str], *, csrf: str | None = None, **more: Any) -> Visitor:
        cookie = await _session(harness, "ann", "admin")
        token = csrf_of(_value(cookie)) if csrf is None else csrf
        headers = {**cookie, **where, **({"x-csrf-token": token} if token else {})}
        return Visitor(headers=headers, roles={TENANT: "admin"}, person=True, **more)

    viewer = await _session(harness, "vic", "viewer")
    theirs = csrf_of(_value(viewer))
    return {
        "a session": await ann(here),
        "a viewer's session": Visitor(
            headers={**viewer, **here, "x-csrf-token": theirs}, roles={TENANT: "viewer"}, person=True
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


async def _session(harness: ServerHarness, name: str, role: Any) -> dict[str, str]:
    users = Users(harness.runtime.store)
    with contextlib.suppress(AlreadyExistsError):
        await users.add(name, role=role, tenant_id=TENANT)
    return {"cookie": f"{COOKIE}={await Sessions(harness.runtime.store).begin(await users.get(name))}"}


def _value(cookie: Mapping[str, str]) -> str:
    return cookie["cookie"].partition("=")[2]
