"""The shell's own pages, one module each: `pages(runtime)` gives what it adds, in order."""

from __future__ import annotations

from holdfast.console.pages import (
    account,
    audit,
    channels,
    connections,
    dead_letters,
    deliveries,
    documents,
    endpoints,
    inbox,
    overview,
    runs,
    schedules,
    search,
    tokens,
    usage,
    users,
)
from holdfast.runtime import Runtime
from holdfast.service import Page

_GROUPS = {
    "Operate": (overview, deliveries, dead_letters, endpoints, inbox, channels, connections, runs, schedules),
    "Record": (audit, documents, usage, users, tokens, account, search),
}


def groups(runtime: Runtime) -> list[tuple[str, Page]]:
    """Every page with the group of the navigation it stands in."""
    return [
        (group, page)
        for group, modules in _GROUPS.items()
        for module in modules
        for page in module.pages(runtime)
    ]
