"""The service's HTTP API."""

from __future__ import annotations

from typing import Any, Final

from holdfast.services.gwi.routes import members, repos, tenants

ROUTES: Final[tuple[Any, ...]] = (*tenants.ROUTES, *members.ROUTES, *repos.ROUTES)
