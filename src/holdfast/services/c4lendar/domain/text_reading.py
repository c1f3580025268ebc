"""What a text says about an event, field by field, before it is decided what that means."""

from __future__ import annotations

import re
from datetime import date, datetime

import msgspec

from holdfast.services.c4lendar.domain.dates import TextDate, read_dates
from holdfast.services.c4lendar.domain.phrases import BLANK, Phrases, clean_title, phrase
from holdfast.services.c4lendar.domain.recurrence import Repetition, read_adverb, read_repetition
from holdfast.services.c4lendar.domain.times import TextTimes, read_offset, read_times

TITLE_CHARACTERS_MAX = 300
_QUOTED = re.compile(r'"(?P<title>[^"\n]{1,300})"')
_NOT_ALL_DAY = phrase(r"not (?:an? )?(?:all|whole)[-\s]?day")
_ALL_DAY = phrase(r"(?:for )?(?:the )?(?:all|whole)[-\s]?day(?: long)?")
_INSTANT = re.compile(
    r"(?<!\w)(\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2})(?::(\d{2})(?:\.\d{1,9})?)?([Zz]|[+-]\d{2}:?\d{2})?(?!\w)"
)
_PLACE = re.compile(
    rf"(?:(?<=[\s{BLANK}])|^)(?<!look\s)(?<!looking\s)(?:at\s+|@\s*)(?P<place>[^{BLANK}\n;]+?)"
    rf"(?=\s*(?:$|[{BLANK}\n;]|\s(?:with|for|about)\s))",
    re.IGNORECASE,
)


class TextReading(msgspec.Struct, kw_only=True):
    """The fields that a text names; None or empty where it names none."""

    day: TextDate | None
    until: date | None
    times: TextTimes
    instant: datetime | None
    all_day: bool | None
    place: str
    repetition: Repetition | None
    title: str
    problem: str

    @property
    def has_time(self) -> bool:
        """Whether the text says when on a day the event starts or ends."""
        return (
            self.instant is not None
            or self.times.from_now is not None
            or bool(self.times.start or self.times.end)
        )

    @property
    def has_when(self) -> bool:
        """Whether the text says anything about when the event is."""
        return self.has_time or self.day is not None or self.repetition is not None


def read_text(text: str, today: date) -> TextReading:
    """Read the fields that a text names; deterministic, and never raises for any text."""
    phrases = Phrases(text)
    quoted = phrases.take(_QUOTED)
    all_day = False if phrases.take(_NOT_ALL_DAY) else True if phrases.take(_ALL_DAY) else None
    instant, problem = _read_instant(phrases)
    repetition = read_repetition(phrases)
    from_now = read_offset(phrases)
    dates = read_dates(phrases, today)
    times = read_times(phrases)
    times.from_now = from_now
    repetition = repetition or read_adverb(phrases)
    place = phrases.take(_PLACE)
    title = quoted["title"] if quoted else phrases.title()
    return TextReading(
        day=dates.day,
        until=dates.until,
        times=times,
        instant=instant,
        all_day=all_day,
        place=clean_title(phrases.original[slice(*place.span("place"))]) if place else "",
        repetition=repetition,
        title=title.strip()[:TITLE_CHARACTERS_MAX],
        problem=problem or dates.problem or times.problem,
    )


def _read_instant(phrases: Phrases) -> tuple[datetime | None, str]:
    match = phrases.take(_INSTANT)
    if match is None:
        return None, ""
    try:
        return datetime.fromisoformat(match[0].upper()), ""
    except ValueError:
        return None, f"{match[0]!r} is not a date and time. When does it start?"
