"""The background loops of a process: started together, monitored, restarted on failure, stopped in order."""

from holdfast.worker.memory import freeze_gc
from holdfast.worker.supervisor import Supervisor

__all__ = ["Supervisor", "freeze_gc"]
