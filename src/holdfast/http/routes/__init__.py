"""What operators ask and do over HTTP: thin, over the kit."""

from __future__ import annotations

from litestar.handlers import HTTPRouteHandler

from holdfast.http.routes import (
    audit,
    changes,
    channels,
    connections,
    dead_letters,
    deliveries,
    documents,
    endpoints,
    health,
    inbox,
    runs,
    schedules,
    search,
    tokens,
    usage,
    users,
    work,
)


def operator_routes(*, leave_out: set[str]) -> list[HTTPRouteHandler]:
    """All of them but those at the paths left out."""
    modules = (
        audit, changes, channels, connections, dead_letters, deliveries, documents, endpoints, health, inbox,
        runs, schedules, search, tokens, usage, users, work,
    )  # fmt: skip
    found = [handler for module in modules for handler in module.ROUTES]
    return [handler for handler in found if handler.paths.isdisjoint(leave_out)]
