"""Endpoints of each outbox, and each with its settings, secrets, notices and what can be done to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from holdfast.kit.outbox.models import EndpointStatus
from holdfast.operations import endpoints
from holdfast.operations.endpoints import CONCURRENCY_MAX, RATE_MAX
from holdfast.operations.outboxes import outbox_named
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_ALL: Final = "all"
_STATES: Final = (_ALL, *get_args(EndpointStatus))
_LIMITS: Final = {"concurrency_max": CONCURRENCY_MAX, "rate_max": RATE_MAX}


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        outbox, state = ask.text("outbox") or KIT_PART, ask.choice("status", _STATES, default=_ALL)
        page = await endpoints.list_endpoints(
            runtime, ask.tenant_id, outbox, limit=ROWS, cursor=ask.cursor,
            status=None if state == _ALL else cast(EndpointStatus, state),
        )  # fmt: skip
        return {
            "rows": page.items, "after": page.cursor, "state": state, "states": _STATES, "outbox": outbox,
            "outboxes": list(runtime.outboxes), "part": outbox_named(runtime, outbox), **_LIMITS,
        }  # fmt: skip

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        outbox, id = ask.path["outbox"], ask.path["endpoint_id"]
        shown, part = await endpoints.get(runtime, ask.tenant_id, outbox, id), outbox_named(runtime, outbox)
        skipped = await endpoints.skipped_count(runtime, shown.tenant_id, outbox, id)
        owner = part.endpoint_page.replace("{id}", id)
        return {
            "title": f"Endpoint {id}", "endpoint": shown, "part": part, "owner": owner,
            "tenant_id": shown.tenant_id, "skipped": skipped, **_LIMITS,
        }  # fmt: skip

    live = ("endpoints",)
    return [
        Page(
            path="/endpoints", title="Endpoints", template="endpoints.html", data=listed, live=live,
            needs="developer", all_tenants=True,
        ),
        Page(
            path="/endpoints/{outbox}/{endpoint_id}", title="Endpoint", template="endpoint.html", data=one,
            live=live, needs="developer", nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
