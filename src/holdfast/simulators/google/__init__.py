"""A stand-in for Google: the token endpoint, Calendar v3 with push channels, Sheets v4."""

from holdfast.simulators.google.control import (
    AddPerson,
    AddServiceAccount,
    CreateEvent,
    DeleteEvent,
    EndTokens,
    ExpireSyncTokens,
    ListChannels,
    Pushes,
    Respond,
    Restore,
    Revoke,
    SetQuota,
    SetSheet,
    ShowCalendar,
    UpdateEvent,
)
from holdfast.simulators.google.simulator import GoogleSimulator
from holdfast.simulators.serving import Trouble

__all__ = [
    "AddPerson",
    "AddServiceAccount",
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
    "SetQuota",
    "SetSheet",
    "ShowCalendar",
    "Trouble",
    "UpdateEvent",
]
