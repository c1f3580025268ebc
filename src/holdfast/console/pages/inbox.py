"""The inbox: messages by state, why one was parked, and replaying them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from holdfast.kit.inbox.models import Status
from holdfast.operations import inbox
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
FIRST_SHOWN: Final[tuple[Status, ...]] = ("pending", "processing", "parked", "done")


def pages(runtime: Runtime) -> list[Page]:
    async def many(ask: PageRequest) -> Mapping[str, Any]:
        states = get_args(Status)
        state = cast(Status, ask.choice("status", ("", *states), default="") or await _first_state(ask))
        page = await inbox.list_messages(runtime, ask.tenant_id, status=state, limit=ROWS, cursor=ask.cursor)
        return {"rows": page.items, "after": page.cursor, "state": state, "states": states}

    async def _first_state(ask: PageRequest) -> Status:
        """The first state that any message is in: those that wait or need somebody before those done."""
        for state in FIRST_SHOWN:
            page = await inbox.list_messages(runtime, ask.tenant_id, status=state, limit=1)
            if page.items:
                return state
        return FIRST_SHOWN[0]

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        item = await inbox.get(runtime, ask.tenant_id, ask.path["item_id"])
        return {"title": f"Message {item.message_id}", "item": item, "tenant_id": item.tenant_id}

    live = ("inbox",)
    return [
        Page(
            path="/inbox", title="Inbox", template="inbox.html", data=many, needs="admin", live=live,
            all_tenants=True,
        ),
        Page(
            path="/inbox/{item_id}", title="Message", template="message.html", data=one, needs="admin",
            live=live, nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
