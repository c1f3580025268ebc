"""The text of an `#alt` applied to an event: what it does not mention stays."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

from holdfast.services.c4lendar.domain.dates import COUNT, add_units, number_of
from holdfast.services.c4lendar.domain.local_time import add_elapsed, at_zone
from holdfast.services.c4lendar.domain.parser import (
    DEFAULT_LENGTH,
    CannotDecideError,
    EventDetails,
    Question,
    decide_when,
    recurrence_rule,
)
from holdfast.services.c4lendar.domain.phrases import Phrases, clean_title, phrase
from holdfast.services.c4lendar.domain.text_reading import TITLE_CHARACTERS_MAX, TextReading, read_text
from holdfast.services.c4lendar.domain.times import parse_duration

DEFAULT_START = time(9)
_AMOUNT = rf"(?P<amount>half an?|\d{{1,3}}(?:[.,]\d{{1,2}})?|{COUNT})"
_UNIT = r"(?P<unit>minutes?|mins?|m|hours?|hrs?|h|days?|weeks?)"
_RENAME = phrase(
    r"(?:and )?(?:rename(?: it)? (?:to|as)|retitle(?: it)?(?: to)?|change (?:the )?(?:title|name) to"
    r"|call it|title:|title to)"
    r" (?P<title>[^\n]+)"
)
_PLACE = phrase(
    r"(?:and )?(?:(?:change|set) (?:the )?(?:location|place) to"
    r"|(?:location|place|where)(?::| to)) (?P<place>[^\n]+)"
)
_NO_PLACE = phrase(r"(?:no|remove|clear|without)(?: the)? (?:location|place)")
_ONCE = phrase(r"(?:no repeats?|(?:don't|do not|stop) repeat(?:ing)?|(?:just|only) once|once only)")
_SHIFT = phrase(rf"(?:by )?{_AMOUNT}\s?{_UNIT} (?P<way>later|earlier|sooner)")
_DELAY = phrase(
    rf"(?P<verb>delay|postpone|push(?: back)?|bring forward|move(?: it)?)(?: it)?(?: back| forward)?"
    rf" by {_AMOUNT}\s?{_UNIT}"
)
_LENGTH = phrase(rf"(?P<verb>extend|lengthen|shorten|cut)(?: it)? by {_AMOUNT}\s?{_UNIT}")
_VERBS = phrase(
    r"(?:please )?(?:move|change|reschedule|shift|postpone|make|set|update|put)"
    r"(?: (?:it|this|that|the (?:event|meeting|time|date|start|day)))*(?: (?:to|for|be))?"
)


def merge(event: EventDetails, text: str, *, now: datetime, zone: ZoneInfo) -> EventDetails | Question:
    """Return the event with the changes that a text names, or a question.

    A date alone keeps the time, a time alone keeps the date, and a start alone keeps the length. A time makes
    an all-day event timed; "all day" keeps the date; "not all day" without a time is 09:00 for 60 minutes.
    """
    phrases = Phrases(text)
    rename, place = phrases.take(_RENAME), phrases.take(_PLACE)
    changed = msgspec.structs.replace(
        event,
        title=clean_title(rename["title"])[:TITLE_CHARACTERS_MAX] if rename else event.title,
        location=clean_title(place["place"]) if place else "" if phrases.take(_NO_PLACE) else event.location,
        recurrence="" if phrases.take(_ONCE) else event.recurrence,
    )
    try:
        changed = _shift(phrases, changed, zone=zone)
        phrases.take(_VERBS)
        reading = read_text(phrases.remainder(), now.astimezone(zone).date())
        if reading.problem:
            return Question(reading.problem)
        changed = _apply(reading, changed, now=now.astimezone(zone), zone=zone)
    except CannotDecideError as question:
        return Question(question.args[0])
    except (ValueError, OverflowError):
        return Question("That date is too far away. Which day do you mean?")
    if reading.title and not rename:
        changed = msgspec.structs.replace(changed, title=reading.title)
    return _checked(event, changed, now=now)


def _checked(before: EventDetails, after: EventDetails, *, now: datetime) -> EventDetails | Question:
    if after == before:
        return Question(
            "What should change? For example: friday 3pm, for 2 hours, at the office, rename to Review."
        )
    if after.start != before.start and _is_past(after, now):
        return Question(f"{after.start:%-d %B %Y} has already passed. When should it be?")
    return after


def _is_past(event: EventDetails, now: datetime) -> bool:
    if isinstance(event.start, datetime):
        return event.start <= now
    return event.end <= now.date()


def _shift(phrases: Phrases, event: EventDetails, *, zone: ZoneInfo) -> EventDetails:
    """Apply "30 min later", "delay by 2 days" and "extend by 1 hour"."""
    if match := phrases.take(_LENGTH):
        sign = -1 if match["verb"].lower() in ("shorten", "cut") else 1
        end = _moved(event.end, match, sign, zone=zone)
        if end <= event.start:
            raise CannotDecideError("The event would end before it starts. How long should it be?")
        return msgspec.structs.replace(event, end=end)
    if match := phrases.take(_SHIFT):
        sign = 1 if match["way"].lower() == "later" else -1
    elif match := phrases.take(_DELAY):
        sign = -1 if "forward" in match[0].lower() else 1
    else:
        return event
    start, end = _moved(event.start, match, sign, zone=zone), _moved(event.end, match, sign, zone=zone)
    return msgspec.structs.replace(event, start=start, end=end)


def _moved(when: datetime | date, match: re.Match[str], sign: int, *, zone: ZoneInfo) -> datetime | date:
    unit = match["unit"].lower()
    if unit.startswith(("d", "w")):
        count = sign * number_of(match["amount"])
        if not isinstance(when, datetime):
            return add_units(when, count, unit)
        return at_zone(datetime.combine(add_units(when.date(), count, unit), when.time()), zone)
    if not isinstance(when, datetime):
        raise CannotDecideError("The event is all day. At what time should it start?")
    return add_elapsed(when, sign * parse_duration(match))


def _apply(reading: TextReading, event: EventDetails, *, now: datetime, zone: ZoneInfo) -> EventDetails:
    start, end = _new_when(reading, event, now=now, zone=zone)
    recurrence = recurrence_rule(reading, start=start, zone=zone) or event.recurrence
    return msgspec.structs.replace(
        event, start=start, end=end, recurrence=recurrence, location=reading.place or event.location
    )


def _new_when(
    reading: TextReading, event: EventDetails, *, now: datetime, zone: ZoneInfo
) -> tuple[datetime | date, datetime | date]:
    if reading.all_day:
        return _all_day(reading, event, now=now, zone=zone)
    if reading.instant is not None or reading.times.from_now is not None:
        start, end = decide_when(reading, now=now, zone=zone)
        return start, end if _has_length(reading) else _with_length(start, event)
    if reading.has_time or reading.all_day is False:
        return _timed(reading, event, now=now, zone=zone)
    if reading.day is not None or reading.repetition is not None:
        return _other_day(reading, event, now=now, zone=zone)
    if reading.times.duration and isinstance(event.start, datetime):
        return event.start, add_elapsed(event.start, reading.times.duration)
    if reading.times.days and not isinstance(event.start, datetime):
        return event.start, event.start + timedelta(days=reading.times.days)
    return event.start, event.end


def _has_length(reading: TextReading) -> bool:
    return reading.times.duration is not None or reading.times.end is not None


def _length(event: EventDetails) -> timedelta:
    if isinstance(event.start, datetime) and isinstance(event.end, datetime):
        return event.end - event.start
    return DEFAULT_LENGTH


def _with_length(start: datetime | date, event: EventDetails) -> datetime | date:
    assert isinstance(start, datetime)
    return add_elapsed(start, _length(event))


def _day_of(reading: TextReading, event: EventDetails, *, now: datetime, zone: ZoneInfo) -> date:
    """The day that the text names, or the event's own; a repetition begins on or after it."""
    if reading.day is None:
        day = event.start.astimezone(zone).date() if isinstance(event.start, datetime) else event.start
        return reading.repetition.first(day) if reading.repetition else day
    dateless = msgspec.structs.replace(reading, all_day=True)
    return decide_when(dateless, now=now, zone=zone)[0]


def _all_day(
    reading: TextReading, event: EventDetails, *, now: datetime, zone: ZoneInfo
) -> tuple[date, date]:
    if event.all_day and reading.day is None and reading.times.days is None:
        return event.start, event.end
    first = _day_of(reading, event, now=now, zone=zone)
    if reading.day is not None and reading.day.end is not None:
        return first, reading.day.end + timedelta(days=1)
    return first, first + timedelta(days=reading.times.days or 1)


def _timed(
    reading: TextReading, event: EventDetails, *, now: datetime, zone: ZoneInfo
) -> tuple[datetime, datetime]:
    """A new time, on the day that the text names or the event's own."""
    times, day = reading.times, _day_of(reading, event, now=now, zone=zone)
    old = event.start.astimezone(zone).time() if isinstance(event.start, datetime) else DEFAULT_START
    start = at_zone(datetime.combine(day, times.start or old), zone)
    if times.end is None:
        return start, add_elapsed(start, times.duration or _length(event))
    last_day = reading.day.end if reading.day and reading.day.end else day
    end = at_zone(datetime.combine(last_day, times.end), zone)
    if end <= start:
        end = at_zone(datetime.combine(last_day + timedelta(days=1), times.end), zone)
    return start, end


def _other_day(
    reading: TextReading, event: EventDetails, *, now: datetime, zone: ZoneInfo
) -> tuple[datetime | date, datetime | date]:
    """A new day: a timed event keeps its local time and length, an all-day one its number of days."""
    if isinstance(event.start, datetime):
        if reading.day is not None and reading.day.maybe_today:
            reading.times.start = event.start.astimezone(zone).time()
            start, _ = decide_when(reading, now=now, zone=zone)
        else:
            day = _day_of(reading, event, now=now, zone=zone)
            start = at_zone(datetime.combine(day, event.start.astimezone(zone).time()), zone)
        length = reading.times.duration or _length(event)
        assert isinstance(start, datetime)
        return start, add_elapsed(start, length)
    if reading.day is None:
        first = _day_of(reading, event, now=now, zone=zone)
        return first, first + (event.end - event.start)
    first, last = decide_when(reading, now=now, zone=zone)
    if reading.day.end or reading.times.days:
        return first, last
    return first, first + (event.end - event.start)
