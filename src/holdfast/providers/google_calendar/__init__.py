"""Google Calendar v3."""

from holdfast.providers.google_calendar.client import CALENDAR_SCOPE, CALENDAR_URL, GoogleCalendar
from holdfast.providers.google_calendar.types import (
    CalendarEvent,
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
)
from holdfast.providers.google_calendar.verifier import GoogleChannelVerifier
from holdfast.webhook_verifier import channel_token

__all__ = [
    "CALENDAR_SCOPE",
    "CALENDAR_URL",
    "CalendarEvent",
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
    "channel_token",
]
