"""Route decorators and parameters for the platform's routes and those of services.

    @read_route("/jobs/{job_id:str}", area="gwi")
    async def job(runtime: RuntimeDependency, tenant_id: TenantId, job_id: FromPath[str]) -> Job

The guard (`holdfast.http`) reads the options declared here before a route runs: the role it needs, the area
and action that a token's scopes must cover, its time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import get, post, put
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

PREFIX: Final = "/api/v1"
PAGE_MAX: Final = 500

# Untyped here, because routing lies below runtime; the platform's own routes import the typed one.
RuntimeDependency: TypeAlias = NamedDependency[Any]
TenantId: TypeAlias = NamedDependency[str]
Actor: TypeAlias = NamedDependency[str]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="Items on a page, at most.")]
Cursor: TypeAlias = Annotated[
    str | None, QueryParameter(description="Continues after the page that gave it.", max_length=4_000)
]
Tenant: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        description="Another tenant, for callers with access to it.", min_length=1, max_length=200
    ),
]
Decorator: TypeAlias = Callable[[Callable[..., Any]], HTTPRouteHandler]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request body; unknown fields are refused."""


def read_route(
    path: str,
    needs: str = "viewer",
    *,
    area: str,
    prefix: str = PREFIX,
    media_type: str | None = None,
    **more: Any,
) -> Decorator:
    """A GET route. `more` are further options for the guard, such as `limited`.

    Example: `@read_route("/jobs/{job_id:str}", area="gwi")`
    """
    opt = _options(needs, area, "read", more)
    return get(prefix + path, opt=opt, security=_security(needs), media_type=media_type)


def action_route(
    path: str, needs: str, *, area: str, action: str, prefix: str = PREFIX, status: int = 200, **more: Any
) -> Decorator:
    """A POST route that acts. `more` are further options for the guard, such as `time_limit_s`.

    Example: `@action_route("/jobs", "developer", area="gwi", action="start", status=202)`
    """
    opt = _options(needs, area, action, more)
    return post(prefix + path, opt=opt, status_code=status, security=_security(needs))


def put_route(
    path: str, needs: str, *, area: str, action: str, prefix: str = PREFIX, **more: Any
) -> Decorator:
    """A PUT route: it replaces the resource with the body.

    Example: `@put_route("/rules", "admin", area="gwi", action="configure")`
    """
    return put(prefix + path, opt=_options(needs, area, action, more), security=_security(needs))


def _options(needs: str, area: str, action: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"needs": needs, "area": area, "action": action, "platform": False, **more}


def _security(needs: str) -> list[dict[str, list[str]]] | None:
    return [] if needs == "public" else None
