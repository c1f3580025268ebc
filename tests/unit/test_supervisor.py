"""Health of loops: what turns, what is stuck, what does not tell."""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.testing import ManualClock
from holdfast.worker import Supervisor
from holdfast.worker.supervisor import STUCK_S


class Silent:
    """A loop that runs but doesn't say when it turns."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self.begun.set()
        await stop.wait()


class Telling(Silent):
    last_turn_at: datetime | None = None


async def test_a_loop_that_has_not_turned_for_long_is_stuck_and_one_that_never_tells_is_not() -> None:
    clock, telling, silent = ManualClock(), Telling(), Silent()
    supervisor = Supervisor({"telling": telling, "silent": silent}, clock=clock)
    assert supervisor.health().status == "degraded"
    stop = asyncio.Event()
    running = asyncio.create_task(supervisor.run(stop))
    await asyncio.gather(telling.begun.wait(), silent.begun.wait())
    telling.last_turn_at = clock.now()
    assert supervisor.health().status == "ok"
    await clock.advance(STUCK_S + 1)
    assert supervisor.health().reasons == (f"telling has not run for {STUCK_S + 1:.0f} s",)
    telling.last_turn_at = clock.now()
    assert supervisor.health().status == "ok"
    stop.set()
    await running
