"""Dead letters of each outbox: why they died, replaying them one by one or all, resolving them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.console.pages.deliveries import outbox_choice
from holdfast.operations import dead_letters
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
STATES: Final = ("open", "resolved")


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        state, choice = ask.choice("state", STATES, default="open"), await outbox_choice(runtime, ask)
        page = await dead_letters.list_dead_letters(
            runtime, ask.tenant_id, choice["outbox"], resolved=state == "resolved",
            endpoint_id=choice["endpoint"] or None, limit=ROWS, cursor=ask.cursor,
        )  # fmt: skip
        return {"rows": page.items, "after": page.cursor, "state": state, "states": STATES, **choice}

    return [
        Page(
            path="/dead-letters", title="Dead letters", template="dead_letters.html", data=listed,
            live=("dead-letters",), all_tenants=True,
        )
    ]  # fmt: skip
