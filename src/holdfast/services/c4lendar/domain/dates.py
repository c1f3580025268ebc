"""Dates in text: absolute, relative, weekdays and ranges of them."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta

import msgspec

from holdfast.services.c4lendar.domain.phrases import Phrases, phrase

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NUMBERS = {
    word: number
    for number, words in enumerate(
        (
            "",
            "a an one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        )
    )
    for word in words.split()
}
MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
WEEKDAY = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:s|nesday)?|thu(?:rs?(?:day)?)?"
    r"|fri(?:day)?|sat(?:urday)?|sun(?:day)?)"
)
COUNT = rf"(?:\d{{1,3}}|{'|'.join(NUMBERS)})"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"\d{4}"
# Not the hours of "12 to 2pm" or "12 - 14:30".
_NO_CLOCK = r"(?!\s*(?:[ap]\.?m\b|:\d|h\b))"
_JOIN = r"\s*(?:-|to|until|till|through|thru)\s*"

_DATE = phrase(
    r"(?:(?:on|from|by|starting|due) )?(?:"
    r"(?P<iso>\d{4}-\d{1,2}-\d{1,2})(?![-\d])(?=$|[^\d])"
    rf"|(?:the )?(?P<d1>{_DAY})(?:{_JOIN}(?:the )?(?P<d1_end>{_DAY}))? (?:of )?(?P<m1>{MONTH})"
    rf"(?:,? (?P<y1>{_YEAR}){_NO_CLOCK})?"
    rf"|(?P<m2>{MONTH}) (?:the )?(?P<d2>{_DAY}){_NO_CLOCK}"
    rf"(?:{_JOIN}(?:the )?(?P<d2_end>{_DAY}){_NO_CLOCK}(?! {MONTH}))?(?:,? (?P<y2>{_YEAR}){_NO_CLOCK})?"
    # "9.30" is a time or a number; "12.1." and "12.1.2027" are dates.
    r"|(?P<d3>\d{1,2})(?:/(?P<m3>\d{1,2})(?:/(?P<y3>\d{4}|\d{2}))?|[.](?P<m4>\d{1,2})[.](?P<y4>\d{4}|\d{2})?"
    r"|-(?P<m5>\d{1,2})-(?P<y5>\d{4}))(?![\d:/])"
    rf"|(?P<week_day>next week(?: on)? (?P<w1>{WEEKDAY})|(?P<w2>{WEEKDAY}) next week)"
    rf"|(?:(?P<which>this|next|last|coming) )?(?<!the\s)(?P<weekday>{WEEKDAY})"
    r"|(?P<relative>today|tonight|this (?:morning|afternoon|evening)|tomorrow|tmrw?"
    r"|the day after tomorrow|day after tomorrow|overmorrow|yesterday"
    r"|next week|next month|next year|this weekend|next weekend|the weekend|last night)"
    rf"|in (?P<in_count>{COUNT}) (?P<in_unit>days?|weeks?|months?|years?)"
    rf"|(?P<from_count>{COUNT}) (?P<from_unit>days?|weeks?|months?) from (?:now|today)"
    r"|(?:on|by|from) the (?P<ordinal>\d{1,2}(?:st|nd|rd|th))"
    r"|the (?P<ordinal_alone>\d{1,2}(?:st|nd|rd|th))(?=\s*(?:$|at\b|from\b|\d|noon\b))"
    r")"
)
_RANGE_JOIN = re.compile(r"^(?:-|to|until|till|through|thru)$", re.IGNORECASE)
_SAME_DAY_JOIN = re.compile(r"^(?:,|on|the|\()*$", re.IGNORECASE)
_UNTIL = re.compile(r"(?:until|till|til|ending(?: on)?|through)\s*$", re.IGNORECASE)


class TextDate(msgspec.Struct, frozen=True, kw_only=True):
    """A date that text names: `certain` when it names the year or the day relative to today."""

    start: date
    end: date | None = None
    certain: bool = False
    weekday: int | None = None
    # The day is today's weekday, so whether it is today depends on the time.
    maybe_today: bool = False


class TextDates(msgspec.Struct, kw_only=True):
    """The date or range of a text, with the end of a repetition, or what is wrong with it."""

    day: TextDate | None = None
    until: date | None = None
    problem: str = ""


def read_dates(phrases: Phrases, today: date) -> TextDates:
    """Consume the dates of a text."""
    found: list[tuple[int, int, TextDate]] = []
    dates = TextDates()
    for match in phrases.take_all(_DATE):
        try:
            value = _value(match, today)
        except (ValueError, OverflowError):
            dates.problem = f"{match.group(0).strip()!r} is not a date. Which day do you mean?"
            continue
        before = phrases.rest[: match.start()]
        if until := _UNTIL.search(before.rstrip(" ")):
            if found and _is_joined(phrases, found[-1][1], match.start()):
                start, _, first = found.pop()
                found.append((start, match.end(), _joined(first, value)))
                phrases.blank(until.start(), match.start())
                continue
            phrases.blank(until.start(), match.start())
            dates.until = value.end or value.start
            continue
        found.append((match.start(), match.end(), value))
    return _combine(phrases, sorted(found, key=lambda item: item[0]), dates)


def _is_joined(phrases: Phrases, end: int, start: int) -> bool:
    return bool(_RANGE_JOIN.match(phrases.between(end, start)))


def _combine(phrases: Phrases, found: list[tuple[int, int, TextDate]], dates: TextDates) -> TextDates:
    """Join ranges, match a weekday against the date beside it, and complain about a second date."""
    if not found:
        return dates
    _, end, result = found[0]
    for start, next_end, value in found[1:]:
        gap = phrases.between(end, start)
        if _RANGE_JOIN.match(gap):
            phrases.blank(end, start)
            result = _joined(result, value)
        elif _SAME_DAY_JOIN.match(gap) and _is_weekday_of(result, value):
            phrases.blank(end, start)
            result, problem = _checked_weekday(result, value)
            dates.problem = dates.problem or problem
        elif value.start != result.start or value.end != result.end:
            dates.problem = dates.problem or "I read more than one date. Which day do you mean?"
        end = next_end
    dates.day = result
    return dates


def _is_weekday_of(one: TextDate, other: TextDate) -> bool:
    return (one.weekday is None) != (other.weekday is None)


def _checked_weekday(one: TextDate, other: TextDate) -> tuple[TextDate, str]:
    day, named = (one, other) if one.weekday is None else (other, one)
    if day.start.weekday() == named.weekday:
        return day, ""
    return day, f"{day.start:%-d %B %Y} is a {day.start:%A}, not a {named.start:%A}. Which day do you mean?"


def _joined(first: TextDate, last: TextDate) -> TextDate:
    end = last.end or last.start
    if end < first.start and last.weekday is not None:
        end += timedelta(days=7 * (1 + (first.start - end).days // 7))
    elif end < first.start and not last.certain:
        end = _with_year(first.start.year + 1, end.month, end.day)
    return msgspec.structs.replace(first, end=max(end, first.start), maybe_today=False)


def _value(match: re.Match[str], today: date) -> TextDate:
    group = match.groupdict()
    if group["iso"]:
        year, month, day = (int(part) for part in group["iso"].split("-"))
        return TextDate(start=date(year, month, day), certain=True)
    if group["m1"] or group["m2"]:
        suffix = "1" if group["m1"] else "2"
        return _month_day(
            today, group[f"y{suffix}"], group[f"m{suffix}"], (group[f"d{suffix}"], group[f"d{suffix}_end"])
        )
    if group["d3"]:
        return _numeric(today, match)
    if group["week_day"]:
        monday = today + timedelta(days=7 - today.weekday())
        weekday = weekday_of(group["w1"] or group["w2"])
        return TextDate(start=monday + timedelta(days=weekday), certain=True)
    if group["weekday"]:
        return _weekday(today, weekday_of(group["weekday"]), (group["which"] or "").lower())
    if group["relative"]:
        return _relative(today, " ".join(group["relative"].lower().split()))
    if ordinal := group["ordinal"] or group["ordinal_alone"]:
        return TextDate(start=_next_day_of_month(today, number_of(ordinal)))
    count, unit = (group["in_count"] or group["from_count"]), (group["in_unit"] or group["from_unit"])
    return TextDate(start=add_units(today, number_of(count), unit), certain=True)


def number_of(text: str) -> int:
    """The number that digits, an ordinal or a word such as "two" name."""
    lower = text.lower()
    return NUMBERS[lower] if lower in NUMBERS else int(re.sub(r"\D", "", lower))


def weekday_of(text: str) -> int:
    """The number of a weekday, 0 for Monday."""
    return WEEKDAYS.index(text.lower()[:3])


def add_units(day: date, count: int, unit: str) -> date:
    """The date so many days, weeks, months or years later; a missing day becomes the month's last."""
    unit = unit.lower().rstrip("s")
    if unit in ("day", "week"):
        return day + timedelta(days=count * (7 if unit == "week" else 1))
    months = day.month - 1 + count * (12 if unit == "year" else 1)
    year, month = day.year + months // 12, months % 12 + 1
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def _month_day(today: date, year: str | None, month: str, days: tuple[str, str | None]) -> TextDate:
    number = MONTHS.index(month.lower()[:3]) + 1
    first, last = number_of(days[0]), number_of(days[1]) if days[1] else None
    if year:
        start = date(int(year), number, first)
    else:
        start = _with_year(today.year, number, first, not_before=today, last_day=last)
    end = None if last is None else date(start.year, number, last)
    if end is not None and end < start:
        raise ValueError("range ends before it starts")
    return TextDate(start=start, end=end, certain=bool(year))


def _with_year(
    year: int, month: int, day: int, *, not_before: date | None = None, last_day: int | None = None
) -> date:
    """The date in this year or, where that is past or is no date (29 February), in a following one."""
    for candidate in range(year, year + 9):
        try:
            value = date(candidate, month, day)
            end = value if last_day is None else date(candidate, month, last_day)
        except ValueError:
            continue
        if not_before is None or end >= not_before:
            return value
    raise ValueError(f"no such date: {day}/{month}")


def _numeric(today: date, match: re.Match[str]) -> TextDate:
    day, month = int(match["d3"]), int(match["m3"] or match["m4"] or match["m5"])
    if year := match["y3"] or match["y4"] or match["y5"]:
        full = int(year) + (2000 if len(year) == 2 else 0)
        return TextDate(start=date(full, month, day), certain=True)
    return TextDate(start=_with_year(today.year, month, day, not_before=today))


def _weekday(today: date, weekday: int, which: str) -> TextDate:
    ahead = (weekday - today.weekday()) % 7
    if which == "next":
        monday = today + timedelta(days=7 - today.weekday())
        return TextDate(start=monday + timedelta(days=weekday), certain=True, weekday=weekday)
    if which == "last":
        return TextDate(start=today - timedelta(days=(-ahead % 7) or 7), certain=True, weekday=weekday)
    if which in ("this", "coming"):
        return TextDate(start=today + timedelta(days=ahead), weekday=weekday)
    return TextDate(start=today + timedelta(days=ahead), weekday=weekday, maybe_today=ahead == 0)


def _relative(today: date, words: str) -> TextDate:
    days = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1, "last night": -1, "overmorrow": 2}
    if words.startswith("this ") and words != "this weekend":
        return TextDate(start=today, certain=True)
    if words in days or words.startswith("tm"):
        return TextDate(start=today + timedelta(days=days.get(words, 1)), certain=True)
    if words.endswith("day after tomorrow"):
        return TextDate(start=today + timedelta(days=2), certain=True)
    monday = today + timedelta(days=7 - today.weekday())
    if words == "next week":
        return TextDate(start=monday, certain=True)
    if words.endswith("weekend"):
        saturday = monday + timedelta(days=5 if words.startswith("next") else -2)
        return TextDate(start=max(saturday, today), end=saturday + timedelta(days=1), certain=True)
    if words == "next month":
        return TextDate(start=add_units(today.replace(day=1), 1, "month"), certain=True)
    return TextDate(start=date(today.year + 1, 1, 1), certain=True)


def _next_day_of_month(today: date, day: int) -> date:
    for ahead in range(13):
        first = add_units(today.replace(day=1), ahead, "month")
        if 1 <= day <= monthrange(first.year, first.month)[1] and first.replace(day=day) >= today:
            return first.replace(day=day)
    raise ValueError("no such day of a month")
