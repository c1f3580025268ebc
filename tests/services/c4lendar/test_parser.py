"""The deterministic parser, by a table of phrases and by random text.

`phrases.txt` has a phrase and what it means on each line, as of Wednesday 7 January 2026, 14:30 in Berlin.
"""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.services.c4lendar.domain.parser import EventDetails, Question, parse
from holdfast.services.c4lendar.domain.phrases import CHARACTERS_MAX

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 1, 7, 14, 30, tzinfo=BERLIN)
TABLE = [
    line.split(" => ")
    for line in (Path(__file__).parent / "phrases.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
WORDS = [*sorted({word for phrase, _ in TABLE for word in phrase.split()}), "9999-12-31", "EVT-", '"', "("]


def describe(parsed: EventDetails | Question) -> str:
    """The expected column of the table."""
    if isinstance(parsed, Question):
        return f"? {parsed.text}"
    form = "%Y-%m-%d" if parsed.all_day else "%Y-%m-%dT%H:%M%z"
    parts = [f"{parsed.start:{form}} {parsed.end:{form}}", parsed.title]
    parts += [f"@ {parsed.location}"] if parsed.location else []
    return " | ".join([*parts, *([parsed.recurrence] if parsed.recurrence else [])])


def _instant(when: datetime | date) -> float:
    return when.timestamp() if isinstance(when, datetime) else float(when.toordinal())


def test_the_table_has_at_least_three_hundred_phrases() -> None:
    assert len({phrase for phrase, _ in TABLE}) >= 300


@pytest.mark.parametrize(("phrase", "expected"), TABLE)
def test_a_phrase_means_what_the_table_says(phrase: str, expected: str) -> None:
    assert describe(parse(phrase, now=NOW, zone=BERLIN)) == expected


@given(
    text=st.one_of(st.text(max_size=80), st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)),
    now=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),
    zone=st.sampled_from(["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "UTC"]),
)
def test_any_text_gives_an_event_that_ends_after_it_starts_or_a_question(
    text: str, now: datetime, zone: str
) -> None:
    here = ZoneInfo(zone)
    parsed = parse(text, now=now.replace(tzinfo=here), zone=here)
    assert parsed == parse(text, now=now.replace(tzinfo=here), zone=here)
    if isinstance(parsed, EventDetails):
        assert parsed.title
        assert _instant(parsed.end) > _instant(parsed.start)


def test_an_endless_text_is_read_up_to_its_limit() -> None:
    parsed = parse("tomorrow 9am " + "blah " * CHARACTERS_MAX, now=NOW, zone=BERLIN)
    assert isinstance(parsed, EventDetails)
    assert len(parsed.title) <= 300
