"""What recurs: next and last, running it now, switching it, and what became of every slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import NotFoundError
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.store import Query

ROWS: Final = 50


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        query = Query(Schedule).order_by("name").limit(ROWS).after(ask.cursor)
        page = await runtime.store.tenant(ask.tenant_id).query(query)
        return {"rows": page.docs, "after": page.cursor}

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        store, id = runtime.store.tenant(ask.tenant_id), ask.path["schedule_id"]
        found = await store.get(Schedule, id)
        if found is None:
            raise NotFoundError(f"There is no schedule {id!r} here.")
        query = Query(SlotRun).where("schedule_id", "==", id).order_by("-slot_at")
        page = await store.query(query.limit(ROWS).after(ask.cursor))
        return {"title": found.doc.name, "schedule": found.doc, "runs": page.docs, "after": page.cursor}

    live = ("schedules",)
    return [
        Page(path="/schedules", title="Schedules", template="schedules.html", data=listed, live=live),
        Page(
            path="/schedules/{schedule_id}", title="Schedule", template="schedule.html", data=one, live=live,
            nav=False,
        ),
    ]  # fmt: skip
