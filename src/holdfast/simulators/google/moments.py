"""Calendar's times: an instant with a zone, or a whole day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.simulators.google.refusals import Refusal

When = dict[str, Any]
Start = datetime | date

_DAY: Final = timedelta(days=1)


def zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise Refusal(400, "invalid", f"Invalid time zone definition: {name}.") from None


def instant(text: str, *, where: str = "") -> datetime:
    """Parse an RFC 3339 time with its offset."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None or "T" not in text.upper():
        raise Refusal(400, "badRequest", "Bad Request", where=where)
    return parsed


def rfc3339(moment: datetime) -> str:
    """Format to the millisecond, in UTC: as `updated`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


def parse_when(when: When, name: str) -> When:
    """Normalize a start or end: with its offset, also when only a zone was given."""
    if when.get("date"):
        try:
            date.fromisoformat(when["date"])
        except ValueError:
            raise Refusal(400, "invalid", f"Invalid value for: {name}.date") from None
        return {"date": when["date"]}
    try:
        moment = datetime.fromisoformat(when.get("dateTime") or "")
    except ValueError:
        raise Refusal(400, "required", f"Missing {name} time.") from None
    if moment.tzinfo is None:
        if not when.get("timeZone"):
            raise Refusal(400, "required", f"Missing time zone definition for {name} time.")
        moment = moment.replace(tzinfo=zone(when["timeZone"]))
    normalized = {"dateTime": moment.isoformat(timespec="seconds")}
    if when.get("timeZone"):
        normalized["timeZone"] = when["timeZone"]
    try:
        moment.astimezone(UTC).astimezone(zone(when.get("timeZone") or "UTC"))
    except OverflowError:
        raise Refusal(400, "invalid", f"Invalid value for: {name}.dateTime") from None
    return normalized


def start_of(when: When) -> Start:
    """The day, or the instant in its own zone, so that adding days keeps the time of day."""
    if "date" in when:
        return date.fromisoformat(when["date"])
    moment = datetime.fromisoformat(when["dateTime"])
    return moment.astimezone(zone(when["timeZone"])) if "timeZone" in when else moment


def when_of(start: Start, like: When) -> When:
    """The start in the form of `like`."""
    if not isinstance(start, datetime):
        return {"date": start.isoformat()}
    return like | {"dateTime": start.isoformat(timespec="seconds")}


def as_instant(start: Start) -> datetime:
    """For comparisons: a day begins at midnight UTC."""
    return start if isinstance(start, datetime) else datetime(start.year, start.month, start.day, tzinfo=UTC)


def stamp(start: Start) -> str:
    """The suffix of an instance's id."""
    if isinstance(start, datetime):
        return start.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return start.strftime("%Y%m%d")


def end_after(start: Start, event: dict[str, Any]) -> When:
    """The end of an instance: as long after its start as the series' own."""
    first, last = start_of(event["start"]), start_of(event["end"])
    length = as_instant(last) - as_instant(first)
    if isinstance(start, datetime):
        ended = (start.astimezone(UTC) + length).astimezone(start.tzinfo)
        return when_of(ended, event["end"])
    return when_of(start + max(length, _DAY), event["end"])
