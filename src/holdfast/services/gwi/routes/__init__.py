"""The service's HTTP API."""

from __future__ import annotations

from typing import Any, Final

from holdfast.services.gwi.routes import automation, candidates, members, repos, runs, tenants, usage, work

ROUTES: Final[tuple[Any, ...]] = (
    *tenants.ROUTES, *members.ROUTES, *repos.ROUTES, *work.ROUTES, *candidates.ROUTES, *runs.ROUTES,
    *usage.ROUTES, *automation.ROUTES,
)  # fmt: skip
