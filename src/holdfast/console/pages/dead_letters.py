"""What was given up: why, and putting it out again, one or by filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.kit.outbox import Deliveries, Endpoint
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.store import Query

ROWS: Final = 50
STATES: Final = ("open", "dealt-with")


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        store = runtime.store.tenant(ask.tenant_id)
        state, endpoint = ask.choice("state", STATES, default="open"), ask.text("endpoint")
        page = await Deliveries(store).dead_letters(
            resolved=state != "open", endpoint_id=endpoint or None, limit=ROWS, cursor=ask.cursor
        )
        endpoints = await store.query(Query(Endpoint).order_by("-created_at").limit(100))
        return {
            "rows": page.docs, "after": page.cursor, "state": state, "endpoint": endpoint,
            "endpoints": endpoints.docs,
        }  # fmt: skip

    return [
        Page(
            path="/dead-letters", title="Dead letters", template="dead_letters.html", data=listed,
            live=("dead-letters",),
        )
    ]  # fmt: skip
