"""Events: validation of bodies, patches, instances of series, and the view of each guest."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from holdfast.simulators.google.moments import (
    Start,
    as_instant,
    end_after,
    parse_when,
    stamp,
    start_of,
    when_of,
)
from holdfast.simulators.google.recurrence import parse
from holdfast.simulators.google.refusals import Refusal

Data = dict[str, Any]

_ID: Final = re.compile(r"[a-v0-9]{5,1024}")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_RESCHEDULING: Final = ("start", "end", "recurrence")
_TOMBSTONE: Final[tuple[str, ...]] = ("kind", "etag", "id", "status", "recurringEventId", "originalStartTime")


class EventRecord:
    """One event, shared by the calendars of its organizer and guests."""

    def __init__(self, data: Data, organizer: str) -> None:
        self.data = data
        self.organizer = organizer

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def cancelled(self) -> bool:
        return bool(self.data["status"] == "cancelled")

    @property
    def recurring(self) -> bool:
        return "recurrence" in self.data

    @property
    def parent_id(self) -> str:
        return str(self.data.get("recurringEventId", ""))

    def guests(self) -> set[str]:
        """Everyone on whose calendar it is."""
        return {self.organizer, *(guest["email"].lower() for guest in self.data.get("attendees", []))}


def check_id(id: str) -> str:
    """Check an id chosen by the client: base32hex."""
    if not _ID.fullmatch(id):
        raise Refusal(400, "invalid", "Invalid resource id value.")
    return id


def check_event(data: Data) -> Data:
    """The event with normalized times, or a refusal."""
    for name in ("start", "end"):
        if not isinstance(data.get(name), dict):
            raise Refusal(400, "required", f"Missing {name} time.")
        data[name] = parse_when(data[name], name)
    start, end = start_of(data["start"]), start_of(data["end"])
    if type(start) is not type(end) or as_instant(start) > as_instant(end):
        raise Refusal(400, "timeRangeEmpty", "The specified time range is empty.", where="timeMax")
    if data.get("recurrence"):
        if "dateTime" in data["start"] and "timeZone" not in data["start"]:
            raise Refusal(400, "required", "Missing time zone definition for start time.")
        parse(data["recurrence"])
    for name in ("recurrence", "attendees"):
        if not data.get(name):
            data.pop(name, None)
    if not all(_EMAIL.fullmatch(guest["email"]) for guest in data.get("attendees", [])):
        raise Refusal(400, "invalid", "Invalid attendee email.")
    return data


def merge_patch(data: Data, patch: Data) -> Data:
    """Apply a patch: objects are merged, lists replaced, null clears."""
    result = copy.deepcopy(data)
    for name, value in patch.items():
        _merge(result, name, value)
    if any(result.get(name) != data.get(name) for name in _RESCHEDULING):
        result["sequence"] = data.get("sequence", 0) + 1
    return result


def _merge(result: Data, name: str, value: object) -> None:
    if value is None:
        result.pop(name, None)
    elif isinstance(value, dict) and name not in ("start", "end"):
        for inner, one in value.items():
            _merge(result.setdefault(name, {}), inner, one)
    else:
        result[name] = copy.deepcopy(value)


def instance(record: EventRecord, start: Start) -> Data:
    """An unchanged instance of a series."""
    data = copy.deepcopy(record.data)
    del data["recurrence"]
    when = when_of(start, record.data["start"])
    own = {"start": when, "end": end_after(start, record.data), "originalStartTime": when}
    return data | own | {"id": f"{record.id}_{stamp(start)}", "recurringEventId": record.id}


def view(record: EventRecord, email: str, *, attendees_max: int | None = None) -> Data:
    """The event as it appears on this person's calendar."""
    data = copy.deepcopy(record.data)
    for name in ("creator", "organizer"):
        if data[name]["email"] == email:
            data[name]["self"] = True
    for guest in data.get("attendees", []):
        guest |= {"self": True} if guest["email"].lower() == email else {}
        guest |= {"organizer": True} if guest["email"].lower() == record.organizer else {}
    if attendees_max is not None and len(data.get("attendees", [])) > attendees_max:
        data["attendees"] = [guest for guest in data["attendees"] if guest.get("self")]
        data["attendeesOmitted"] = True
    return data


def tombstone(data: Data) -> Data:
    """What is shown of a deleted event."""
    return {name: data[name] for name in _TOMBSTONE if name in data} | {"status": "cancelled"}
