"""Expands a series by the RRULE and EXDATE lines of RFC 5545, with dateutil.

FREQ by day, week, month or year with INTERVAL, COUNT, UNTIL, BYDAY and BYMONTHDAY; anything else is refused,
never guessed.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from datetime import datetime, time
from typing import Final

import msgspec
from dateutil.rrule import rrulestr

from holdfast.simulators.google.moments import Start, stamp, zone
from holdfast.simulators.google.refusals import Refusal

_FREQUENCIES: Final = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_PARTS: Final = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "WKST"})
# dateutil would search a rule that matches no day (the 31st, each February) until the year 9999.
_SEARCH_YEARS: Final = 300


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A rule without its ends, where it ends, and the starts it excludes (UTC as `…Z`, or a day)."""

    rule: str
    count: int | None = None
    until: str = ""
    excluded: tuple[str, ...] = ()

    def starts(self, first: Start) -> Iterator[Start]:
        """Every start of the series, in order; without COUNT or UNTIL, up to 300 years of them."""
        # Without its zone, so that a series keeps its time of day when the clocks change.
        local = first.replace(tzinfo=None) if isinstance(first, datetime) else datetime.combine(first, time())
        last = f"{min(local.year + _SEARCH_YEARS, 9999)}1231T235959"
        for moment in itertools.islice(rrulestr(f"{self.rule};UNTIL={last}", dtstart=local), self.count):
            start = moment.replace(tzinfo=first.tzinfo) if isinstance(first, datetime) else moment.date()
            if self.until and operator.gt(*_comparable(start, self.until)):
                return
            if not any(operator.eq(*_comparable(start, text)) for text in self.excluded):
                yield start


def parse(lines: list[str]) -> Recurrence:
    """Parse an event's recurrence lines: one RRULE and any number of EXDATE."""
    rules = [line.removeprefix("RRULE:") for line in lines if line.startswith("RRULE:")]
    exdates = [line for line in lines if line.startswith("EXDATE")]
    if len(rules) != 1 or len(rules) + len(exdates) != len(lines):
        raise Refusal(400, "invalid", "Invalid recurrence rule.")
    try:
        return _parsed(rules[0], tuple(text for line in exdates for text in _exdates(line)))
    except ValueError:
        raise Refusal(400, "invalid", "Invalid recurrence rule.") from None


def _parsed(text: str, excluded: tuple[str, ...]) -> Recurrence:
    parts = dict(part.partition("=")[::2] for part in text.split(";"))
    freq, by_day = parts.get("FREQ", ""), parts.get("BYDAY", "")
    if not parts.keys() <= _PARTS or freq not in _FREQUENCIES or parts.get("WKST", "MO") != "MO":
        raise ValueError(text)
    nth_weekday = any(char.isdigit() for char in by_day)
    if (nth_weekday and freq != "MONTHLY") or (freq == "YEARLY" and (by_day or "BYMONTHDAY" in parts)):
        raise ValueError(text)
    count = int(parts.pop("COUNT")) if "COUNT" in parts else None
    until = parts.pop("UNTIL", "")
    if int(parts.get("INTERVAL", "1")) < 1 or (count is not None and count < 1):
        raise ValueError(text)
    rule = ";".join(f"{name}={value}" for name, value in parts.items())
    rrulestr(rule)
    return Recurrence(rule=rule, count=count, until=until, excluded=excluded)


def _exdates(line: str) -> list[str]:
    head, _, values = line.partition(":")
    zones = [part.removeprefix("TZID=") for part in head.split(";") if part.startswith("TZID=")]
    if not zones:
        return values.split(",")
    local = (datetime.strptime(text, "%Y%m%dT%H%M%S") for text in values.split(","))
    return [stamp(moment.replace(tzinfo=zone(zones[0]))) for moment in local]


def _comparable(start: Start, text: str) -> tuple[str, str]:
    """The start and an UNTIL or EXDATE value in one form: to the second where both are, else by the day."""
    if isinstance(start, datetime) and text.endswith("Z"):
        return stamp(start), text
    return start.strftime("%Y%m%d"), text[:8]
