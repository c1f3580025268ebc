"""How the operator's routes are written down: what each needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

from litestar import MediaType, get, post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from holdfast.runtime import Runtime

PREFIX: Final = "/api/v1"
PAGE_MAX: Final = 200

Whole: TypeAlias = NamedDependency[Runtime]
TenantId: TypeAlias = NamedDependency[str]
Actor: TypeAlias = NamedDependency[str]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="At most so many.")]
Cursor: TypeAlias = Annotated[
    str | None, QueryParameter(description="Goes on where the last page ended.", max_length=4_000)
]
Tenant: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        description="Another tenant, for those who may ask for any.", min_length=1,
        max_length=200,
    ),
]  # fmt: skip
Decorator: TypeAlias = Callable[[Callable[..., Any]], HTTPRouteHandler]


def reads(
    path: str,
    needs: str,
    *,
    area: str,
    platform: bool = False,
    prefix: str = PREFIX,
    media_type: str = MediaType.JSON,
    **more: Any,
) -> Decorator:
    """A GET route. `more` is said to the door, such as `limited`."""
    opt = {"needs": needs, "area": area, "action": "read", "platform": platform, **more}
    return get(prefix + path, opt=opt, security=_security(needs), media_type=media_type)


def acts(
    path: str,
    needs: str,
    *,
    area: str,
    action: str,
    platform: bool = False,
    prefix: str = PREFIX,
    **more: Any,
) -> Decorator:
    """A POST route that does something. `more` is said to the door, such as `time_limit_s`."""
    opt = {"needs": needs, "area": area, "action": action, "platform": platform, **more}
    return post(prefix + path, opt=opt, status_code=200, security=_security(needs))


def _security(needs: str) -> list[dict[str, list[str]]] | None:
    return [] if needs == "public" else None
