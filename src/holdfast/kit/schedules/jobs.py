"""Declarations of recurring jobs, and the context of one execution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.backoff import BackOff
from holdfast.kit import NO_TENANT
from holdfast.kit.schedules.cron import Missed
from holdfast.kit.schedules.models import Schedule
from holdfast.store import Fence, Write, check


class Slot(msgspec.Struct, frozen=True):
    """The context of one execution: the slot, the attempt, and the fence."""

    schedule_id: str
    tenant_id: str
    at: datetime
    attempt: int
    fence: int

    def guard(self) -> Write:
        """Put this into every commit of the act: it is refused once another worker has taken over."""
        return check(Schedule, self.schedule_id, expect=Fence(self.fence))


Act = Callable[[Slot], Awaitable[Any]]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job as code declares it.

    Example: `Job(name="renew-watch-channels", cron="0 18 * * *", act=renew, time_limit_s=60, retries=3)`
    """

    name: str
    cron: str
    act: Act
    zone: str = "UTC"
    tenant_id: str = NO_TENANT
    missed: Missed = "once"
    grace_s: float = 60.0
    time_limit_s: float = 300.0
    retries: int = 3
    back_off: BackOff = BackOff(first_s=5.0, wait_s_max=3_600.0)

    @property
    def id(self) -> str:
        return f"{self.tenant_id}_{self.name}"
