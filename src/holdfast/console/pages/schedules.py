"""Schedules: next and last run, running one now, switching it, and the outcome of every slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.operations import schedules
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50


def pages(runtime: Runtime) -> list[Page]:
    async def many(ask: PageRequest) -> Mapping[str, Any]:
        page = await schedules.list_schedules(runtime, ask.tenant_id, limit=ROWS, cursor=ask.cursor)
        return {"rows": page.items, "after": page.cursor}

    async def one(ask: PageRequest) -> Mapping[str, Any]:
        schedule = await schedules.get(runtime, ask.tenant_id, ask.path["schedule_id"])
        page = await schedules.list_slots(
            runtime, schedule.tenant_id, schedule.id, limit=ROWS, cursor=ask.cursor
        )
        return {
            "title": schedule.name, "tenant_id": schedule.tenant_id, "schedule": schedule,
            "runs": page.docs, "after": page.cursor,
        }  # fmt: skip

    live = ("schedules",)
    return [
        Page(
            path="/schedules", title="Schedules", template="schedules.html", data=many, live=live,
            all_tenants=True,
        ),
        Page(
            path="/schedules/{schedule_id}", title="Schedule", template="schedule.html", data=one, live=live,
            nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
