from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import Clock, SystemClock, from_us, to_us
from holdfast.testing import ManualClock

_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])))
def test_every_instant_survives_the_way_to_microseconds_and_back(instant: datetime) -> None:
    assert from_us(to_us(instant)) == instant
    assert from_us(to_us(instant)).tzinfo is UTC


def test_a_datetime_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        to_us(datetime(2026, 3, 1, 12))


def test_the_system_clock_tells_the_machines_time_in_utc() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000
    now = clock.now()
    assert before <= to_us(now) <= clock.now_us() <= time.time_ns() // 1_000
    assert now.tzinfo is UTC


async def test_the_system_clock_sleeps_at_least_as_long_as_asked() -> None:
    clock = SystemClock()
    start = clock.monotonic()
    await clock.sleep(0.01)
    # Event loops count whole milliseconds and may wake up to one of them early.
    assert clock.monotonic() - start >= 0.009


def test_a_manual_clock_stands_still() -> None:
    clock: Clock = ManualClock(_NOON)
    assert (clock.now(), clock.monotonic()) == (_NOON, 0.0)
    assert clock.now_us() == to_us(_NOON)


async def test_advancing_moves_wall_and_monotonic_time_alike() -> None:
    clock = ManualClock(_NOON)
    await clock.advance(90.5)
    assert clock.now() == _NOON + timedelta(seconds=90.5)
    assert clock.monotonic() == 90.5


async def test_sleepers_wake_in_due_order_each_at_its_own_time() -> None:
    clock = ManualClock(_NOON)
    woken: list[tuple[str, float]] = []

    async def nap(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in [("late", 30), ("early", 10), ("tie-1", 20), ("tie-2", 20)]:
            tasks.create_task(nap(name, seconds))
        await clock.advance(60)
    assert woken == [("early", 10), ("tie-1", 20), ("tie-2", 20), ("late", 30)]
    assert clock.monotonic() == 60


async def test_a_loop_that_sleeps_again_runs_every_turn_inside_one_advance() -> None:
    clock = ManualClock()
    turns: list[float] = []

    async def loop() -> None:
        while True:
            await clock.sleep(10)
            turns.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await clock.advance(35)
    assert turns == [10, 20, 30]
    await clock.advance(5)
    assert turns == [10, 20, 30, 40]
    task.cancel()


async def test_a_sleeper_does_not_wake_before_its_time() -> None:
    clock = ManualClock()
    napping = asyncio.create_task(clock.sleep(10))
    await clock.advance(9.999999)
    assert not napping.done()
    assert clock.sleepers == 1
    await clock.advance(0.000001)
    assert napping.done()
    assert clock.sleepers == 0


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    napping = asyncio.create_task(clock.sleep(10))
    await clock.advance(1)
    napping.cancel()
    await asyncio.gather(napping, return_exceptions=True)
    assert clock.sleepers == 0
    await clock.advance(20)
    assert napping.cancelled()


async def test_turning_the_wall_clock_back_leaves_monotonic_time_and_sleepers_alone() -> None:
    clock = ManualClock(_NOON)
    napping = asyncio.create_task(clock.sleep(10))
    await clock.advance(5)
    clock.set(_NOON - timedelta(days=1))
    assert clock.now() == _NOON - timedelta(days=1)
    assert clock.monotonic() == 5
    await clock.advance(5)
    assert napping.done()


async def test_sleeping_for_no_time_returns_at_once() -> None:
    clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0


async def test_advancing_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="set"):
        await ManualClock().advance(-1)


@given(st.lists(st.floats(0, 1_000), max_size=20))
def test_ticks_never_turn_monotonic_time_back(steps: list[float]) -> None:
    clock = ManualClock()
    seen = [clock.monotonic()]
    for step in steps:
        clock.tick(step)
        seen.append(clock.monotonic())
    assert seen == sorted(seen)
