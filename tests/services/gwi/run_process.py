"""A process that works on runs while a test pauses and kills it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.kit.runs import Runner
from holdfast.services.gwi.models.runs import RUNS
from tests.faults.controlled_process import Hear, Order, Role
from tests.kit.eventually import until
from tests.services.gwi.run_harness import run_harness

Say = Callable[[str], None]


async def work(order: Order, say: Say, hear: Hear) -> None:
    """Works until it is told to stop."""
    stop = asyncio.Event()
    async with run_harness(order["url"], SystemClock(), Path(order["home"]), **order["settings"]) as harness:
        (part,) = harness.runtime.parts["gwi"].runs
        runner = Runner(
            harness.runtime.store.privileged(), part.workflows, models=RUNS, joins=part.joins,
            owner=order["me"], **order["intervals"],
        )  # fmt: skip
        working = asyncio.create_task(runner.run(stop))
        say("works")
        if await hear() == "stop once a run is lost":
            await until(lambda: runner.status().lost > 0)
        stop.set()
        await working
        status = runner.status()
        say(f"lost {status.lost} faults {status.faults}")


ROLES: dict[str, Role] = {"work": work}
