"""The background loops of a process: started together, monitored, restarted on failure, stopped in order."""

from holdfast.worker.memory import freeze_gc
from holdfast.worker.supervisor import LoopStatus, Supervisor

__all__ = ["LoopStatus", "Supervisor", "freeze_gc"]
