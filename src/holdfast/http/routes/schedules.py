"""Routes for schedules."""

from __future__ import annotations

from typing import Final

from litestar.params import FromPath, JSONBody

from holdfast.http.dependencies import RuntimeDependency
from holdfast.operations import schedules
from holdfast.operations.schedules import SchedulePage, ScheduleRow
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route


class SwitchSchedule(RequestBody, frozen=True):
    on: bool


@read_route("/schedules", area="schedules", all_tenants=True)
async def list_schedules(
    runtime: RuntimeDependency, tenant_id: TenantId, limit: Limit = 50, cursor: Cursor = None
) -> SchedulePage:
    """Schedules by name."""
    return await schedules.list_schedules(runtime, tenant_id, limit=limit, cursor=cursor)


@action_route("/schedules/{schedule_id:str}/run", schedules.run)
async def run(runtime: RuntimeDependency, by: By, schedule_id: FromPath[str]) -> ScheduleRow:
    """Run its act at once, besides its slots."""
    return await schedules.run(runtime, by, schedule_id)


@action_route("/schedules/{schedule_id:str}/switch", schedules.switch)
async def switch(
    runtime: RuntimeDependency, by: By, schedule_id: FromPath[str], data: JSONBody[SwitchSchedule]
) -> ScheduleRow:
    """Stop it from coming due, or let it again from its next slot on."""
    return await schedules.switch(runtime, by, schedule_id, on=data.on)


ROUTES: Final = (list_schedules, run, switch)
