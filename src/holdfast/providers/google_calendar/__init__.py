"""Google Calendar v3."""

from holdfast.providers.google_calendar.client import CALENDAR_SCOPE, CALENDAR_URL, GoogleCalendar
from holdfast.providers.google_calendar.types import (
    CalendarList,
    CalendarListEntry,
    CalendarListQuery,
    Channel,
    Event,
    EventAttendee,
    EventDateTime,
    EventPatch,
    EventPerson,
    EventQuery,
    Events,
    ExtendedProperties,
    InstanceQuery,
    NewEvent,
    SendUpdates,
)

__all__ = [
    "CALENDAR_SCOPE",
    "CALENDAR_URL",
    "CalendarList",
    "CalendarListEntry",
    "CalendarListQuery",
    "Channel",
    "Event",
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
    "SendUpdates",
]
