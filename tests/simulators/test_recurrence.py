"""Series take place when another, widely used implementation of the rules says so."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.simulators.google.recurrence import parse
from holdfast.simulators.google.refusals import Refusal

TOKYO = ZoneInfo("Asia/Tokyo")
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


@st.composite
def rules(draw: st.DrawFn) -> str:
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.integers(1, 5))}"]
    days = draw(st.lists(st.sampled_from(WEEKDAYS), unique=True, max_size=4))
    if freq == "MONTHLY" and draw(st.booleans()):
        places = draw(
            st.lists(st.sampled_from([-2, -1, 1, 2, 3, 4, 5]), min_size=len(days), max_size=len(days))
        )
        days = [f"{place}{day}" for place, day in zip(places, days, strict=True)]
    if freq != "YEARLY" and days:
        parts.append("BYDAY=" + ",".join(days))
    # Both together often fit no day at all, and dateutil looks for one until the year 9999.
    if freq in ("DAILY", "MONTHLY") and not days and draw(st.booleans()):
        numbers = draw(st.lists(st.sampled_from([-3, -1, 1, 13, 28, 29, 30, 31]), unique=True, min_size=1))
        parts.append("BYMONTHDAY=" + ",".join(map(str, numbers)))
    ends = st.sampled_from(["", "COUNT=7", "UNTIL=20270301T000000Z"])
    parts += [end] if (end := draw(ends)) else []
    return ";".join(parts)


@settings(deadline=None)
@given(rules(), st.dates(date(2026, 1, 1), date(2027, 12, 31)))
def test_starts_are_those_of_dateutil(rule: str, day: date) -> None:
    first = datetime(day.year, day.month, day.day, 9, 30, tzinfo=UTC)
    ours = list(itertools.islice(parse([f"RRULE:{rule}"]).starts(first), 12))
    theirs = list(itertools.islice(rrulestr(rule, dtstart=first).xafter(first, inc=True), 12))
    assert ours == theirs


def test_a_series_keeps_its_time_of_day_when_the_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 3, 28, 9, 0, tzinfo=berlin)
    starts = list(parse(["RRULE:FREQ=DAILY;COUNT=2"]).starts(first))
    assert [start.isoformat() for start in starts] == [
        "2026-03-28T09:00:00+01:00",
        "2026-03-29T09:00:00+02:00",
    ]


@pytest.mark.parametrize(
    "line",
    ["EXDATE;TZID=Asia/Tokyo:20260106T090000", "EXDATE:20260106T000000Z", "EXDATE;VALUE=DATE:20260106"],
)
def test_a_start_can_be_left_out_in_each_way_of_writing_it(line: str) -> None:
    first = datetime(2026, 1, 5, 9, 0, tzinfo=TOKYO)
    starts = parse(["RRULE:FREQ=DAILY;COUNT=3", line]).starts(first)
    assert [start.day for start in starts] == [5, 7]


def test_whole_days_recur_as_days() -> None:
    starts = parse(["RRULE:FREQ=MONTHLY;UNTIL=20260401"]).starts(date(2026, 1, 31))
    assert list(starts) == [date(2026, 1, 31), date(2026, 3, 31)]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["RRULE:FREQ=HOURLY"],
        ["RRULE:FREQ=DAILY;BYSETPOS=1"],
        ["RRULE:FREQ=DAILY;BYDAY=XX"],
        ["RRULE:FREQ=WEEKLY;BYDAY=2MO"],
        ["RRULE:FREQ=YEARLY;BYDAY=MO"],
        ["RRULE:FREQ=DAILY;COUNT=many"],
        ["RRULE:FREQ=DAILY", "RRULE:FREQ=WEEKLY"],
        ["RRULE:FREQ=DAILY", "RDATE:20260101T000000Z"],
        ["RRULE:FREQ=DAILY", "EXDATE;TZID=Asia/Tokyo:yesterday"],
    ],
)
def test_a_rule_it_would_have_to_guess_is_refused(lines: list[str]) -> None:
    with pytest.raises(Refusal, match="Invalid recurrence rule"):
        parse(lines)


def test_a_rule_that_never_fits_ends() -> None:
    assert (
        list(
            parse(["RRULE:FREQ=YEARLY;INTERVAL=1;UNTIL=20260101T000000Z"]).starts(
                datetime(2027, 1, 1, tzinfo=UTC)
            )
        )
        == []
    )
    assert list(parse(["RRULE:FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31"]).starts(date(2026, 2, 1))) == []
