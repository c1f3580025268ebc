"""A stand-in for Google: consent and the token endpoint, Calendar v3 with push channels, Sheets v4."""

from holdfast.clock import Clock
from holdfast.simulators.google.control import (
    AddApp,
    AddPerson,
    AddServiceAccount,
    Consent,
    CreateEvent,
    DeleteEvent,
    EndTokens,
    ExpireSyncTokens,
    ListChannels,
    Pushes,
    Respond,
    Restore,
    Revoke,
    RevokeGrant,
    SetQuota,
    SetSheet,
    ShowCalendar,
    UpdateEvent,
)
from holdfast.simulators.google.simulator import GoogleSimulator
from holdfast.simulators.server import Trouble

__all__ = [
    "AddApp",
    "AddPerson",
    "AddServiceAccount",
    "Consent",
    "CreateEvent",
    "DeleteEvent",
    "EndTokens",
    "ExpireSyncTokens",
    "GoogleSimulator",
    "ListChannels",
    "Pushes",
    "Respond",
    "Restore",
    "Revoke",
    "RevokeGrant",
    "SetQuota",
    "SetSheet",
    "ShowCalendar",
    "Trouble",
    "UpdateEvent",
    "simulator",
]


def simulator(clock: Clock, port: int) -> GoogleSimulator:
    """One whose channels may name plain HTTP addresses on this machine."""
    return GoogleSimulator(clock=clock, port=port, http_on_loopback=True)
