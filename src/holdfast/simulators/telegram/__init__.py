"""A simulated Telegram: people, chats and one bot."""

from holdfast.clock import Clock
from holdfast.simulators.server import InjectedFault
from holdfast.simulators.telegram.control import (
    AddChat,
    AddUser,
    MoveBot,
    PressButton,
    Say,
    SetLimits,
    ShowChat,
)
from holdfast.simulators.telegram.simulator import TelegramSimulator

__all__ = [
    "AddChat",
    "AddUser",
    "InjectedFault",
    "MoveBot",
    "PressButton",
    "Say",
    "SetLimits",
    "ShowChat",
    "TelegramSimulator",
    "simulator",
]


def simulator(clock: Clock, port: int) -> TelegramSimulator:
    """One without people and chats."""
    return TelegramSimulator(clock=clock, port=port)
