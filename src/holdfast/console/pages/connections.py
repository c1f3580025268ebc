"""Connections: the state of each grant, its scopes, checking and revoking it; never a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from holdfast.kit.connections.models import Status
from holdfast.operations import connections
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_ALL: Final = "all"
_STATES: Final = (_ALL, *get_args(Status))


def _collection(runtime: Runtime, ask: PageRequest) -> str:
    return ask.choice("collection", runtime.connections_in, default=connections.KIT_CONNECTIONS)


def pages(runtime: Runtime) -> list[Page]:
    async def many(ask: PageRequest) -> Mapping[str, Any]:
        state = ask.choice("status", _STATES, default=_ALL)
        wanted = None if state == _ALL else state
        collection = _collection(runtime, ask)
        page = await connections.list_connections(
            runtime, ask.tenant_id, collection, status=wanted, limit=ROWS, cursor=ask.cursor
        )
        offered = [one for one in runtime.consent_purposes.values() if one.for_operators]
        return {
            "rows": page.items, "after": page.cursor, "state": state, "states": _STATES, "offered": offered,
            "collection": collection, "collections": list(runtime.connections_in),
        }  # fmt: skip

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        collection = _collection(runtime, ask)
        stored = await connections.get(runtime, ask.tenant_id, ask.path["connection_id"], collection)
        # A row, not the document: what a template is not given it can't show.
        return {
            "title": f"Connection {stored.id}", "tenant_id": stored.tenant_id,
            "one": connections.row(stored, collection),
            "to_be_told": bool(stored.access_token or stored.refresh_token),
            "can_reconnect": stored.purpose in runtime.consent_purposes,
        }  # fmt: skip

    live = ("connections",)
    return [
        Page(
            path="/connections", title="Connections", template="connections.html", data=many, needs="admin",
            live=live, all_tenants=True,
        ),
        Page(
            path="/connections/{connection_id}", title="Connection", template="connection.html", data=one,
            needs="admin", live=live, nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
