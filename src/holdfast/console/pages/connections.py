"""What people connected: how each grant stands, what was granted, ending it; never a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from holdfast.http.routes.connections import connection_of, listed, row
from holdfast.kit.connections.models import Status
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_ALL: Final = "all"
_STATES: Final = (_ALL, *get_args(Status))


def pages(runtime: Runtime) -> list[Page]:
    async def many(ask: PageRequest) -> Mapping[str, Any]:
        state = ask.choice("status", _STATES, default=_ALL)
        wanted = None if state == _ALL else state
        page = await listed(runtime, ask.tenant_id, status=wanted, limit=ROWS, cursor=ask.cursor)
        # Rows, not documents: what a template is not given it can't show.
        rows = [row(doc) for doc in page.docs]
        return {"rows": rows, "after": page.cursor, "state": state, "states": _STATES}

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        found = await connection_of(runtime, ask.tenant_id, ask.path["connection_id"])
        told = bool(found.access_token or found.refresh_token)
        return {"title": f"Connection {found.id}", "one": row(found), "to_be_told": told}

    live = ("connections",)
    return [
        Page(
            path="/connections", title="Connections", template="connections.html", data=many, needs="admin",
            live=live,
        ),
        Page(
            path="/connections/{connection_id}", title="Connection", template="connection.html", data=one,
            needs="admin", live=live, nav=False,
        ),
    ]  # fmt: skip
