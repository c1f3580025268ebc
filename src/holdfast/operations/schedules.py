"""Schedules: list, show with the outcome of each slot, run now, switch on and off."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.operation import Operator, operation
from holdfast.runtime import Runtime
from holdfast.store import Query, QueryPage


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    tenant_id: str
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


async def list_schedules(
    runtime: Runtime, tenant_id: str, *, limit: int = 50, cursor: str | None = None
) -> SchedulePage:
    """Schedules by name."""
    query = Query(Schedule).order_by("name").limit(limit).after(cursor)
    page = await runtime.store_of(tenant_id).query(query)
    return SchedulePage([_row(doc) for doc in page.docs], page.cursor)


async def get(runtime: Runtime, tenant_id: str, schedule_id: str) -> Schedule:
    """Return one schedule as it is stored, or raise NotFoundError."""
    stored = await runtime.store_of(tenant_id).get(Schedule, schedule_id)
    if stored is None:
        raise NotFoundError(f"no schedule {schedule_id!r}; `holdfast jobs list` shows those there are")
    return stored.doc


async def list_slots(
    runtime: Runtime, tenant_id: str, schedule_id: str, *, limit: int = 50, cursor: str | None = None
) -> QueryPage[SlotRun]:
    """The runs of a schedule's slots, newest first."""
    query = Query(SlotRun).where("schedule_id", "==", schedule_id).order_by("-slot_at")
    return await runtime.store.tenant(tenant_id).query(query.limit(limit).after(cursor))


@operation("schedule.run", area="schedules", verb="run", needs="admin", subject="schedule_id")
async def run(runtime: Runtime, by: Operator, schedule_id: str) -> ScheduleRow:
    """Run its act at once, besides its slots."""
    await get(runtime, by.tenant_id, schedule_id)
    await by.commit(lambda tx: runtime.scheduler.run_now(schedule_id, tx))
    return _row(await get(runtime, by.tenant_id, schedule_id))


@operation("schedule.switched", area="schedules", verb="switch", needs="admin", subject="schedule_id")
async def switch(runtime: Runtime, by: Operator, schedule_id: str, *, on: bool) -> ScheduleRow:
    """Stop it from coming due, or let it again from its next slot on."""
    await get(runtime, by.tenant_id, schedule_id)
    await by.commit(
        lambda tx: runtime.scheduler.switch(schedule_id, tx, on=on),
        action=f"schedule.switched_{'on' if on else 'off'}",
    )
    return _row(await get(runtime, by.tenant_id, schedule_id))


def _row(schedule: Schedule) -> ScheduleRow:
    return msgspec.convert(schedule, ScheduleRow, from_attributes=True)
