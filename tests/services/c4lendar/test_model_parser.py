"""The language model's parser over HTTP: its valid answers are used, and the rules decide otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import msgspec
import pytest
import structlog

from holdfast.clock import SystemClock
from holdfast.providers.language_model import LanguageModel
from holdfast.providers.rest import CallLimits
from holdfast.services.c4lendar.domain.changes import merge
from holdfast.services.c4lendar.domain.parser import EventDetails, Question, parse
from holdfast.services.c4lendar.settings import C4lendarSettings
from holdfast.services.c4lendar.text_parser import ModelParser
from holdfast.simulators.language_model import InjectedFault, LanguageModelSimulator, SetAnswer
from tests.services.c4lendar.harness import ALICE, chat_harness

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 1, 7, 14, 30, tzinfo=BERLIN)
TEXT = "team standup tomorrow 9am"
RULES = parse(TEXT, now=NOW, zone=BERLIN)
TIMED = {
    "title": "Dinner with Ana", "start": "2026-01-09T19:00:00+01:00", "end": "2026-01-09T21:00:00+01:00",
    "allDay": False, "location": "Luigi", "recurrence": "", "question": "",
}  # fmt: skip
ALL_DAY = TIMED | {"allDay": True, "start": "2026-01-09", "end": "2026-01-11"}


@asynccontextmanager
async def a_parser(
    *, key: str = "", model_s: float = 30.0
) -> AsyncIterator[tuple[LanguageModelSimulator, ModelParser]]:
    clock = SystemClock()
    async with LanguageModelSimulator(clock=clock) as simulator, aiohttp.ClientSession() as session:
        limits = CallLimits(call_s=model_s, attempts_max=1)
        model = LanguageModel(
            session, key or simulator.key, clock=clock, base_url=simulator.base_url, model=simulator.model,
            limits=limits,
        )  # fmt: skip
        yield simulator, ModelParser(model)


async def _parse_answer(content: Any, *, now: datetime = NOW) -> EventDetails | Question:
    async with a_parser() as (simulator, parser):
        simulator.run(SetAnswer(content=content))
        return await parser.parse(TEXT, now=now, zone=BERLIN)


async def test_a_valid_answer_is_the_event() -> None:
    async with a_parser() as (simulator, parser):
        simulator.run(SetAnswer(content=TIMED))
        parsed = await parser.parse("dinner", now=NOW.astimezone(UTC), zone=BERLIN)
    start = datetime(2026, 1, 9, 19, tzinfo=BERLIN)
    end = start + timedelta(hours=2)
    assert parsed == EventDetails(title="Dinner with Ana", start=start, end=end, location="Luigi")
    assert isinstance(parsed.start, datetime)
    assert parsed.start.tzinfo is BERLIN
    instructions, message = msgspec.json.decode(simulator.calls[-1].body)["messages"]
    assert message["content"] == "dinner"
    assert "2026-01-07T14:30+01:00, a Wednesday, in the time zone Europe/Berlin" in instructions["content"]


async def test_an_answer_for_whole_days_has_dates() -> None:
    parsed = await _parse_answer(ALL_DAY | {"title": " A\u0000 trip\n", "recurrence": "FREQ=YEARLY;COUNT=3"})
    assert parsed == EventDetails(
        title="A trip", start=date(2026, 1, 9), end=date(2026, 1, 11), location="Luigi",
        recurrence="FREQ=YEARLY;COUNT=3",
    )  # fmt: skip


BEFORE = EventDetails(title="standup", start=NOW - timedelta(hours=2), end=NOW + timedelta(hours=1))
LONGER = {
    "title": "standup", "start": "2026-01-07T12:30:00+01:00", "end": "2026-01-07T17:00:00+01:00",
    "allDay": False, "location": "", "recurrence": "", "question": "",
}  # fmt: skip


async def _merge_answer(content: Any, text: str) -> EventDetails | Question:
    async with a_parser() as (simulator, parser):
        simulator.run(SetAnswer(content=content))
        return await parser.merge(BEFORE, text, now=NOW, zone=BERLIN)


async def test_a_changed_event_may_keep_a_start_that_has_passed() -> None:
    longer = msgspec.structs.replace(BEFORE, end=NOW.replace(hour=17, minute=0))
    assert await _merge_answer(LONGER, "until five") == longer
    assert await _merge_answer(LONGER | {"title": "", "question": ""}, "until five") == longer
    assert await _merge_answer(LONGER | {"question": "Which five?"}, "until five") == Question("Which five?")


@pytest.mark.parametrize(
    "content",
    [
        "Moved to Friday.",
        LONGER | {"start": "2026-01-07T12:00:00+01:00"},
        LONGER | {"end": "2026-01-07T15:30:00+01:00"},
        LONGER | {"end": "2026-01-07T12:30:00+01:00"},
    ],
    ids=["no JSON", "a start that has passed", "nothing changed", "no length"],
)
async def test_the_rules_decide_a_change_where_the_answer_can_not_be_right(content: Any) -> None:
    rules = merge(BEFORE, "friday", now=NOW, zone=BERLIN)
    assert isinstance(rules, EventDetails)
    assert await _merge_answer(content, "friday") == rules


async def test_a_question_of_the_model_is_asked() -> None:
    asked = TIMED | {"start": "", "end": "", "question": "Which Friday?"}
    assert await _parse_answer(asked) == Question("Which Friday?")


@pytest.mark.parametrize(
    "rule",
    ["RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "FREQ=MONTHLY;BYDAY=-1FR;UNTIL=20261231T225959Z"],
)
async def test_a_recurrence_of_the_known_form_is_taken(rule: str) -> None:
    parsed = await _parse_answer(TIMED | {"recurrence": rule})
    assert isinstance(parsed, EventDetails)
    assert parsed.recurrence == rule.removeprefix("RRULE:")


async def test_an_end_in_the_repeated_hour_is_after_a_start_in_the_first() -> None:
    night = {"start": "2026-10-25T02:30:00+02:00", "end": "2026-10-25T02:15:00+01:00"}
    parsed = await _parse_answer(TIMED | night)
    assert isinstance(parsed, EventDetails)
    assert [parsed.start.isoformat(), parsed.end.isoformat()] == list(night.values())


@pytest.mark.parametrize(
    "content",
    [
        '{"title": "Din',
        "Dinner is on Friday.",
        [TIMED],
        {"title": "Dinner"},
        TIMED | {"guests": []},
        TIMED | {"allDay": "no"},
        TIMED | {"start": "friday"},
        TIMED | {"start": "2026-02-30T19:00:00+01:00"},
        TIMED | {"start": "2026-01-09T19:00:00"},
        TIMED | {"start": "2026-01-09T18:00:00Z"},
        TIMED | {"start": "0001-01-01T00:00:00+14:00"},
        TIMED | {"end": "2026-07-09T21:00:00+01:00"},
        TIMED | {"end": TIMED["start"]},
        TIMED | {"start": "2026-01-07T14:30:00+01:00"},
        TIMED | {"end": "9999-12-31T23:59:59+01:00"},
        TIMED | {"start": "2026-01-09"},
        ALL_DAY | {"start": TIMED["start"]},
        ALL_DAY | {"end": "2026-01-09"},
        ALL_DAY | {"start": "2026-01-05", "end": "2026-01-07"},
        ALL_DAY | {"end": "9999-12-31"},
        TIMED | {"recurrence": "every week"},
        TIMED | {"recurrence": "FREQ=SECONDLY"},
        TIMED | {"recurrence": "FREQ=DAILY;UNTIL=20261231"},
        TIMED | {"recurrence": "FREQ=DAILY;UNTIL=20260101T000000Z"},
        TIMED | {"recurrence": "FREQ=DAILY;UNTIL=20261399T000000Z"},
        ALL_DAY | {"recurrence": "FREQ=DAILY;UNTIL=20261231T225959Z"},
    ],
)
async def test_the_rules_decide_where_the_answer_can_not_be_right(content: Any) -> None:
    assert await _parse_answer(content) == RULES


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(status=429),
        InjectedFault(status=500),
        InjectedFault(cut=True),
        InjectedFault(status=302),
        InjectedFault(status=200),
    ],
    ids=lambda fault: "cut" if fault.cut else str(fault.status),
)
async def test_the_rules_decide_where_the_call_fails(fault: InjectedFault) -> None:
    async with a_parser() as (simulator, parser):
        simulator.run(SetAnswer(content=TIMED))
        simulator.inject(fault)
        assert await parser.parse(TEXT, now=NOW, zone=BERLIN) == RULES
        assert await parser.parse(TEXT, now=NOW, zone=BERLIN) != RULES


async def test_the_rules_decide_where_the_model_takes_too_long() -> None:
    async with a_parser(model_s=0.1) as (simulator, parser):
        simulator.inject(InjectedFault(hang=True))
        assert await parser.parse(TEXT, now=NOW, zone=BERLIN) == RULES


async def test_the_rules_decide_where_the_model_refuses() -> None:
    async with a_parser() as (simulator, parser):
        simulator.run(SetAnswer(refusal="I can't help with that."))
        assert await parser.parse(TEXT, now=NOW, zone=BERLIN) == RULES


async def test_a_text_over_a_thousand_characters_is_not_sent() -> None:
    async with a_parser() as (simulator, parser):
        simulator.run(SetAnswer(content=TIMED))
        long = TEXT + " " * (1_001 - len(TEXT))
        assert await parser.parse(long, now=NOW, zone=BERLIN) == RULES
        assert not simulator.calls
        assert await parser.parse(long[:-1], now=NOW, zone=BERLIN) != RULES
        assert len(simulator.calls) == 1


async def test_a_refused_key_is_not_logged() -> None:
    key = "sk-very-secret"
    with structlog.testing.capture_logs() as logs:
        async with a_parser(key=key) as (_, parser):
            assert await parser.parse(TEXT, now=NOW, zone=BERLIN) == RULES
    assert "401" in str(logs)
    assert key not in str(logs)


@pytest.mark.parametrize("wrong", [{"model_url": "llm.example.com"}, {"model_key": "sk-a\nb"}])
def test_a_setting_that_can_not_work_is_refused_without_its_value(wrong: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(wrong, C4lendarSettings)
    assert not any(value in str(raised.value) for value in wrong.values())


async def test_the_bot_asks_the_model_of_its_settings(sqlite_url: str, tmp_path: Path) -> None:
    async with LanguageModelSimulator(clock=SystemClock()) as simulator:
        model = {"model_url": simulator.base_url, "model_name": simulator.model, "model_key": simulator.key}
        async with chat_harness(sqlite_url, tmp_path, settings=model | {"model_s": 30.0}) as chat:
            await chat.connect(ALICE)
            day = chat.clock.now().date() + timedelta(days=2)
            days = {"start": day.isoformat(), "end": (day + timedelta(days=1)).isoformat()}
            simulator.run(SetAnswer(content=ALL_DAY | days))
            await chat.say("#cal dinner with ana, you know when")
            simulator.run(SetAnswer(content="no JSON"))
            await chat.say("#cal standup tomorrow 9am")
            assert chat.titles(ALICE) == ["Dinner with Ana", "standup"]
            await chat.say("#alt 10am")
            simulator.run(SetAnswer(content=ALL_DAY | days | {"title": "Daily"}))
            await chat.say("#alt you know how")
            assert chat.titles(ALICE) == ["Daily", "Dinner with Ana"]
            instructions = msgspec.json.decode(simulator.calls[-1].body)["messages"][0]["content"]
            assert '"title":"standup"' in instructions
            assert "T10:00:00" in instructions
