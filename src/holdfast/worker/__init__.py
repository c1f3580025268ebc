"""The loops of a process: started together, watched, restarted when they fall over, stopped in order."""

from holdfast.worker.memory import leave_what_is_built
from holdfast.worker.supervisor import LoopStatus, Supervisor

__all__ = ["LoopStatus", "Supervisor", "leave_what_is_built"]
