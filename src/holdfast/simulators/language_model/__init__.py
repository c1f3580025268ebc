"""A simulated language model behind an OpenAI-compatible API."""

from holdfast.clock import Clock
from holdfast.simulators.language_model.simulator import LanguageModelSimulator
from holdfast.simulators.language_model.state import SetAnswer
from holdfast.simulators.server import InjectedFault

__all__ = ["InjectedFault", "LanguageModelSimulator", "SetAnswer", "simulator"]


def simulator(clock: Clock, port: int) -> LanguageModelSimulator:
    """One that gives its default answer."""
    return LanguageModelSimulator(clock=clock, port=port)
