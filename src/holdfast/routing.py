"""How routes are written down, the operator's and those of services: what each needs, what all are asked by.

    @read_route("/jobs/{job_id:str}", area="gwi")
    async def job(runtime: RuntimeDependency, tenant_id: TenantId, job_id: FromPath[str]) -> Job

The door (`holdfast.http`) reads what is declared here before a route runs: who may pass, whose documents are
meant, how long it may take.
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

# The process as a whole; the operator's own routes know it by its type.
RuntimeDependency: TypeAlias = NamedDependency[Any]
TenantId: TypeAlias = NamedDependency[str]
Actor: TypeAlias = NamedDependency[str]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="At most so many.")]
Cursor: TypeAlias = Annotated[
    str | None, QueryParameter(description="Goes on where the last page ended.", max_length=4_000)
]
Tenant: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        description="Another tenant, for those who may ask for any.", min_length=1, max_length=200
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
    **more: Any,
) -> Decorator:
    """A GET route. `more` is said to the door, such as `limited`.

    Example: `@reads("/jobs/{job_id:str}", area="gwi")`
    """
    opt = _said(needs, area, "read", more)
    return get(prefix + path, opt=opt, security=_security(needs), media_type=media_type)


def action_route(
    path: str, needs: str, *, area: str, action: str, prefix: str = PREFIX, status: int = 200, **more: Any
) -> Decorator:
    """A POST route that does something. `more` is said to the door, such as `time_limit_s`.

    Example: `@acts("/jobs", "developer", area="gwi", action="start", status=202)`
    """
    opt = _said(needs, area, action, more)
    return post(prefix + path, opt=opt, status_code=status, security=_security(needs))


def put_route(
    path: str, needs: str, *, area: str, action: str, prefix: str = PREFIX, **more: Any
) -> Decorator:
    """A PUT route: what is there is as the body says afterwards.

    Example: `@sets("/rules", "admin", area="gwi", action="configure")`
    """
    return put(prefix + path, opt=_said(needs, area, action, more), security=_security(needs))


def _said(needs: str, area: str, action: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"needs": needs, "area": area, "action": action, "platform": False, **more}


def _security(needs: str) -> list[dict[str, list[str]]] | None:
    return [] if needs == "public" else None
