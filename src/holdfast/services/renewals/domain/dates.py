"""Calendar arithmetic of leases: months that are right at month ends, and a property's own dates."""

from __future__ import annotations

import calendar
from datetime import date, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from holdfast.errors import InvalidError

# Days beyond these are slips of the pen, and some have no hour in some zone.
FIRST_DAY: Final = date(1900, 1, 1)
LAST_DAY: Final = date(2999, 12, 31)


def check_day(day: date, field: str) -> None:
    """Refuse a day that nobody means; the error names the field it stood in."""
    if not FIRST_DAY <= day <= LAST_DAY:
        raise InvalidError(f"{day} is no day between {FIRST_DAY} and {LAST_DAY}", field)


@lru_cache(maxsize=1_024)
def months_before(day: date, months: int) -> date:
    """The same day so many months earlier, or the last day of that month where it has no such day.

    Example: `months_before(date(2026, 8, 31), 6)` gives `date(2026, 2, 28)`
    """
    count = day.year * 12 + day.month - 1 - months
    year, month = divmod(count, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


@lru_cache(maxsize=1_024)
def whole_months(start: date, end: date) -> int:
    """How many whole months lie between two days; 0 where the end comes first."""
    months = (end.year - start.year) * 12 + end.month - start.month
    while months > 0 and months_before(end, months) < start:
        months -= 1
    return max(0, months)


def zone_named(name: str) -> ZoneInfo:
    """A time zone by its name; empty is UTC. `InvalidError` for one that is not known."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError):
        raise InvalidError(
            f"{name!r} is no time zone; use a name such as America/New_York", "time_zone"
        ) from None


def zone_or_utc(name: str) -> ZoneInfo:
    """The same for looking: a property whose zone is not known is shown in UTC."""
    try:
        return zone_named(name)
    except InvalidError:
        return ZoneInfo("UTC")


def local_date(instant: datetime, zone: ZoneInfo) -> date:
    """The date that a clock on the property's wall shows at this instant."""
    return instant.astimezone(zone).date()
