"""The audit trails: who did what, newest first, and whether the chain holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.operations import audit
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_BY: Final = ("action", "actor", "subject")


def pages(runtime: Runtime) -> list[Page]:
    async def events(ask: PageRequest) -> Mapping[str, Any]:
        by, value = ask.choice("by", _BY, default="action"), ask.text("value", characters_max=1_000)
        trail = ask.choice("trail", runtime.audits, default=KIT_PART)
        page = await audit.list_events(
            runtime, ask.tenant_id, trail, limit=ROWS, cursor=ask.cursor, **{by: value or None}
        )
        return {
            "rows": page.items, "after": page.cursor, "by": by, "ways": _BY, "value": value, "trail": trail,
            "trails": list(runtime.audits),
        }  # fmt: skip

    return [
        Page(
            path="/audit", title="Audit", template="audit.html", data=events, needs="admin", live=("audit",),
            all_tenants=True,
        )
    ]  # fmt: skip
