"""Simulated Google: OAuth consent and tokens, Calendar v3 with push channels, Sheets v4."""

from holdfast.clock import Clock
from holdfast.simulators.google.control import (
    AddPerson,
    CreateEvent,
    DeleteEvent,
    EndTokens,
    ExpireSyncTokens,
    GiveConsent,
    ListChannels,
    Pushes,
    Respond,
    Restore,
    RevokeAccess,
    RevokeGrant,
    SetQuota,
    SetSheet,
    ShowCalendar,
    UpdateEvent,
)
from holdfast.simulators.google.simulator import GoogleSimulator
from holdfast.simulators.server import InjectedFault

__all__ = [
    "AddPerson",
    "CreateEvent",
    "DeleteEvent",
    "EndTokens",
    "ExpireSyncTokens",
    "GiveConsent",
    "GoogleSimulator",
    "InjectedFault",
    "ListChannels",
    "Pushes",
    "Respond",
    "Restore",
    "RevokeAccess",
    "RevokeGrant",
    "SetQuota",
    "SetSheet",
    "ShowCalendar",
    "UpdateEvent",
    "simulator",
]


def simulator(clock: Clock, port: int) -> GoogleSimulator:
    """One whose channels may name plain HTTP addresses on this machine."""
    return GoogleSimulator(clock=clock, port=port, http_on_loopback=True)
