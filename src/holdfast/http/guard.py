"""Who comes in: every route says what it needs, and one guard holds it to that.

    @get("/deliveries", opt={"needs": "viewer", "area": "deliveries"})

`needs` is a kind of caller: `public`, `visitor`, `person`, a role (`viewer`, `developer`, `admin`, `owner`)
or `service`. `area` and `action` are what a token's scopes must cover; without them, the first word of the
path and read or update. A route with `platform` is about the whole and asks for the role where no tenant is;
one with `tenant` asks for it in the tenant that this path parameter names. A `page` sends people without a
session to the sign-in page. What another site made a browser send is refused, unless the route says
`cross_site`. One with `all_tenants` is about every tenant where a platform administrator names none, or `*`.
With `limited` False it may be asked as often as anybody likes. A `quota` allows each address so many requests
in a period, over all processes. A `scheduler` route takes a platform's cron header from trusted
hops, and answers others 403. `time_limit_s` is how long an answer may take where the usual time does not fit;
None for one that goes on, such as a stream. A public route that may `recognize` callers knows them where
they have credentials. For `microcache_s` a public response serves all strangers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import HTTPRoute

from holdfast.errors import DeclarationError, ForbiddenError, InvalidError, UnverifiedError, WrongTenantError
from holdfast.http.authentication import Authenticated, Authenticator, Connection, authenticate, bearer_of
from holdfast.http.csrf import SAFE_METHODS, check_origin, check_session_act
from holdfast.http.error_responses import SignInNeeded
from holdfast.http.microcache import MICROCACHE_S
from holdfast.http.rate_limit import RateLimiter
from holdfast.http.time_limit import allow_time
from holdfast.http.validation import check_query
from holdfast.kit import ALL_TENANTS, NO_TENANT
from holdfast.kit.access.authorization import (
    KINDS,
    PERSON,
    PUBLIC,
    VISITOR,
    check_act,
    default_tenant,
    is_person,
    own_tenant,
    privileged,
)
from holdfast.kit.rate_limit import SlidingWindow
from holdfast.model.access import ROLES, Caller
from holdfast.operation import Operation
from holdfast.runtime import Runtime
from holdfast.web import next_of

HEAD: Final = "head"  # the request is a HEAD, answered as its GET
_API: Final = "/api/v1/"
_NO_SCHEDULER: Final = "this is for the scheduler: a service account, or a cron header by trusted proxies"


class RouteGuard:
    """The guard of one application; `visitors` reads the sessions of services' public pages."""

    def __init__(
        self,
        runtime: Runtime,
        readers: Sequence[Authenticator],
        *,
        rate_limiter: RateLimiter,
        visitors: Sequence[Authenticator] = (),
    ) -> None:
        self._runtime, self._readers, self._public_url = runtime, readers, runtime.config.public_url
        self._visitors = visitors
        self._rate_limiter = rate_limiter

    async def __call__(self, connection: Connection, handler: BaseRouteHandler) -> None:
        if "time_limit_s" in handler.opt:
            _refuse_endless_head(connection, handler)
            allow_time(connection.scope, handler.opt["time_limit_s"])
        # What a path takes is told by the framework itself, whose handlers declare nothing.
        asks = connection.scope.get("method") == "OPTIONS"
        needs = PUBLIC if asks else handler.opt["needs"]
        acts = connection.scope.get("method") not in SAFE_METHODS
        if acts and not bearer_of(connection.headers) and not handler.opt.get("cross_site"):
            check_origin(connection.headers, public_url=self._public_url)
        if quota := handler.opt.get("quota"):
            window = SlidingWindow(self._runtime.store, quota)
            await window.admit(connection.scope["state"]["address"])
        if needs == PUBLIC:
            if "microcache_s" in handler.opt:
                connection.scope["state"][MICROCACHE_S] = handler.opt["microcache_s"]
            if handler.opt.get("limited", True):
                self._rate_limiter.pass_stranger(connection.scope["state"]["address"])
            if handler.opt.get("recognize"):
                with contextlib.suppress(UnverifiedError):
                    caller = (await authenticate(self._readers, connection)).caller
                    connection.scope["state"]["caller"] = caller
            return
        arrival = await self._arrival(connection, handler)
        if acts and arrival.csrf is not None:
            check_session_act(connection.headers, arrival.csrf, public_url=self._public_url)
        try:
            await self._judge(connection, handler, arrival.caller)
        except ForbiddenError as fault:
            await self._record_refusal(connection, handler, arrival.caller, fault)
            raise
        allowed = connection.app.state.query_names.of(connection.scope["route_handler"])
        if allowed is not None:
            check_query(set(connection.query_params.keys()), allowed)

    async def _record_refusal(
        self, connection: Connection, handler: BaseRouteHandler, caller: Caller, fault: ForbiddenError
    ) -> None:
        """Put the refusal of an operation on the trail of the caller's own tenant."""
        declared: Operation | None = handler.opt.get("operation")
        # Whoever has no role anywhere could otherwise fill the trail.
        if declared is None or not (caller.roles or caller.service):
            return
        by = self._runtime.operator(caller, tenant_of(caller, None))
        subject = str(connection.path_params.get(declared.subject, ""))
        await msgspec.structs.replace(by, operation=declared, subject=subject).record_failure(fault)

    async def _arrival(self, connection: Connection, handler: BaseRouteHandler) -> Authenticated:
        try:
            readers = self._visitors if handler.opt["needs"] == VISITOR else self._readers
            arrival = await authenticate(readers, connection)
        except UnverifiedError:
            if handler.opt.get("scheduler"):
                raise ForbiddenError(_NO_SCHEDULER, needs=("service",)) from None
            self._rate_limiter.pass_stranger(connection.scope["state"]["address"])
            if handler.opt.get("page") and connection.scope.get("method") == "GET":
                raise SignInNeeded(_asked_for(connection)) from None
            raise
        self._rate_limiter.pass_caller(arrival.caller.user_id or "service")
        return arrival

    async def _judge(self, connection: Connection, handler: BaseRouteHandler, caller: Caller) -> None:
        needs, state = handler.opt["needs"], connection.scope["state"]
        # Also for those who are refused: a page that says so still knows whom it tells.
        state["caller"], state["default_tenant"] = caller, default_tenant(caller)
        asked = None if needs in (VISITOR, PERSON) else await self._asked_tenant(connection, handler, caller)
        if asked not in (None, ALL_TENANTS):
            caller = state["caller"] = await self._runtime.enter(caller, asked)
        tenant_id = asked if asked and "tenant" in handler.opt else tenant_of(caller, asked, handler.opt)
        place = NO_TENANT if handler.opt.get("platform") else tenant_id
        area, action = _scope_of(connection, handler)
        check_act(caller, needs, area=area, action=action, tenant_id=place)
        state["tenant_id"], state["selected_tenant"] = tenant_id, asked or default_tenant(caller)

    async def _asked_tenant(
        self, connection: Connection, handler: BaseRouteHandler, caller: Caller
    ) -> str | None:
        """The tenant that the path or the query names; else one that a person without a role belongs to."""
        parameter = handler.opt.get("tenant")
        if parameter:
            return str(connection.path_params[parameter])
        named: str | None = connection.query_params.get("tenant")
        if named is None and self._runtime.roles is not None and is_person(caller) and not caller.roles:
            return next(iter(await self._runtime.roles.tenants(caller.user_id or "")), None)
        return named


def _refuse_endless_head(connection: Connection, handler: BaseRouteHandler) -> None:
    if handler.opt["time_limit_s"] is None and connection.scope["state"].get(HEAD):
        raise MethodNotAllowedException("a stream has no end, so a HEAD of it has none; use GET")


def tenant_of(caller: Caller, asked: str | None, opt: Mapping[str, Any] = {}) -> str:
    """The tenant a request is about: the caller's own, or the one asked for by those who may.

    It is `ALL_TENANTS` on a route that declares `all_tenants`, for platform administrators alone.
    """
    wanted = default_tenant(caller) if asked is None else asked
    if wanted == ALL_TENANTS and privileged(caller):
        if asked is not None and not (opt.get("all_tenants") or opt.get("page")):
            raise InvalidError("this is about one tenant: name it", "tenant")
        return ALL_TENANTS if opt.get("all_tenants") else own_tenant(caller)
    # A role in a tenant of that name is no role in all of them.
    if wanted == ALL_TENANTS or (asked not in (None, *caller.roles) and not privileged(caller)):
        raise WrongTenantError("the caller belongs to another tenant")
    return wanted


def _asked_for(connection: Connection) -> str:
    scope = connection.scope
    return next_of(scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1"))


def _scope_of(connection: Connection, handler: BaseRouteHandler) -> tuple[str, str]:
    first = connection.scope["path"].removeprefix(_API).strip("/").partition("/")[0]
    usual = "read" if connection.scope.get("method") in ("GET", "HEAD") else "update"
    return str(handler.opt.get("area") or first or "root"), str(handler.opt.get("action") or usual)


def declared_routes(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Every path and method there is, with its handler; answers to OPTIONS need no declaration."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            raise DeclarationError(f"{route.path}: only HTTP routes are served")
        for method, (handler, _) in route.route_handler_map.items():
            if method != "OPTIONS":
                yield route.path, str(method), handler


def check_declared(app: Litestar) -> None:
    """Refuse to serve a route that does not say what it needs."""
    for path, method, handler in declared_routes(app):
        opt = handler.opt
        if opt.get("needs") not in KINDS:
            raise DeclarationError(
                f'{method} {path} does not say what it needs: add opt={{"needs": …}}, '
                f"one of {', '.join(KINDS)}"
            )
        if "tenant" in opt and (f"{{{opt['tenant']}:" not in path or opt["needs"] not in ROLES):
            raise DeclarationError(
                f"{method} {path} needs a role in the tenant {opt['tenant']!r}: "
                "name a parameter of the path, and a role"
            )
