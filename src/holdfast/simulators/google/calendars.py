"""Calendars. An event is one record on the calendars of its organizer and of each guest.

Each calendar counts its changes: an entry carries the count of its last one, and a sync token is a count.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast.clock import Clock
from holdfast.simulators.google.bodies import read_body
from holdfast.simulators.google.events import Data, EventRecord, check_event, check_id, instance, merge_patch
from holdfast.simulators.google.moments import Start, as_instant, rfc3339, stamp, start_of
from holdfast.simulators.google.recurrence import parse
from holdfast.simulators.google.refusals import Refusal

# How far an endless series is expanded.
HORIZON: Final = timedelta(days=730)
_OWN_FIELDS: Final = frozenset({"responseStatus", "comment", "additionalGuests"})


class CalendarEntry(msgspec.Struct):
    """A record on one calendar; `gone` when this person was removed from it."""

    record: EventRecord
    change: int
    gone: bool = False


class Calendar:
    """One person's calendar."""

    def __init__(self, email: str, time_zone: str) -> None:
        self.email = email
        self.time_zone = time_zone
        self.entries: dict[str, CalendarEntry] = {}
        self.change = 0
        # Random, so that a token of another state never fits this one.
        self.generation = secrets.randbelow(2**31)
        self.pages: dict[str, Any] = {}

    def put(self, record: EventRecord, *, gone: bool) -> None:
        self.change += 1
        # Removed and inserted again, so that entries stay in the order of their last change.
        self.entries.pop(record.id, None)
        self.entries[record.id] = CalendarEntry(record, self.change, gone)

    def changed_since(self, change: int) -> list[CalendarEntry]:
        """The entries changed after `change`, oldest change first."""
        newer = itertools.takewhile(lambda entry: entry.change > change, reversed(self.entries.values()))
        return list(newer)[::-1]


class Calendars:
    """Operations on events; `changed` is called with the owner of each changed calendar."""

    def __init__(self, clock: Clock, changed: Callable[[str], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._etags = itertools.count(3_400_000_000_000_000)
        self._by_email: dict[str, Calendar] = {}

    def add(self, email: str, *, time_zone: str = "UTC") -> Calendar:
        return self._by_email.setdefault(email, Calendar(email, time_zone))

    def visible_to(self, calendar_id: str, caller: str) -> Calendar:
        """The calendar that a caller names; people see only their own."""
        email = caller if calendar_id == "primary" else calendar_id.lower()
        if email != caller or email not in self._by_email:
            raise Refusal(404, "notFound", "Not Found")
        return self._by_email[email]

    def owned_by(self, email: str) -> Calendar:
        if email not in self._by_email:
            raise LookupError(f"nobody is called {email}")
        return self._by_email[email]

    def all(self) -> Iterator[Calendar]:
        return iter(self._by_email.values())

    def get(self, calendar: Calendar, event_id: str) -> EventRecord:
        """The event, or the instance of a series, with this id; also a cancelled one."""
        entry = calendar.entries.get(event_id)
        if entry is not None:
            return entry.record
        series = calendar.entries.get(event_id.rpartition("_")[0])
        if series is not None and series.record.recurring:
            wanted = event_id.rpartition("_")[2]
            for start in self.starts(series.record):
                if stamp(start) == wanted:
                    return EventRecord(instance(series.record, start), series.record.organizer)
        raise Refusal(404, "notFound", "Not Found")

    def starts(self, series: EventRecord, until: datetime | None = None) -> Iterator[Start]:
        """The starts of a series, up to the horizon."""
        until = until or self._clock.now() + HORIZON
        starts = parse(series.data["recurrence"]).starts(start_of(series.data["start"]))
        return itertools.takewhile(lambda start: as_instant(start) < until, starts)

    def insert(self, calendar: Calendar, body: Data) -> EventRecord:
        body = read_body(body)
        event_id = check_id(body["id"]) if "id" in body else secrets.token_hex(13)
        if event_id in calendar.entries:
            raise Refusal(409, "duplicate", "The requested identifier already exists.")
        now, person = rfc3339(self._clock.now()), {"email": calendar.email}
        start = {
            "kind": "calendar#event",
            "id": event_id,
            "status": "confirmed",
            "htmlLink": f"https://www.google.com/calendar/event?eid={event_id}",
            "created": now,
            "creator": person,
            "organizer": dict(person),
            "iCalUID": f"{event_id}@google.com",
            "sequence": 0,
            "reminders": {"useDefault": True},
            "eventType": "default",
        }
        record = EventRecord(check_event(merge_patch(start, body) | {"sequence": 0}), calendar.email)
        self._store(record, record.guests())
        return record

    def patch(self, calendar: Calendar, event_id: str, *, patch: Data, if_match: str = "") -> EventRecord:
        record = self.get(calendar, event_id)
        _check_etag(record, if_match)
        data = check_event(merge_patch(record.data, {**read_body(patch), "id": record.id}))
        _check_rights(record, data, calendar.email)
        before = record.guests()
        record.data = data
        self._store(record, before)
        return record

    def delete(self, calendar: Calendar, event_id: str, *, if_match: str = "") -> None:
        """Cancel it for all if the organizer deletes it; a guest only removes it from their own calendar."""
        record = self.get(calendar, event_id)
        entry = calendar.entries.get(event_id)
        if record.cancelled or (entry is not None and entry.gone):
            raise Refusal(410, "deleted", "Resource has been deleted")
        _check_etag(record, if_match)
        if calendar.email != record.organizer:
            calendar.put(record, gone=True)
            self._changed(calendar.email)
            return
        for one in (record, *self._exceptions(calendar, record)):
            one.data["status"] = "cancelled"
            self._store(one, one.guests())

    def respond(self, calendar: Calendar, event_id: str, *, status: str) -> EventRecord:
        """Set a guest's own response to the invitation."""
        guests = self.get(calendar, event_id).data.get("attendees", [])
        answered = [
            guest | ({"responseStatus": status} if guest["email"].lower() == calendar.email else {})
            for guest in guests
        ]
        return self.patch(calendar, event_id, patch={"attendees": answered})

    def _exceptions(self, calendar: Calendar, series: EventRecord) -> list[EventRecord]:
        records = [entry.record for entry in calendar.entries.values()]
        return [record for record in records if record.parent_id == series.id and not record.cancelled]

    def _store(self, record: EventRecord, before: set[str]) -> None:
        record.data["etag"] = f'"{next(self._etags)}"'
        record.data["updated"] = rfc3339(self._clock.now())
        now = record.guests()
        for email in sorted(before | now):
            calendar = self._by_email.get(email)
            if calendar is not None and _has_room(calendar, record):
                calendar.put(record, gone=email not in now)
                self._changed(email)


def _has_room(calendar: Calendar, record: EventRecord) -> bool:
    """An id that a guest chose for another event stays theirs."""
    entry = calendar.entries.get(record.id)
    return entry is None or entry.record is record or entry.record.organizer == record.organizer


def _check_etag(record: EventRecord, if_match: str) -> None:
    if if_match not in ("", "*", record.data["etag"]):
        raise Refusal(412, "conditionNotMet", "Precondition Failed", where="If-Match")


def _check_rights(record: EventRecord, after: Data, email: str) -> None:
    """A guest may change their own response, and with the organizer's permission guests or everything."""
    if email == record.organizer or record.data.get("guestsCanModify", False):
        return
    old = {guest["email"].lower(): guest for guest in record.data.get("attendees", [])}
    new = {guest["email"].lower(): guest for guest in after.get("attendees", [])}
    unchanged = all(
        _without_own(old[one], one == email) == _without_own(new.get(one), one == email) for one in old
    )
    may_invite = record.data.get("guestsCanInviteOthers", True) or not new.keys() - old.keys()
    others = (record.data.keys() | after.keys()) - {"attendees"}
    if not (unchanged and may_invite and all(record.data.get(name) == after.get(name) for name in others)):
        message = "Shared properties can only be changed by the organizer of the event."
        raise Refusal(403, "forbiddenForNonOrganizer", message)


def _without_own(guest: Data | None, own: bool) -> Data | None:
    if guest is None:
        return None
    return {name: value for name, value in guest.items() if not (own and name in _OWN_FIELDS)}
