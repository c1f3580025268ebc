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
    "InstanceQuery",
    "NewEvent",
    "PushChannel",
    "SendUpdates",
]
