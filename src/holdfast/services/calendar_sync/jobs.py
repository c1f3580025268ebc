"""Scheduled jobs; an outside scheduler may cause the same through the routes, without double effect."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import RetryLaterError
from holdfast.kit.schedules import Job, Slot
from holdfast.services.calendar_sync.reports import renewal_response
from holdfast.services.calendar_sync.sync.engine import SyncEngine

DAY_MS: Final = 86_400_000


def jobs_of(engine: SyncEngine) -> list[Job]:
    """Return the jobs of a service that is in use."""

    async def renew(slot: Slot) -> Any:
        return renewal_response(await engine.renew(threshold_ms=DAY_MS)).summary

    async def check_health(slot: Slot) -> Any:
        report = await engine.status()
        if report.status() == "critical":
            # A failed run is tried again and shows in the job's history.
            raise RetryLaterError("; ".join(report.health().reasons))
        return msgspec.to_builtins(report.response())

    async def refresh(slot: Slot) -> Any:
        result = await engine.refresh()
        return {"mappings": result.mappings, "badRows": len(result.bad_rows)}

    async def sweep(slot: Slot) -> Any:
        return await engine.sweep()

    return [
        Job(name="renew-watch-channels", cron="0 18 * * *", act=renew, time_limit_s=60, retries=3),
        Job(name="health-check", cron="0 */6 * * *", act=check_health, time_limit_s=30, retries=3),
        Job(name="refresh-user-mappings", cron="*/5 * * * *", act=refresh, time_limit_s=120, retries=1),
        Job(name="sweep-calendar-sync", cron="40 3 * * *", act=sweep, time_limit_s=300, retries=3),
    ]
