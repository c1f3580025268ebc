"""Acts that recur: cron with zones, one run a slot across processes, retries, history."""

from holdfast.kit.schedules.jobs import Job, Slot
from holdfast.kit.schedules.models import Schedule, SlotRun
from holdfast.kit.schedules.scheduler import Scheduler

__all__ = ["Job", "Schedule", "Scheduler", "Slot", "SlotRun"]
