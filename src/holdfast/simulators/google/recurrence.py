"""When a series takes place: the RRULE and EXDATE lines of RFC 5545 that calendars really hold.

FREQ by day, week, month or year with INTERVAL, COUNT, UNTIL, BYDAY and BYMONTHDAY; anything else is refused,
never guessed.
"""

from __future__ import annotations

import itertools
import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec

from holdfast.simulators.google.moments import Start, zone
from holdfast.simulators.google.refusals import Refusal

_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BY_DAY: Final = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_KNOWN: Final = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "WKST"})
# Where a rule can never fit again (the 31st, each February), the search must end.
_EMPTY_MAX: Final = 1_000


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One RRULE. `by_day` pairs a weekday (Monday is 0) with its place in the month, 0 for each."""

    freq: str
    interval: int = 1
    count: int | None = None
    until: str = ""
    by_day: tuple[tuple[int, int], ...] = ()
    by_month_day: tuple[int, ...] = ()


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and the starts that are left out of it."""

    rule: Rule
    left_out: tuple[str, ...] = ()

    def starts(self, first: Start) -> Iterator[Start]:
        """Every start of the series, in order, perhaps without end."""
        fitting = (_at(day, first) for day in _days(self.rule, first))
        counted = itertools.islice(fitting, self.rule.count)
        for start in itertools.takewhile(lambda one: not _past(one, self.rule.until), counted):
            if not any(_same(text, start) for text in self.left_out):
                yield start


def parse(lines: list[str]) -> Recurrence:
    """The recurrence lines of an event."""
    rules = [line.removeprefix("RRULE:") for line in lines if line.startswith("RRULE:")]
    exdates = [line for line in lines if line.startswith("EXDATE")]
    if len(rules) != 1 or len(rules) + len(exdates) != len(lines):
        raise Refusal(400, "invalid", "Invalid recurrence rule.")
    try:
        left_out = tuple(text for line in exdates for text in _exdates(line))
        rule = _rule(rules[0])
    except ValueError:
        raise Refusal(400, "invalid", "Invalid recurrence rule.") from None
    return Recurrence(rule=rule, left_out=left_out)


def _rule(text: str) -> Rule:
    parts = dict(part.partition("=")[::2] for part in text.split(";"))
    if not parts.keys() <= _KNOWN or parts.get("FREQ") not in _PERIODS or parts.get("WKST", "MO") != "MO":
        raise ValueError(text)
    rule = Rule(
        freq=parts["FREQ"],
        interval=max(1, int(parts.get("INTERVAL", "1"))),
        count=int(parts["COUNT"]) if "COUNT" in parts else None,
        until=parts.get("UNTIL", ""),
        by_day=tuple(_weekday(one) for one in parts.get("BYDAY", "").split(",") if one),
        by_month_day=tuple(int(one) for one in parts.get("BYMONTHDAY", "").split(",") if one),
    )
    placed = any(place for _, place in rule.by_day)
    if (placed and rule.freq != "MONTHLY") or (rule.freq == "YEARLY" and (rule.by_day or rule.by_month_day)):
        raise ValueError(text)
    return rule


def _weekday(text: str) -> tuple[int, int]:
    match = _BY_DAY.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return _DAYS.index(match[2]), int(match[1] or 0)


def _exdates(line: str) -> list[str]:
    """Each left-out start as UTC (`…Z`) or as a day, whatever zone the line names."""
    head, _, values = line.partition(":")
    zones = [part.removeprefix("TZID=") for part in head.split(";") if part.startswith("TZID=")]
    if not zones:
        return values.split(",")
    local = (
        datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=zone(zones[0])) for text in values.split(",")
    )
    return [moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ") for moment in local]


def _at(day: date, first: Start) -> Start:
    return datetime.combine(day, first.timetz()) if isinstance(first, datetime) else day


def _same(text: str, start: Start) -> bool:
    if isinstance(start, datetime) and text.endswith("Z"):
        return start.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ") == text
    return start.strftime("%Y%m%d") == text[:8]


def _past(start: Start, until: str) -> bool:
    if not until:
        return False
    if isinstance(start, datetime) and until.endswith("Z"):
        return start.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ") > until
    return start.strftime("%Y%m%d") > until[:8]


def _days(rule: Rule, first: Start) -> Iterator[date]:
    begin = first.date() if isinstance(first, datetime) else first
    empty = 0
    for period in itertools.count():
        days = [day for day in _PERIODS[rule.freq](rule, begin, period * rule.interval) if day >= begin]
        yield from days
        empty = 0 if days else empty + 1
        if empty > _EMPTY_MAX:
            return


def _daily(rule: Rule, begin: date, step: int) -> list[date]:
    day = begin + timedelta(days=step)
    weekdays = {weekday for weekday, _ in rule.by_day}
    month_days = _month_days(rule, day.year, day.month) if rule.by_month_day else [day]
    return [day] if day in month_days and (not weekdays or day.weekday() in weekdays) else []


def _weekly(rule: Rule, begin: date, step: int) -> list[date]:
    monday = begin - timedelta(days=begin.weekday()) + timedelta(weeks=step)
    weekdays = sorted({weekday for weekday, _ in rule.by_day}) or [begin.weekday()]
    return [monday + timedelta(days=weekday) for weekday in weekdays]


def _monthly(rule: Rule, begin: date, step: int) -> list[date]:
    month = begin.month - 1 + step
    return _in_month(rule, begin, year=begin.year + month // 12, month=month % 12 + 1)


def _yearly(rule: Rule, begin: date, step: int) -> list[date]:
    return _in_month(rule, begin, year=begin.year + step, month=begin.month)


_PERIODS: Final = {"DAILY": _daily, "WEEKLY": _weekly, "MONTHLY": _monthly, "YEARLY": _yearly}


def _in_month(rule: Rule, begin: date, *, year: int, month: int) -> list[date]:
    if year > 9_000:
        return []
    if rule.by_day:
        named = set(_named_days(rule, year, month))
        return sorted(named & set(_month_days(rule, year, month)) if rule.by_month_day else named)
    if rule.by_month_day:
        return _month_days(rule, year, month)
    return [date(year, month, begin.day)] if begin.day <= monthrange(year, month)[1] else []


def _month_days(rule: Rule, year: int, month: int) -> list[date]:
    length = monthrange(year, month)[1]
    days = {day if day > 0 else length + 1 + day for day in rule.by_month_day}
    return [date(year, month, day) for day in sorted(days) if 1 <= day <= length]


def _named_days(rule: Rule, year: int, month: int) -> Iterator[date]:
    days = [date(year, month, day) for day in range(1, monthrange(year, month)[1] + 1)]
    for weekday, place in rule.by_day:
        fitting = [day for day in days if day.weekday() == weekday]
        if place == 0:
            yield from fitting
        elif abs(place) <= len(fitting):
            yield fitting[place - 1 if place > 0 else place]
