"""The service's scheduled jobs."""

from __future__ import annotations

from typing import Any

from holdfast.kit.audit import AuditFactory
from holdfast.kit.schedules import Job, Slot
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.run_records import SYSTEM


def jobs_of(gwi: Gwi, audits: AuditFactory) -> list[Job]:
    async def wake(slot: Slot) -> Any:
        count = 0
        for tenant_id, item_ids in (await gwi.queue.due_snoozes()).items():
            by = Operator(tenant_id=tenant_id, actor=SYSTEM, caller=SERVICE, audits=audits)
            count += len(await gwi.queue.wake(by, item_ids))
        return {"woken": count}

    return [Job(name="gwi-snoozes", cron="* * * * *", act=wake, time_limit_s=50)]
