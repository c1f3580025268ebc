"""Google Calendar v3."""

from holdfast.providers.google_calendar.client import CALENDAR_SCOPE, CALENDAR_URL, GoogleCalendar
from holdfast.providers.google_calendar.types import (
    CalendarEvent,
    CalendarList,
    CalendarListEntry,
    CalendarListQuery,
    EventAttendee,
    EventDateTime,
    EventPatch,
    EventPerson,
    EventQuery,
    Events,
    ExtendedProperties,
    InstanceQuery,
    NewEvent,
    PushChannel,
    SendUpdates,
)
from holdfast.providers.google_calendar.verifier import GoogleChannelVerifier
from holdfast.webhook_verifier import channel_token

__all__ = [
    "CALENDAR_SCOPE",
    "CALENDAR_URL",
    "CalendarEvent",
    "CalendarList",
    "CalendarListEntry",
    "CalendarListQuery",
    "EventAttendee",
    "EventDateTime",
    "EventPatch",
    "EventPerson",
    "EventQuery",
    "Events",
    "ExtendedProperties",
    "GoogleCalendar",
    "GoogleChannelVerifier",
    "InstanceQuery",
    "NewEvent",
    "PushChannel",
    "SendUpdates",
    "channel_token",
]
