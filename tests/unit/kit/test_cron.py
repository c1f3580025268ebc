"""Slots of cron expressions, against an independent library and against the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import WrongTypeError
from holdfast.kit.schedules.cron import MISSED_MAX, Missed, check_cron, decide_turn, last_slot, slots_after

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Sydney"]
EXPRESSIONS = [
    "0 18 * * *", "0 */6 * * *", "*/30 * * * *", "0 4 * * *", "0 0 1 * *", "5 4 * * sun", "0 22 * * 1-5",
    "0 0 29 2 *", "0 0 13 * 5", "15 6,12 1-7 * *", "59 23 31 12 *", "*/15 8-17 * * mon-fri",
]  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(days=366)


def _ours(cron: str, zone: str) -> list[datetime]:
    return list(takewhile(lambda slot: slot < END, slots_after(cron, zone, START)))


def _theirs(cron: str, zone: str) -> list[datetime]:
    slots = croniter(cron, START.astimezone(ZoneInfo(zone)))
    return list(
        takewhile(lambda at: at < END, (slots.get_next(datetime).astimezone(UTC) for _ in range(40_000)))
    )


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", EXPRESSIONS)
def test_a_year_of_slots_agrees_with_an_independent_library(cron: str, zone: str) -> None:
    ours = _ours(cron, zone)
    assert ours == _theirs(cron, zone)
    assert ours or cron == "0 0 29 2 *"


@pytest.mark.parametrize(
    ("zone", "cron", "day", "expected"),
    [
        # The hour from 2 to 3 is skipped: what it held runs when it would have been over.
        ("Europe/Berlin", "30 2 * * *", datetime(2026, 3, 29), ["2026-03-29T01:00:00+00:00"]),
        # The hour from 2 to 3 comes twice: what it holds runs once, the first time.
        ("Europe/Berlin", "30 2 * * *", datetime(2026, 10, 25), ["2026-10-25T00:30:00+00:00"]),
        ("America/New_York", "30 2 * * *", datetime(2026, 3, 8), ["2026-03-08T07:00:00+00:00"]),
        ("America/New_York", "30 1 * * *", datetime(2026, 11, 1), ["2026-11-01T05:30:00+00:00"]),
        ("Australia/Sydney", "30 2 * * *", datetime(2026, 10, 4), ["2026-10-03T16:00:00+00:00"]),
        ("Australia/Sydney", "30 2 * * *", datetime(2026, 4, 5), ["2026-04-04T15:30:00+00:00"]),
    ],
)
def test_a_fixed_time_runs_once_on_the_day_the_clocks_change(
    zone: str, cron: str, day: datetime, expected: list[str]
) -> None:
    begin = day.replace(tzinfo=ZoneInfo(zone))
    slots = takewhile(
        lambda s: s < begin + timedelta(days=1), slots_after(cron, zone, begin - timedelta(seconds=1))
    )
    assert [slot.isoformat() for slot in slots] == expected


@pytest.mark.parametrize(
    ("cron", "zone"), [("61 * * * *", "UTC"), ("", "UTC"), ("* * *", "UTC"), ("0 0 * * *", "Mars/X")]
)
def test_nonsense_is_refused_with_the_field_it_stands_in(cron: str, zone: str) -> None:
    with pytest.raises(WrongTypeError) as refusal:
        check_cron(cron, zone)
    assert refusal.value.path in ("cron", "zone")


def _decide(missed: Missed, *, late_s: float, grace_s: float = 60) -> tuple[list[str], str | None]:
    slot = datetime(2026, 6, 1, 12, tzinfo=UTC)
    turn = decide_turn(
        "0 * * * *", "UTC", slot=slot, now=slot + timedelta(seconds=late_s), missed=missed, grace_s=grace_s
    )
    assert turn.next is not None
    assert turn.run is None or turn.next > turn.run
    return [f"{s:%H}" for s in turn.missed], f"{turn.run:%H}" if turn.run else None


def test_a_slot_on_time_runs_under_every_policy() -> None:
    policies: list[Missed] = ["skip", "once", "all"]
    for missed in policies:
        assert _decide(missed, late_s=1) == ([], "12")


def test_missed_slots_follow_their_policy() -> None:
    late = 3 * 3600 + 600
    assert _decide("once", late_s=late) == (["12", "13", "14"], "15")
    assert _decide("skip", late_s=late) == (["12", "13", "14", "15"], None)
    assert _decide("skip", late_s=late, grace_s=900) == (["12", "13", "14"], "15")
    assert _decide("all", late_s=late) == ([], "12")


def test_a_long_absence_notes_a_bounded_number_of_missed_slots() -> None:
    slot = datetime(2020, 1, 1, tzinfo=UTC)
    turn = decide_turn("* * * * *", "UTC", slot=slot, now=START, missed="once", grace_s=0)
    assert len(turn.missed) == MISSED_MAX
    assert turn.run == START


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2024, 3, 1), datetime(2030, 1, 1)),
)
def test_the_last_slot_is_the_one_before_the_next(cron: str, zone: str, naive: datetime) -> None:
    now = naive.replace(tzinfo=UTC)
    last = last_slot(cron, zone, now)
    assert last <= now
    assert next(slots_after(cron, zone, last)) > now
