"""Local times in an IANA zone, right across changes to and from daylight saving time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


def at_zone(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time: a skipped one moves forward, of a repeated one it is the first.

    Example: `at_zone(datetime(2026, 3, 29, 2, 30), ZoneInfo("Europe/Berlin"))` is 03:30+02:00.
    """
    first = local.replace(tzinfo=zone, fold=0)
    return first.astimezone(UTC).astimezone(zone)


def add_elapsed(start: datetime, duration: timedelta) -> datetime:
    """Return the instant this much elapsed time later, in the zone of `start`."""
    return (start.astimezone(UTC) + duration).astimezone(start.tzinfo)
