"""The audit trail: who did what, newest first, and whether the chain holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.kit.audit import AuditEvent
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.store import Query

ROWS: Final = 50
_BY: Final = ("action", "actor", "subject")


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        by, value = ask.choice("by", _BY, default="action"), ask.text("value", characters_max=1_000)
        query = Query(AuditEvent).order_by("-sequence").limit(ROWS).after(ask.cursor)
        if value:
            query = query.where(by, "==", value)
        page = await runtime.store.tenant(ask.tenant_id).query(query)
        return {"rows": page.docs, "after": page.cursor, "by": by, "ways": _BY, "value": value}

    return [
        Page(
            path="/audit", title="Audit", template="audit.html", data=listed, needs="admin", live=("audit",)
        )
    ]  # fmt: skip
