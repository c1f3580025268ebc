"""Declarations of HTTP routes, the platform's and the services': one decorator for each kind of route.

    @read_route("/runs/{collection:str}/{run_id:str}", area="runs")
    async def run(runtime: RuntimeDependency, tenant_id: TenantId, collection: FromPath[str], ...) -> RunRow

    @action_route("/runs/{collection:str}/{run_id:str}/cancel", runs.cancel)
    async def cancel(runtime: RuntimeDependency, by: By, collection: FromPath[str], ...) -> RunRow

    @read_route("/tenants/{tenant_id:str}/members", "admin", area="members", tenant="tenant_id")
    async def members(tenant_id: TenantId, ...) -> MemberPage

The route guard (`holdfast.http.guard`) reads the declaration before a route runs: who may call it, whose
documents are meant, how long it may take. `needs` is a kind of caller: `public`, `visitor`, `person`, a role
or `service`. A role is needed in the tenant that the path parameter `tenant` names; without one, in the
caller's own or the one that `?tenant=` names; with `platform`, on the platform itself. One that reads with
`all_tenants` takes `ALL_TENANTS` as its `TenantId`, which is what platform administrators get by default.
Routes that change something call an operation, whose `needs` is theirs unless they declare another.

`/openapi.json` describes a route by its docstring and its types. One that reads its body by itself declares
the class as `body`; one with JSON answers of several statuses declares `answers`, as in `{200: Report}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from litestar import delete, get, post, put
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Operation as OpenAPIOperation
from litestar.params import QueryParameter

from holdfast.idempotent_route import RESPONSE_HEADER, Idempotent, idempotent_handler
from holdfast.kit.access import CurrentVisitor
from holdfast.operation import Operator, declaration_of

PREFIX: Final = "/api/v1"
PAGE_MAX: Final = 500

# The process as a whole; the operator's own routes know it by its type.
RuntimeDependency: TypeAlias = NamedDependency[Any]
TenantId: TypeAlias = NamedDependency[str]
# Who calls, as operations take it: `by: By`.
By: TypeAlias = NamedDependency[Operator]
# The visitor of a service's public pages, if any, and the cookie to send back: `visitor: Visitor`.
Visitor: TypeAlias = NamedDependency[CurrentVisitor]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="Items on a page, at most.")]
Cursor: TypeAlias = Annotated[
    str | None, QueryParameter(description="Goes on where the last page ended.", max_length=4_000)
]
Tenant: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        description="The tenant; - is the platform itself, * all tenants where lists are read.",
        min_length=1,
        max_length=200,
    ),
]
Decorator: TypeAlias = Callable[[Callable[..., Any]], HTTPRouteHandler]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body; what it does not know is refused."""


def read_route(
    path: str,
    needs: str = "viewer",
    *,
    area: str,
    prefix: str = PREFIX,
    media_type: str | None = None,
    operation_class: type[OpenAPIOperation] = OpenAPIOperation,
    **opt: Any,
) -> Decorator:
    """Declare a GET route; `opt` goes to the route guard, such as `limited`.

    Example: `@read_route("/runs/{collection:str}/{run_id:str}", area="runs")`
    """
    declared = {"needs": needs, "area": area, "action": "read", "platform": False, **opt}
    security: list[dict[str, list[str]]] | None = [] if needs == "public" else None
    return get(prefix + path, opt=declared, security=security, media_type=media_type,
               operation_class=operation_class)  # fmt: skip


def call_route(
    path: str,
    needs: str,
    *,
    area: str,
    action: str,
    prefix: str = PREFIX,
    method: Literal["POST", "DELETE"] = "POST",
    **opt: Any,
) -> Decorator:
    """Declare a route that calls no operation: a long read, work that records itself, a visitor's own data.

    Example: `@call_route("/audit/verify", "admin", area="audit", action="verify")`
    """
    declared = {"needs": needs, "area": area, "action": action, "platform": False, **opt}
    return (post if method == "POST" else delete)(prefix + path, opt=declared, status_code=200)


def action_route(
    path: str,
    operation: Any,
    *,
    prefix: str = PREFIX,
    status: int = 200,
    include_in_schema: bool = True,
    idempotent: Idempotent | None = None,
    **opt: Any,
) -> Decorator:
    """Declare a POST route that calls an operation; who may call it is what the operation declares.

    An `idempotent` one takes an `Idempotency-Key` (`holdfast.idempotent_route`).

    Example: `@action_route("/runs/{collection:str}/{run_id:str}/cancel", runs.cancel, idempotent=ATOMIC)`
    """
    declared = _declared(operation, {"idempotent": idempotent, **opt})
    route = post(
        prefix + path, opt=declared, status_code=status, include_in_schema=include_in_schema,
        response_headers=_headers(idempotent),
    )  # fmt: skip
    return _idempotent(route, idempotent, declared=declared, status=status)


def scheduler_route(paths: str | list[str], operation: Any, **opt: Any) -> Decorator:
    """Declare a GET route for a platform's scheduler: a service account, or its cron header by trusted hops.

    Example: `@scheduler_route("/_ah/worker", Reader.refresh)`
    """
    return get(paths, opt=_declared(operation, {"needs": "service", "scheduler": True, **opt}))


def put_route(
    path: str, operation: Any, *, prefix: str = PREFIX, idempotent: Idempotent | None = None, **opt: Any
) -> Decorator:
    """Declare a PUT route that calls an operation: afterwards the resource is as the body says.

    Example: `@put_route("/rules", Renewals.set_rules)`
    """
    declared = _declared(operation, {"idempotent": idempotent, **opt})
    route = put(prefix + path, opt=declared, response_headers=_headers(idempotent))
    return _idempotent(route, idempotent, declared=declared, status=200)


def delete_route(
    path: str, operation: Any, *, prefix: str = PREFIX, idempotent: Idempotent | None = None, **opt: Any
) -> Decorator:
    """Declare a DELETE route that calls an operation.

    Example: `@delete_route("/endpoints/{outbox:str}/{endpoint_id:str}", endpoints.delete)`
    """
    declared = _declared(operation, {"idempotent": idempotent, **opt})
    route = delete(prefix + path, opt=declared, status_code=200, response_headers=_headers(idempotent))
    return _idempotent(route, idempotent, declared=declared, status=200)


def _headers(idempotent: Idempotent | None) -> list[ResponseHeader]:
    return [] if idempotent is None else [RESPONSE_HEADER]


def _idempotent(
    route: Decorator, idempotent: Idempotent | None, *, declared: Mapping[str, Any], status: int
) -> Decorator:
    if idempotent is None:
        return route
    return lambda handler: route(idempotent_handler(handler, idempotent, declared=declared, status=status))


def _declared(operation: Any, opt: Mapping[str, Any]) -> dict[str, Any]:
    declared = declaration_of(operation)
    return {
        "needs": declared.needs, "area": declared.area, "action": declared.verb,
        "platform": declared.platform, "operation": declared, **opt,
    }  # fmt: skip
