"""What came in: by state, why it was parked, and working on it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from holdfast.errors import NotFoundError
from holdfast.kit.inbox import InboxItem
from holdfast.kit.inbox.models import Status
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        states = get_args(Status)
        state = cast(Status, ask.choice("status", states, default="pending"))
        items, after = await runtime.inbox.page(state, tenant_id=ask.tenant_id, limit=ROWS, cursor=ask.cursor)
        return {"rows": items, "after": after, "state": state, "states": states}

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        id = ask.path["item_id"]
        found = await runtime.store.tenant(ask.tenant_id).get(InboxItem, id)
        if found is None:
            raise NotFoundError(f"There is no message {id!r} here. It may belong to another tenant.")
        return {"title": f"Message {found.doc.message_id}", "item": found.doc}

    live = ("inbox",)
    return [
        Page(
            path="/inbox", title="Inbox", template="inbox.html", data=listed, needs="admin", live=live
        ),
        Page(
            path="/inbox/{item_id}", title="Message", template="message.html", data=one, needs="admin",
            live=live, nav=False,
        ),
    ]  # fmt: skip
