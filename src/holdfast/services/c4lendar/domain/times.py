"""Times of day and durations in text."""

from __future__ import annotations

import re
from datetime import time, timedelta

import msgspec

from holdfast.services.c4lendar.domain.dates import COUNT, NUMBERS
from holdfast.services.c4lendar.domain.phrases import BLANK, Phrases, phrase

PART_HOURS = {"morning": 9, "afternoon": 15, "evening": 19, "night": 20}
# Without am or pm, "at 3" is in the afternoon: few appointments are before seven in the morning.
_AFTERNOON_HOURS = range(1, 7)

_CLOCK = (
    r"(?:\d{1,2}(?:[:.]\d{2})?\s?[ap]\.?m\b\.?|\d{1,2}:\d{2}(?::\d{2})?(?!\d)"
    r"|noon\b|midday\b|midnight\b|(?:1[3-9]|2[0-3])h(?:[0-5]\d)?\b|\d{1,2}\s?o'?clock\b)"
)
_BARE = r"\d{1,2}(?:[:.]\d{2})?(?![\w:/]|\.\d)"
_START = r"(?<![\w:./-])"
_TO = r"\s*(?:-|to|until|till|til)\s*"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_RANGES = (
    _pattern(rf"(?:\b(?:from|at)\s+)?{_START}(?P<start>{_CLOCK}|{_BARE}){_TO}(?:at\s+)?(?P<end>{_CLOCK})"),
    _pattern(rf"(?:\b(?:from|at)\s+)?{_START}(?P<start>{_CLOCK}){_TO}(?P<end>{_BARE})"),
    _pattern(rf"\bbetween\s+(?P<start>{_CLOCK}|{_BARE})\s+and\s+(?P<end>{_CLOCK}|{_BARE})"),
    _pattern(rf"\bfrom\s+(?P<start>{_BARE}){_TO}(?P<end>{_BARE})"),
    _pattern(rf"(?:\bat\s+|{BLANK}\s*,?\s*)(?P<start>{_BARE})\s*-\s*(?P<end>{_BARE})"),
    _pattern(rf"^\s*(?P<start>{_BARE})\s*-\s*(?P<end>{_BARE})(?=\s*{BLANK})"),
)
_UNTIL = _pattern(
    rf"\b(?:until|till|til|end(?:s|ing)?(?:\s+at)?|finish(?:es)?\s+at)\s+(?P<end>{_CLOCK}|{_BARE})"
)
_SINGLE = _pattern(rf"(?:(?:\b(?:at|from|by|around|about)\s+|@\s*))?{_START}(?P<start>{_CLOCK})")
_MILITARY = _pattern(
    r"(?:\bat\s+(?P<at>[01]\d[0-5]\d|2[0-3][0-5]\d)\b|\b(?P<hours>[01]\d[0-5]\d|2[0-3][0-5]\d)\s?h(?:ou)?rs?\b)"
)
_HOUR_H = _pattern(r"\bat\s+(?P<hour>\d{1,2})h(?P<minute>\d{2})?\b")
# "at 9" and "tomorrow 9", but not "at 9 Elm Street" or "tomorrow 9 apples".
_AT_HOUR = _pattern(
    rf"(?:\b(?:at|around|about|by)\s+|@\s*)(?P<start>{_BARE})(?=\s*(?:$|[{BLANK},;.)@]|(?-i:[a-z])))"
)
_HOUR_AFTER_DATE = _pattern(rf"{BLANK}\s*(?P<start>{_BARE})(?=\s*(?:$|[{BLANK},;.)]))")
_HOUR_BEFORE_DATE = _pattern(rf"{_START}(?P<start>\d{{1,2}})(?=\s+{BLANK})")
_PART = _pattern(
    rf"(?:\b(?:in the\s+(?P<in_the>morning|afternoon|evening)|at (?P<at_night>night))\b"
    rf"|(?<={BLANK})\s*(?P<after>morning|afternoon|evening|night)\b)"
)
_PART_WITH_TODAY = _pattern(r"\b(?:this\s+(morning|afternoon|evening)|to(night)|last\s+(night))\b")

_AMOUNT = rf"(?:\d{{1,3}}(?:[.,]\d{{1,2}})?|half an?|{COUNT})"
_IN = phrase(
    rf"in (?P<amount>{_AMOUNT}) ?(?P<unit>hours?|hrs?|h|minutes?|mins?|m)"
    r"(?: (?:and )?(?P<more>\d{1,2}) ?(?:minutes?|mins?|m))?"
)
_FROM_NOW = phrase(rf"(?P<amount>{_AMOUNT}) ?(?P<unit>hours?|hrs?|minutes?|mins?) from now")
_DURATIONS = (
    phrase(r"for (?P<amount>\d{1,2})h(?:(?P<more>\d{1,2})m?)?"),
    # "20h" is a time, "5h" a duration.
    phrase(r"(?P<amount>\d|1[0-2])h(?:(?P<more>\d{1,2})m?)?"),
    phrase(
        r"(?:for )?(?P<amount>\d{1,3}(?:[.,]\d{1,2})?)[-\s]?(?P<unit>hours?|hrs?|minutes?|mins?)"
        r"(?: (?:and )?(?P<more>\d{1,2}) ?(?:minutes?|mins?|m))?"
    ),
    phrase(rf"for (?P<amount>{_AMOUNT}) ?(?P<unit>hours?|hrs?|h|minutes?|mins?|m)(?: and a (?P<half>half))?"),
)
_DAYS = phrase(rf"for (?P<amount>{COUNT}) (?P<unit>days?|nights?|weeks?)")


class TextTimes(msgspec.Struct, kw_only=True):
    """The times of a text: start, end, length, an offset from now, or what is wrong with them."""

    start: time | None = None
    end: time | None = None
    duration: timedelta | None = None
    days: int | None = None
    from_now: timedelta | None = None
    problem: str = ""


class _Clock(msgspec.Struct, frozen=True):
    hour: int
    minute: int
    # "a" or "p" where text says am or pm.
    half: str
    bare: bool

    def at_half(self, half: str) -> int:
        """Minutes since midnight with this half of the day."""
        return (self.hour % 12 + (12 if half == "p" else 0)) * 60 + self.minute

    @property
    def minutes(self) -> int:
        """Minutes since midnight as written; bare small hours are in the afternoon."""
        if self.half:
            return self.at_half(self.half)
        if self.bare and self.hour in _AFTERNOON_HOURS:
            return self.at_half("p")
        return self.hour * 60 + self.minute


def read_offset(phrases: Phrases) -> timedelta | None:
    """Consume "in 2 hours" or "30 minutes from now"."""
    match = phrases.take(_IN) or phrases.take(_FROM_NOW)
    return parse_duration(match) if match else None


def read_times(phrases: Phrases) -> TextTimes:
    """Consume durations, ranges and times; dates are consumed already."""
    times = TextTimes()
    _read_durations(phrases, times)
    part = _read_part(phrases)
    try:
        _read_clocks(phrases, times, part)
    except ValueError as error:
        times.problem = f"{error.args[0]!r} is not a time. When does it start?"
    if times.start is None and times.end is None and part and not times.problem:
        times.start = time(PART_HOURS[part])
    return times


def _read_durations(phrases: Phrases, times: TextTimes) -> None:
    for pattern in _DURATIONS:
        if match := phrases.take(pattern):
            times.duration = parse_duration(match)
            return
    if match := phrases.take(_DAYS):
        times.days = _number(match["amount"]) * (7 if match["unit"].lower().startswith("week") else 1)


def _number(text: str) -> int:
    return NUMBERS.get(text.lower()) or int(text)


def parse_duration(match: re.Match[str]) -> timedelta:
    """The length that a match with the groups `amount` and `unit` (and `more`, `half`) names."""
    group = match.groupdict()
    amount, unit = group["amount"].lower(), (group.get("unit") or "h").lower()
    value = 0.5 if amount.startswith("half") else float(NUMBERS.get(amount) or amount.replace(",", "."))
    value += 0.5 if group.get("half") else 0
    length = timedelta(hours=value) if unit.startswith("h") else timedelta(minutes=value)
    return length + timedelta(minutes=int(group.get("more") or 0))


def _read_part(phrases: Phrases) -> str:
    if match := phrases.take(_PART):
        return str(match["in_the"] or match["at_night"] or match["after"]).lower()
    match = _PART_WITH_TODAY.search(phrases.original)
    return next((word.lower() for word in match.groups() if word), "") if match else ""


def _read_clocks(phrases: Phrases, times: TextTimes, part: str) -> None:
    for pattern in _RANGES:
        if match := phrases.take(pattern):
            start, end = _clock(match["start"]), _clock(match["end"], end=True)
            times.start, times.end = _range(start, end, part)
            break
    if match := phrases.take(_UNTIL) if times.end is None else None:
        times.end = _time(_clock(match["end"], end=True).minutes)
    for match in phrases.take_all(_SINGLE):
        value = _time(_in_part(_clock(match["start"]), part))
        if times.start is not None and times.start != value:
            times.problem = "I read more than one time. When does it start?"
        times.start = times.start or value
    if times.start is None:
        times.start = _read_bare(phrases, part)


def _read_bare(phrases: Phrases, part: str) -> time | None:
    if match := phrases.take(_MILITARY):
        digits = match["at"] or match["hours"]
        return time(int(digits[:2]), int(digits[2:]))
    if match := phrases.take(_HOUR_H):
        return _time(_clock(f"{match['hour']}:{match['minute'] or '00'}").minutes)
    patterns = [_AT_HOUR, _HOUR_AFTER_DATE, *([_HOUR_BEFORE_DATE] if part else [])]
    for pattern in patterns:
        if match := phrases.take(pattern):
            return _time(_in_part(_clock(match["start"]), part))
    return None


def _clock(text: str, *, end: bool = False) -> _Clock:
    lower = text.lower()
    if lower in ("noon", "midday"):
        return _Clock(12, 0, "p", False)
    if lower == "midnight":
        return _Clock(12, 0, "a", False)
    match = re.match(r"(\d{1,2})(?:[:.h](\d{2}))?(?::\d{2})?\s?([ap])?", lower)
    if match is None:
        raise ValueError(text)
    hour, minute, half = int(match[1]), int(match[2] or 0), match[3] or ""
    if hour == 24 and minute == 0 and end:
        hour = 0
    if hour > 23 or minute > 59 or (half and hour > 12):
        raise ValueError(text)
    return _Clock(hour, minute, half, match[2] is None or "." in lower)


def _in_part(clock: _Clock, part: str) -> int:
    """Minutes since midnight, with the half of the day that "morning" or "tonight" says."""
    if clock.half or not part or clock.hour > 12:
        return clock.minutes
    return clock.at_half("a" if part == "morning" else "p")


def _range(start: _Clock, end: _Clock, part: str) -> tuple[time, time]:
    if end.half and not start.half and start.hour <= 12:
        last = end.minutes
        first = start.at_half(end.half)
        if first >= last:
            first = start.at_half("a" if end.half == "p" else "p")
        return _time(first), _time(last)
    first = _in_part(start, part)
    if end.half:
        return _time(first), _time(end.minutes)
    last = end.hour * 60 + end.minute
    if end.bare and last <= first < last + 12 * 60 and end.hour <= 12:
        last += 12 * 60
    return _time(first), _time(last % (24 * 60))


def _time(minutes: int) -> time:
    return time(minutes // 60, minutes % 60)
