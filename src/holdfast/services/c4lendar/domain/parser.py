"""The deterministic parser: the text of a `#cal` to an event, given the time and the chat's zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

from holdfast.services.c4lendar.domain.dates import TextDate
from holdfast.services.c4lendar.domain.local_time import add_elapsed, at_zone
from holdfast.services.c4lendar.domain.text_reading import TextReading, read_text

DEFAULT_TITLE = "Event"
DEFAULT_LENGTH = timedelta(minutes=60)
_YEARS = range(1970, 2200)
OnDay = Callable[[date], datetime]


class EventDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An event: instants in the chat's zone, or dates with an exclusive end when it is all day."""

    title: str
    start: datetime | date
    end: datetime | date
    location: str = ""
    recurrence: str = ""

    @property
    def all_day(self) -> bool:
        """Whether the event has dates instead of times."""
        return not isinstance(self.start, datetime)


class Question(msgspec.Struct, frozen=True):
    """What to ask the person, where a text would need a guess."""

    text: str


class CannotDecideError(Exception):
    """The text needs an answer from the person."""


def parse(text: str, *, now: datetime, zone: ZoneInfo) -> EventDetails | Question:
    """Return the event that a text describes, or a question; the same input gives the same answer.

    Example: `parse("team standup tomorrow 9am", now=now, zone=ZoneInfo("Europe/Berlin"))`
    """
    local = now.astimezone(zone)
    reading = read_text(text, local.date())
    if reading.problem:
        return Question(reading.problem)
    if not reading.has_when:
        return Question("When is it? For example: tomorrow 9am, friday, 12 jan 2-3pm.")
    try:
        start, end = decide_when(reading, now=local, zone=zone)
        recurrence = recurrence_rule(reading, start=start, zone=zone)
    except CannotDecideError as question:
        return Question(question.args[0])
    except (ValueError, OverflowError):
        return Question("That date is too far away. Which day do you mean?")
    return EventDetails(
        title=reading.title or DEFAULT_TITLE,
        start=start,
        end=end,
        location=reading.place,
        recurrence=recurrence,
    )


def decide_when(
    reading: TextReading, *, now: datetime, zone: ZoneInfo
) -> tuple[datetime | date, datetime | date]:
    """Decide start and end; past ones roll forward where the text leaves the day open."""
    if reading.instant is not None or reading.times.from_now is not None:
        start = _exact_start(reading, now=now, zone=zone)
        return start, _end(reading, start, zone=zone)
    if reading.has_time and reading.all_day is not True:
        start = _timed_start(reading, now=now, zone=zone)
        return start, _end(reading, start, zone=zone)
    return _days(reading, now=now)


def recurrence_rule(reading: TextReading, *, start: datetime | date, zone: ZoneInfo) -> str:
    """Return the recurrence rule that the text names for an event with this start; empty for none."""
    repetition = reading.repetition
    if repetition is None:
        return ""
    first = start.date() if isinstance(start, datetime) else start
    until = reading.until or (reading.day.end if reading.day else None)
    if until is None and reading.times.days and not repetition.count:
        until = first + timedelta(days=reading.times.days - 1)
    if until is not None and until < first:
        raise CannotDecideError("The repetition would end before it starts. Until when does it repeat?")
    if until is not None and isinstance(start, datetime):
        return repetition.rule(at_zone(datetime.combine(until, time(23, 59, 59)), zone).astimezone(UTC))
    return repetition.rule(until)


def _exact_start(reading: TextReading, *, now: datetime, zone: ZoneInfo) -> datetime:
    if reading.times.from_now is not None:
        return add_elapsed(now, reading.times.from_now).replace(second=0, microsecond=0)
    instant = reading.instant
    assert instant is not None
    start = at_zone(instant, zone) if instant.tzinfo is None else instant.astimezone(zone)
    _check_ahead(start, now)
    return start


def _timed_start(reading: TextReading, *, now: datetime, zone: ZoneInfo) -> datetime:
    clock = _start_time(reading)

    def on(day: date) -> datetime:
        return at_zone(datetime.combine(day, clock), zone)

    if reading.repetition is not None:
        return _first_repetition(reading, on, now=now)
    text_date = reading.day
    if text_date is None:
        return _later(on, now.date(), 1, now=now)
    if text_date.weekday is not None and not text_date.certain:
        return _later(on, text_date.start, 7, now=now)
    start = on(text_date.start)
    _check_ahead(start, now)
    return start


def _start_time(reading: TextReading) -> time:
    if reading.times.start is not None:
        return reading.times.start
    assert reading.times.end is not None
    length = reading.times.duration or DEFAULT_LENGTH
    return (datetime.combine(date(2000, 1, 2), reading.times.end) - length).time()


def _later(on: OnDay, day: date, step: int, *, now: datetime) -> datetime:
    start = on(day)
    return start if start > now else on(day + timedelta(days=step))


def _first_repetition(reading: TextReading, on: OnDay, *, now: datetime) -> datetime:
    assert reading.repetition is not None
    day = reading.repetition.first(_not_before(reading.day, now))
    start = on(day)
    if start <= now:
        start = on(reading.repetition.first(day + timedelta(days=1)))
    return start


def _not_before(text_date: TextDate | None, now: datetime) -> date:
    return max(text_date.start, now.date()) if text_date else now.date()


def _check_ahead(start: datetime, now: datetime) -> None:
    if start.year not in _YEARS:
        raise ValueError("year out of range")
    if start <= now:
        raise CannotDecideError(f"{start:%H:%M on %-d %B %Y} has already passed. When should it be?")


def _end(reading: TextReading, start: datetime, *, zone: ZoneInfo) -> datetime:
    times, local = reading.times, start.replace(tzinfo=None)
    last_day = _last_day(reading, local.date())
    if times.end is not None and (times.start is not None or last_day):
        # As written: a skipped hour may have moved the start.
        written = datetime.combine(local.date(), times.start or local.time())
        end = datetime.combine(last_day or local.date(), times.end)
        end += timedelta(days=1) if end <= written else timedelta()
        return _after(start, at_zone(end, zone), end - written)
    if times.duration:
        return add_elapsed(start, times.duration)
    if last_day and last_day > local.date():
        return add_elapsed(at_zone(datetime.combine(last_day, local.time()), zone), DEFAULT_LENGTH)
    if times.days and not reading.repetition:
        return at_zone(local + timedelta(days=times.days), zone)
    return add_elapsed(start, DEFAULT_LENGTH)


def _last_day(reading: TextReading, first: date) -> date | None:
    """The last day of a range, which rolls forward with its first."""
    if reading.day is None or reading.day.end is None or reading.repetition:
        return None
    return max(first, reading.day.end + (first - reading.day.start))


def _after(start: datetime, end: datetime, length: timedelta) -> datetime:
    """The end, or the length after the start where a skipped hour moved the start past it."""
    return end if end > start else add_elapsed(start, length)


def _days(reading: TextReading, *, now: datetime) -> tuple[date, date]:
    today, text_date = now.date(), reading.day
    if reading.repetition is not None:
        first = reading.repetition.first(_not_before(text_date, now))
        return first, first + timedelta(days=1)
    if text_date is None:
        return today, today + timedelta(days=reading.times.days or 1)
    start = text_date.start + timedelta(days=7 if text_date.maybe_today else 0)
    last = _last_day(reading, start) or start + timedelta(days=(reading.times.days or 1) - 1)
    if start.year not in _YEARS:
        raise ValueError("year out of range")
    if last < today:
        raise CannotDecideError(f"{start:%-d %B %Y} has already passed. When should it be?")
    return start, last + timedelta(days=1)
