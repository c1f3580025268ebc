"""The merge rules of `#alt`, and how events are found by reference and by title."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.services.c4lendar.domain.changes import merge
from holdfast.services.c4lendar.domain.commands import BotCommand, find_command
from holdfast.services.c4lendar.domain.parser import EventDetails, Question
from holdfast.services.c4lendar.domain.references import find_reference, reference_of, uids_of
from holdfast.services.c4lendar.domain.title_search import find_by_title
from tests.services.c4lendar.test_parser import WORDS

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 1, 7, 14, 30, tzinfo=BERLIN)
MONDAY = datetime(2026, 1, 12, 10, 0, tzinfo=BERLIN)
SYNC = EventDetails(title="Sync", start=MONDAY, end=MONDAY + timedelta(minutes=30), location="Room 1")
TRIP = EventDetails(title="Trip", start=date(2026, 1, 12), end=date(2026, 1, 14))


def changed(event: EventDetails, text: str) -> EventDetails:
    after = merge(event, text, now=NOW, zone=BERLIN)
    assert isinstance(after, EventDetails), after
    return after


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, day, hour, minute, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("friday", at(9, 10), at(9, 10, 30)),
        ("move to friday", at(9, 10), at(9, 10, 30)),
        ("3pm", at(12, 15), at(12, 15, 30)),
        ("reschedule it to friday 3pm", at(9, 15), at(9, 15, 30)),
        ("3pm-5pm", at(12, 15), at(12, 17)),
        ("for 2 hours", at(12, 10), at(12, 12)),
        ("until 11", at(12, 10), at(12, 11)),
        ("30 min later", at(12, 10, 30), at(12, 11)),
        ("1 hour earlier", at(12, 9), at(12, 9, 30)),
        ("delay by 2 days", at(14, 10), at(14, 10, 30)),
        ("push it by 1 hour", at(12, 11), at(12, 11, 30)),
        ("extend by 30 min", at(12, 10), at(12, 11)),
        ("all day", date(2026, 1, 12), date(2026, 1, 13)),
        ("all day friday", date(2026, 1, 9), date(2026, 1, 10)),
    ],
)
def test_a_timed_event_keeps_what_the_text_leaves_out(text: str, start: object, end: object) -> None:
    assert changed(SYNC, text) == msgspec.structs.replace(SYNC, start=start, end=end)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("friday", date(2026, 1, 9), date(2026, 1, 11)),
        ("jan 20 to 22", date(2026, 1, 20), date(2026, 1, 23)),
        ("for 3 days", date(2026, 1, 12), date(2026, 1, 15)),
        ("3pm", at(12, 15), at(12, 16)),
        ("friday 3pm", at(9, 15), at(9, 16)),
        ("not all day", at(12, 9), at(12, 10)),
        ("2 days later", date(2026, 1, 14), date(2026, 1, 16)),
    ],
)
def test_an_all_day_event_becomes_timed_only_by_a_time(text: str, start: object, end: object) -> None:
    assert changed(TRIP, text) == msgspec.structs.replace(TRIP, start=start, end=end)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("rename to Big Review", {"title": "Big Review"}),
        ("Planning meeting", {"title": "Planning meeting"}),
        ("at the office", {"location": "the office"}),
        ("@ HQ", {"location": "HQ"}),
        ("no location", {"location": ""}),
        ("location: Room 9", {"location": "Room 9"}),
        ("every week", {"recurrence": "FREQ=WEEKLY"}),
        ("tomorrow and rename to X", {"title": "X", "start": at(8, 10), "end": at(8, 10, 30)}),
    ],
)
def test_title_place_and_repetition_change_by_themselves(text: str, changes: dict[str, object]) -> None:
    assert changed(SYNC, text) == msgspec.structs.replace(SYNC, **changes)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "shorten by 1 hour", "31/02", "9:00 or 10:00", "fri 12 jan"]
)
def test_what_would_need_a_guess_is_asked(text: str) -> None:
    assert isinstance(merge(SYNC, text, now=NOW, zone=BERLIN), Question)


@given(text=st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), event=st.sampled_from([SYNC, TRIP]))
def test_any_change_leaves_an_event_that_ends_after_it_starts(text: str, event: EventDetails) -> None:
    after = merge(event, text, now=NOW, zone=BERLIN)
    if isinstance(after, EventDetails):
        assert after.end > after.start


def test_a_reference_grows_until_no_other_event_shares_it() -> None:
    uids = ["01JBZQ8F7VKPNX3QZ9M8J5K2W7", "01JBZQ8F7VKPNX3QZ9M8J5K2W8", "01JBZQ8G7VKPNX3QZ9M8J5K2W7"]
    assert reference_of(uids[2], uids) == "EVT-01JBZQ8G"
    assert reference_of(uids[0], uids) == f"EVT-{uids[0]}"
    assert reference_of(uids[0], uids[:1]) == "EVT-01JBZQ8F"
    assert uids_of("01jbzq8f", uids) == uids[:2]


def test_a_reference_is_found_in_any_case_and_taken_out_of_the_text() -> None:
    assert find_reference("move evt-01jbzq8f to friday") == ("01JBZQ8F", "move   to friday")
    assert find_reference("move it to friday") == ("", "move it to friday")


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        ("standup", ["Standup"]),
        ("team", ["Team lunch", "Team dinner"]),
        ("TEAM LUNCH", ["Team lunch"]),
        ("team lnuch", ["Team lunch"]),
        ("dentst", ["Dentist appointment"]),
        ("holiday", []),
        ("", []),
    ],
)
def test_titles_are_found_exactly_then_in_part_then_with_typing_errors(words: str, titles: list[str]) -> None:
    events = [
        msgspec.structs.replace(SYNC, title=title)
        for title in ("Team lunch", "Team dinner", "Standup", "Dentist appointment")
    ]
    assert [event.title for event in find_by_title(words, events)] == titles


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("#cal lunch tomorrow", BotCommand("cal", "lunch tomorrow")),
        ("lunch #CAL tomorrow", BotCommand("cal", "lunch tomorrow")),
        ("/start@c4_bot", BotCommand("start", "")),
        ("#del then #cal", BotCommand("del", "then #cal")),
        ("#calendar", None),
        ("a#cal", None),
        ("##cal", None),
        ("hello", None),
        ("", None),
    ],
)
def test_the_first_whole_word_command_wins(text: str, command: BotCommand | None) -> None:
    assert find_command(text) == command
