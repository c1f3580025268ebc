"""What the service's routes have in common: who asks, which page, how a route is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import get, post, put
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from holdfast.services.renewals.keeper import Renewals

PREFIX: Final = "/api/v1"
AREA: Final = "renewals"
PAGE_MAX: Final = 500

Whole: TypeAlias = NamedDependency[Any]
TenantId: TypeAlias = NamedDependency[str]
Actor: TypeAlias = NamedDependency[str]
Limit: TypeAlias = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="At most so many.")]
Cursor: TypeAlias = Annotated[
    str | None, QueryParameter(description="Goes on where the last page ended.", max_length=4_000)
]
Tenant: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        description="Another portfolio, for those who may ask for any.", min_length=1, max_length=200
    ),
]
Decorator: TypeAlias = Callable[[Callable[..., Any]], HTTPRouteHandler]


class Asked(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body; what it does not know is refused."""


def reads(path: str, needs: str = "viewer", **more: Any) -> Decorator:
    """A GET route."""
    return get(PREFIX + path, opt={"needs": needs, "area": AREA, "action": "read", **more})


def acts(path: str, needs: str, *, action: str, status: int = 200, **more: Any) -> Decorator:
    """A POST route that does something."""
    opt = {"needs": needs, "area": AREA, "action": action, **more}
    return post(PREFIX + path, opt=opt, status_code=status)


def sets(path: str, needs: str, *, action: str) -> Decorator:
    """A PUT route."""
    return put(PREFIX + path, opt={"needs": needs, "area": AREA, "action": action})


def renewals_of(runtime: Any) -> Renewals:
    """The service in this process."""
    found: Renewals = runtime.parts["renewals"].inside
    return found
