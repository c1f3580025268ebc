"""The application: webhooks, the operator's routes and the services' own, composed over a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from litestar import Litestar, Request, Router
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide

from holdfast.errors import DeclarationError
from holdfast.http import routes
from holdfast.http.asgi import AsgiApp
from holdfast.http.authentication import Authenticator, SessionAuthenticator, TokenAuthenticator
from holdfast.http.backpressure import Backpressure
from holdfast.http.change_stream import ChangeStream, topics_of
from holdfast.http.error_responses import ErrorFormats, exception_handlers
from holdfast.http.guard import RouteGuard, check_declared
from holdfast.http.ingest import LARGE_AT_ONCE, Ingest
from holdfast.http.metrics import Metrics
from holdfast.http.oidc import OidcAuthenticator
from holdfast.http.openapi import description
from holdfast.http.rate_limit import RateLimiter
from holdfast.http.scheduler import SchedulerAuthenticator
from holdfast.http.validation import QueryNames
from holdfast.http.visitors import VisitorReader
from holdfast.kit import NO_TENANT
from holdfast.kit.access import ApiTokens, CurrentVisitor, Sessions
from holdfast.model.access import ANONYMOUS, Caller
from holdfast.operation import Operator
from holdfast.routing import Tenant
from holdfast.runtime import Runtime
from holdfast.service import Service
from holdfast.web import is_secure

BODY_BYTES_MAX: Final = 1_048_576


def create_app(runtime: Runtime, *, at_root: bool = False, more: Sequence[Any] = ()) -> AsgiApp:
    """The ASGI application, for any server that speaks ASGI.

    Services are found under their names; with `at_root`, the one service there is at the root. `more` are
    further route handlers, such as the console's. A route that does not say what it needs is refused.

    Example: `surface = create_app(runtime); surface.ready = True`
    """
    if at_root and len(runtime.services) != 1:
        raise DeclarationError("only one service can be at the root")
    # The paths of the service at the root take precedence over the platform's own.
    taken = runtime.parts[runtime.services[0].name].paths if at_root else set()
    served = _service_routes(runtime, at_root=at_root)
    handlers = [*routes.operator_routes(leave_out=taken), *served, *more]
    visitors = VisitorReader(runtime, at_root=at_root)
    rate_limiter = RateLimiter(runtime.config.limits, clock=runtime.clock)
    guard = RouteGuard(runtime, _readers(runtime), rate_limiter=rate_limiter, visitors=[visitors])
    dependencies = _dependencies(runtime, visitors)
    formats = ErrorFormats(runtime.services, at_root=at_root)
    described = description(handlers, dependencies, formats, services=runtime.services)
    state = State({"runtime": runtime, "openapi": described, "error_formats": formats})
    app = Litestar(
        handlers,
        guards=[guard],
        state=state,
        dependencies=dependencies,
        exception_handlers=exception_handlers(),
        openapi_config=None,
        logging_config=None,
        request_max_body_size=BODY_BYTES_MAX,
    )
    check_declared(app)
    app.state.query_names = QueryNames(app)
    surface = AsgiApp(
        app, _hooks(runtime, at_root=at_root), _metrics(runtime), config=runtime.config,
        changes=ChangeStream(runtime.store, topics_of(runtime)), formats=formats, rate_limiter=rate_limiter,
        clock=runtime.clock,
    )  # fmt: skip
    app.state.surface = surface
    return surface


def _metrics(runtime: Runtime) -> Metrics:
    metrics = Metrics()
    for parts in runtime.parts.values():
        if parts.metrics is not None:
            metrics.watch(parts.metrics)
    return metrics


def _readers(runtime: Runtime) -> list[Authenticator]:
    store = runtime.store
    return [
        TokenAuthenticator(ApiTokens(store)),
        OidcAuthenticator(runtime.identities),
        SessionAuthenticator(
            Sessions(store, runtime.identities), secure=is_secure(runtime.config.public_url)
        ),
        SchedulerAuthenticator(),
    ]


def _dependencies(runtime: Runtime, visitors: VisitorReader) -> dict[str, Provide]:
    def this() -> Runtime:
        return runtime

    async def operator(request: Request[Any, Any, Any], tenant: Tenant = None) -> Operator:
        # On a public route of a service, a visitor acts as themselves.
        visitor = await visitors.current(request)
        if visitor.caller is not None:
            request.scope["state"].setdefault("caller", visitor.caller)
        return operator_of(runtime, request)

    async def visitor(request: Request[Any, Any, Any]) -> CurrentVisitor:
        return await visitors.current(request)

    return {
        "runtime": Provide(this, sync_to_thread=False),
        "actor": Provide(_actor, sync_to_thread=False),
        "tenant_id": Provide(_tenant_id, sync_to_thread=False),
        "by": Provide(operator),
        "visitor": Provide(visitor),
    }


def _actor(request: Request[Any, Any, Any]) -> str:
    """Who asks, as the audit trail names them."""
    caller: Caller = request.scope["state"].get("caller", ANONYMOUS)
    return caller.user_id or "nobody"


def operator_of(runtime: Runtime, request: ASGIConnection[Any, Any, Any, Any]) -> Operator:
    """Who makes a request that has passed the route guard, as operations take it."""
    state = request.scope["state"]
    return runtime.operator(state.get("caller", ANONYMOUS), str(state.get("tenant_id", NO_TENANT)))


def _tenant_id(request: Request[Any, Any, Any], tenant: Tenant = None) -> str:
    """The tenant the guard let the caller into; `tenant` documents its query parameter for every route."""
    return str(request.scope["state"]["tenant_id"])


def _service_routes(runtime: Runtime, *, at_root: bool) -> list[Router]:
    """A router for each service, whose routes are given its `Parts.operations` as `operations`."""
    return [
        Router(
            "/" if at_root else f"/{service.address}", route_handlers=parts.routes,
            dependencies={"operations": Provide(_constant(parts.operations), sync_to_thread=False)},
            opt={"service": service.name},
        )
        for service in runtime.services
        if (parts := runtime.parts[service.name]).routes
    ]  # fmt: skip


def _constant(value: Any) -> Callable[[], Any]:
    def provide() -> Any:
        return value

    return provide


def _hooks(runtime: Runtime, *, at_root: bool) -> dict[str, Ingest]:
    found: dict[str, Ingest] = {}
    large, time_limit_s = asyncio.Semaphore(LARGE_AT_ONCE), runtime.config.limits.request_s
    backpressure = Backpressure(runtime.store, runtime.config.limits, worker=runtime.inbox_worker)
    for service in runtime.services:
        for hook in runtime.parts[service.name].webhooks:
            for path in _places(service, hook.path, at_root=at_root):
                if path in found:
                    raise DeclarationError(f"two hooks at {path}")
                found[path] = Ingest(
                    hook, runtime.inbox, path=path, time_limit_s=time_limit_s, large=large,
                    backpressure=backpressure, errors=service.errors,
                )  # fmt: skip
    return found


def _places(service: Service, path: str, *, at_root: bool) -> list[str]:
    """At the root it is also under its name: that address is what providers were given."""
    named = f"/{service.address}{path}"
    return [path, named] if at_root else [named]
