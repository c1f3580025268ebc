"""A simulated revenue-management system that receives webhooks, well or badly."""

from holdfast.clock import Clock
from holdfast.simulators.rms.simulator import RmsSimulator
from holdfast.simulators.rms.state import Behave, ShowCounts
from holdfast.simulators.server import InjectedFault

__all__ = ["Behave", "InjectedFault", "RmsSimulator", "ShowCounts", "simulator"]


def simulator(clock: Clock, port: int) -> RmsSimulator:
    """One that accepts everything until told otherwise."""
    return RmsSimulator(clock=clock, port=port)
