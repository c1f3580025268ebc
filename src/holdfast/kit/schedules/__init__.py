"""Schedules: cron with time zones, one run per slot across processes, retries, history."""

from holdfast.kit.schedules.jobs import Job, Slot
from holdfast.kit.schedules.models import Schedule, SlotRun
from holdfast.kit.schedules.scheduler import Scheduler

__all__ = ["Job", "Schedule", "Scheduler", "Slot", "SlotRun"]
