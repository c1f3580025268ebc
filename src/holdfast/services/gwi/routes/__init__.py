"""The service's HTTP API."""

from __future__ import annotations

from typing import Any, Final

from holdfast.services.gwi.routes import candidates, members, repos, tenants, work

ROUTES: Final[tuple[Any, ...]] = (
    *tenants.ROUTES,
    *members.ROUTES,
    *repos.ROUTES,
    *work.ROUTES,
    *candidates.ROUTES,
)
