"""One timer ends the time of many tasks, and each hears of its own end only."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.http.time_limit import DeadlineTimer


async def test_a_task_that_takes_longer_is_timed_out_and_can_go_on() -> None:
    limit = DeadlineTimer(0.01).limit()
    with pytest.raises(TimeoutError), limit:
        await asyncio.Event().wait()
    assert limit.expired
    await asyncio.sleep(0)


async def test_a_task_in_time_is_left_alone_when_an_earlier_one_expires() -> None:
    timer, begun, go_on = DeadlineTimer(0.05), asyncio.Event(), asyncio.Event()

    async def quick() -> bool:
        with timer.limit() as limit:
            begun.set()
        await go_on.wait()
        return limit.expired

    first = asyncio.create_task(quick())
    await begun.wait()
    with pytest.raises(TimeoutError), timer.limit():
        await asyncio.Event().wait()
    go_on.set()
    assert await first is False


async def test_a_task_that_is_cancelled_stays_cancelled() -> None:
    timer, begun = DeadlineTimer(60), asyncio.Event()

    async def wait() -> None:
        with timer.limit():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_many_tasks_share_a_timer() -> None:
    timer, gate = DeadlineTimer(60), asyncio.Event()

    async def wait() -> None:
        with timer.limit():
            await gate.wait()

    tasks, timers = [asyncio.create_task(wait()) for _ in range(20)], set[asyncio.TimerHandle | None]()
    for _ in range(3):
        await asyncio.sleep(0)
        timers.add(timer._timer)
    assert (len(timer._deadlines), len(timers)) == (20, 1)
    gate.set()
    await asyncio.gather(*tasks)
    assert (len(timer._deadlines), {timer._timer}) == (0, timers)
