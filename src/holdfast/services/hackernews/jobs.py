"""The scheduled job: a round of the worker."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.kit.schedules import Job, Slot
from holdfast.services.hackernews.operations import HackerNews


def jobs_of(operations: HackerNews) -> list[Job]:
    async def fetch(slot: Slot) -> Any:
        result = await operations.worker.run()
        return msgspec.to_builtins(result)

    cron = operations.settings.worker_cron
    return [Job(name="hackernews-worker", cron=cron, act=fetch, time_limit_s=1_500, retries=2)]
