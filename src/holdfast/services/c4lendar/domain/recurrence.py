"""Repetition in text: "every other monday" to a recurrence rule of RFC 5545."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

import msgspec

from holdfast.services.c4lendar.domain.dates import COUNT, MONTH, WEEKDAY, number_of, weekday_of
from holdfast.services.c4lendar.domain.phrases import BLANK, Phrases, phrase

_CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_UNITS = {"day": "DAILY", "week": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"}
_ORDINALS = {
    "first": 1,
    "1st": 1,
    "second": 2,
    "2nd": 2,
    "third": 3,
    "3rd": 3,
    "fourth": 4,
    "4th": 4,
    "last": -1,
}
_DAYS = rf"{WEEKDAY}s?(?:(?:,? and |,?\s?&\s?|,\s?|/){WEEKDAY}s?)*"
_NTH_DAY = phrase(
    rf"(?:on )?(?:every|each|the) (?P<nth>{'|'.join(_ORDINALS)}) (?P<day>{WEEKDAY})"
    r"(?P<monthly> of (?:the|every|each) month| every month| monthly)?"
)
_EVERY = phrase(
    rf"(?:every|each) (?:(?P<interval>other|second|{COUNT}) )?"
    rf"(?:(?P<days>{_DAYS})|(?P<set>weekdays?|workdays?|weekends?)|(?P<unit>days?|weeks?|months?|years?))"
    r"(?: on the (?P<month_day>\d{1,2})(?:st|nd|rd|th)?| on (?P<on_days>" + _DAYS + "))?"
)
_EVERY_MONTH_DAY = phrase(r"every (?P<month_day>\d{1,2})(?:st|nd|rd|th)(?: of the month)?")
_EVERY_DATE = phrase(
    r"(?:every year on|yearly on|annually on|every)"
    rf"(?= (?:the )?(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{MONTH}|{MONTH} \d))"
)
_PLURAL = phrase(rf"on (?P<days>(?:{WEEKDAY}s(?:(?:,? and |,\s?){WEEKDAY}s)*))")
# "standup 9am daily" repeats; "daily standup" is a title.
_ADVERB = re.compile(
    rf"\b(?P<adverb>daily|weekly|monthly|yearly|annually)(?=\s*(?:$|[{BLANK},;.)]))", re.IGNORECASE
)
_TIMES = phrase(r"(?:for )?(?P<count>\d{1,3}) times")


class Repetition(msgspec.Struct, kw_only=True):
    """A repetition: its frequency, the weekdays or day of month it falls on, and its end."""

    freq: str
    interval: int = 1
    weekdays: tuple[int, ...] = ()
    nth: int = 0
    month_day: int | None = None
    count: int | None = None

    def first(self, day: date) -> date:
        """The first day of the repetition on or after this day."""
        for ahead in range(366):
            candidate = day + timedelta(days=ahead)
            if self._falls_on(candidate):
                return candidate
        return day

    def _falls_on(self, day: date) -> bool:
        if self.month_day is not None:
            return day.day == self.month_day
        if self.nth > 0:
            return day.weekday() in self.weekdays and (day.day - 1) // 7 == self.nth - 1
        if self.nth < 0:
            return day.weekday() in self.weekdays and (day + timedelta(days=7)).month != day.month
        return not self.weekdays or day.weekday() in self.weekdays

    def rule(self, until: date | datetime | None) -> str:
        """The rule's text, such as `FREQ=WEEKLY;INTERVAL=2;BYDAY=MO`."""
        parts = [f"FREQ={self.freq}"]
        if self.interval > 1:
            parts.append(f"INTERVAL={self.interval}")
        if self.weekdays:
            nth = str(self.nth) if self.nth else ""
            parts.append("BYDAY=" + ",".join(nth + _CODES[day] for day in self.weekdays))
        if self.month_day is not None:
            parts.append(f"BYMONTHDAY={self.month_day}")
        if self.count:
            parts.append(f"COUNT={self.count}")
        elif isinstance(until, datetime):
            parts.append(f"UNTIL={until:%Y%m%dT%H%M%SZ}")
        elif until:
            parts.append(f"UNTIL={until:%Y%m%d}")
        return ";".join(parts)


def read_repetition(phrases: Phrases) -> Repetition | None:
    """Consume a repetition, before dates are read."""
    repetition = _read(phrases)
    if repetition and (match := phrases.take(_TIMES)):
        repetition.count = max(1, int(match["count"]))
    return repetition


def read_adverb(phrases: Phrases) -> Repetition | None:
    """Consume "daily" and its kin where no title word follows, after dates and times are read."""
    match = phrases.take(_ADVERB)
    if not match:
        return None
    word = match["adverb"].upper()
    repetition = Repetition(freq="YEARLY" if word == "ANNUALLY" else word)
    if match := phrases.take(_TIMES):
        repetition.count = max(1, int(match["count"]))
    return repetition


def _read(phrases: Phrases) -> Repetition | None:
    if match := phrases.take(_NTH_DAY):
        if match["nth"].lower() == "second" and not match["monthly"]:
            return Repetition(freq="WEEKLY", interval=2, weekdays=(weekday_of(match["day"]),))
        return Repetition(
            freq="MONTHLY", nth=_ORDINALS[match["nth"].lower()], weekdays=(weekday_of(match["day"]),)
        )
    if match := phrases.take(_EVERY):
        return _every(match)
    if match := phrases.take(_EVERY_DATE):
        return Repetition(freq="YEARLY")
    if match := phrases.take(_EVERY_MONTH_DAY):
        return _valid(Repetition(freq="MONTHLY", month_day=int(match["month_day"])))
    if match := phrases.take(_PLURAL):
        return Repetition(freq="WEEKLY", weekdays=_weekdays(match["days"]))
    return None


def _every(match: re.Match[str]) -> Repetition | None:
    words = (match["interval"] or "1").lower()
    interval = 2 if words in ("other", "second") else number_of(words)
    if match["days"] or match["on_days"]:
        days = _weekdays(match["days"] or match["on_days"])
        return Repetition(freq="WEEKLY", interval=max(1, interval), weekdays=days)
    if match["set"]:
        week_end = match["set"].lower().startswith("weekend")
        return Repetition(freq="WEEKLY", interval=interval, weekdays=(5, 6) if week_end else (0, 1, 2, 3, 4))
    unit = match["unit"].lower().rstrip("s")
    month_day = int(match["month_day"]) if match["month_day"] and unit == "month" else None
    return _valid(Repetition(freq=_UNITS[unit], interval=max(1, interval), month_day=month_day))


def _valid(repetition: Repetition) -> Repetition | None:
    return repetition if repetition.month_day is None or 1 <= repetition.month_day <= 31 else None


def _weekdays(text: str) -> tuple[int, ...]:
    return tuple(sorted({weekday_of(word) for word in re.findall(WEEKDAY, text, re.IGNORECASE)}))
