"""What recurs: when it is next due, running it now, switching it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from litestar.params import FromPath, JSONBody

from holdfast.errors import NotFoundError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.schedules import Schedule
from holdfast.operations.act import run_audited
from holdfast.routing import Actor, Cursor, Limit, TenantId, action_route, read_route
from holdfast.runtime import Runtime
from holdfast.store import Query


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str
    cron: str
    zone: str
    enabled: bool
    slot_at: datetime | None
    last_run_id: str
    last_status: str


class SchedulePage(msgspec.Struct, frozen=True):
    items: list[ScheduleRow]
    cursor: str | None


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    on: bool


def row(schedule: Schedule) -> ScheduleRow:
    return ScheduleRow(**{name: getattr(schedule, name) for name in ScheduleRow.__struct_fields__})


async def _row(runtime: Runtime, tenant_id: str, schedule_id: str) -> ScheduleRow:
    found = await runtime.store.tenant(tenant_id).get(Schedule, schedule_id)
    if found is None:
        raise NotFoundError(f"no schedule {schedule_id!r}")
    return row(found.doc)


@read_route("/schedules", "viewer", area="schedules")
async def schedules(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> SchedulePage:
    """Schedules by name."""
    query = Query(Schedule).order_by("name").limit(limit).after(cursor)
    page = await runtime.store.tenant(tenant_id).query(query)
    return SchedulePage([row(doc) for doc in page.docs], page.cursor)


@action_route("/schedules/{schedule_id:str}/run", "admin", area="schedules", action="run")
async def run(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    schedule_id: FromPath[str],
) -> ScheduleRow:
    """Run its act at once, besides its slots."""
    await _row(runtime, tenant_id, schedule_id)
    await run_audited(
        runtime, tenant_id, lambda tx: runtime.scheduler.run_now(schedule_id, tx), actor=actor,
        action="schedule.run", subject=schedule_id,
    )  # fmt: skip
    return await _row(runtime, tenant_id, schedule_id)


@action_route("/schedules/{schedule_id:str}/switch", "admin", area="schedules", action="switch")
async def switch(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    schedule_id: FromPath[str],
    data: JSONBody[Switch],
) -> ScheduleRow:
    """Stop it from coming due, or let it again from its next slot on."""
    await _row(runtime, tenant_id, schedule_id)
    await run_audited(
        runtime, tenant_id, lambda tx: runtime.scheduler.switch(schedule_id, tx, on=data.on), actor=actor,
        action=f"schedule.switched_{'on' if data.on else 'off'}", subject=schedule_id,
    )  # fmt: skip
    return await _row(runtime, tenant_id, schedule_id)


ROUTES: Final = (schedules, run, switch)
