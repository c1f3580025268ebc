"""Events between their documents, what people see of them, and what Google takes."""

from __future__ import annotations

import hashlib
from datetime import date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from holdfast.projection import project
from holdfast.providers.google_calendar import EventDateTime, NewEvent
from holdfast.services.c4lendar.domain.local_time import at_zone
from holdfast.services.c4lendar.domain.parser import EventDetails
from holdfast.services.c4lendar.models import MAPPING_S, BotEvent

UNDO_S: Final = 600.0
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class EventVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A former state of an event, which `#undo` brings back."""

    title: str
    start_time: datetime | None
    end_time: datetime | None
    start_date: date | None
    end_date: date | None
    time_zone: str
    location: str
    recurrence: str
    deleted: bool


def details_of(event: BotEvent | EventVersion) -> EventDetails:
    """The event in the zone it was made in."""
    zone = ZoneInfo(event.time_zone)
    if event.start_time is not None and event.end_time is not None:
        start, end = event.start_time.astimezone(zone), event.end_time.astimezone(zone)
        return project(event, EventDetails, start=start, end=end)
    assert event.start_date is not None
    assert event.end_date is not None
    return project(event, EventDetails, start=event.start_date, end=event.end_date)


def with_details(event: BotEvent, details: EventDetails) -> BotEvent:
    """The event with these details; it is kept as long as its mappings may be needed."""
    start, end = details.start, details.end
    timed = isinstance(start, datetime)
    starts_at = (
        start if isinstance(start, datetime) else at_zone(datetime.combine(start, time()), _zone(event))
    )
    return msgspec.structs.replace(
        event, title=details.title, location=details.location, recurrence=details.recurrence,
        start_time=start if timed else None, end_time=end if timed else None,
        start_date=None if timed else start, end_date=None if timed else end,
        starts_at=starts_at, expires_at=max(starts_at, event.changed_at) + timedelta(seconds=MAPPING_S),
    )  # fmt: skip


def _zone(event: BotEvent) -> ZoneInfo:
    return ZoneInfo(event.time_zone)


def former_version(event: BotEvent) -> EventVersion | None:
    """The state that `#undo` brings back, if there is one."""
    return msgspec.json.decode(event.before, type=EventVersion) if event.before else None


def remember(event: BotEvent) -> str:
    """The event's present state, for `BotEvent.before`."""
    return msgspec.json.encode(msgspec.convert(event, EventVersion, from_attributes=True)).decode()


def uid_of(key: str, at: datetime) -> str:
    """A ULID for the event that a step makes: the same at every attempt, so that it is made once."""
    number = (int(at.timestamp() * 1000) << 80) | int.from_bytes(hashlib.sha256(key.encode()).digest()[:10])
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def google_event_id(chat_id: str, uid: str, *, google_sub: str) -> str:
    """The id that we choose for an event in one account, so that inserting it twice makes one event."""
    return "c4" + hashlib.sha256(f"{chat_id}:{uid}:{google_sub}".encode()).hexdigest()[:40]


def google_event(event: BotEvent, event_id: str) -> NewEvent:
    """The event as Google takes it, also to replace what is there."""
    details = details_of(event)
    return NewEvent(
        id=event_id, status="confirmed", summary=details.title, location=details.location,
        start=_moment(details.start, event.time_zone), end=_moment(details.end, event.time_zone),
        recurrence=[f"RRULE:{details.recurrence}"] if details.recurrence else [],
    )  # fmt: skip


def _moment(when: object, time_zone: str) -> EventDateTime:
    if isinstance(when, datetime):
        return EventDateTime(date_time=when, time_zone=time_zone)
    return EventDateTime(date=when)  # type: ignore[arg-type]
