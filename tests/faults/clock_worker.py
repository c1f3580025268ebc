"""Processes whose machine's clock is wrong, or is set while they work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.clock import SharedClock, SystemClock
from holdfast.kit.outbox import OUTBOX_MODELS, Dispatcher, Endpoint, Sign, WebhookSigner, new_secret
from holdfast.kit.runs import KIT, Runner, Step, Workflow
from holdfast.kit.schedules import Job, Schedule, Scheduler, Slot, SlotRun
from holdfast.net import AddressGuard, RawSender
from holdfast.store import Store
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.store_opener import opener

LEASE_S: Final = 30.0
STEP_S: Final = 0.05
STEPS: Final = ("s1", "s2", "s3")
RUN_S_MAX: Final = 600.0
CRON: Final = "* * * * *"
Say = Callable[[str], None]

opened = opener([*OUTBOX_MODELS.all, *KIT.documents, Schedule, SlotRun])


class SettableClock(SystemClock):
    """A machine's clock that is off by `shift_s`."""

    shift_s = 0.0

    def now_us(self) -> int:
        return super().now_us() + round(self.shift_s * 1e6)


async def _work(
    order: Order, say: Say, hear: Hear, work: Callable[[Store, asyncio.Event], Coroutine[Any, Any, None]]
) -> None:
    """Work until told to stop; `set SECONDS` sets the machine's clock."""
    local, stop = SettableClock(), asyncio.Event()
    local.shift_s = order["shift_s"]
    async with opened(order["url"], SharedClock(local)) as store:
        working = asyncio.create_task(work(store, stop))
        say("ready")
        while (heard := await hear()) != "stop":
            local.shift_s = float(heard.removeprefix("set "))
        stop.set()
        await working
    say("over")


async def dispatch(order: Order, say: Say, hear: Hear) -> None:
    async def signing(endpoint: Endpoint) -> Sign:
        return WebhookSigner([new_secret()]).headers

    async def work(store: Store, stop: asyncio.Event) -> None:
        sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
        dispatcher = Dispatcher(store, sender, signing=signing, owner=order["me"], lease_s=LEASE_S)
        await dispatcher.run(stop)
        await sender.close()

    await _work(order, say, hear, work)


async def run_steps(order: Order, say: Say, hear: Hear) -> None:
    async def act(step: Step) -> None:
        say(f"did {step.run.id} {step.name}")
        await asyncio.sleep(STEP_S)

    async def work(store: Store, stop: asyncio.Event) -> None:
        runner = Runner(
            store.privileged(), [workflow(act)], owner=order["me"], lease_s=LEASE_S, renew_s=LEASE_S / 3,
            poll_s=0.2, concurrency=4,
        )  # fmt: skip
        await runner.run(stop)

    await _work(order, say, hear, work)


def workflow(act: Callable[[Step], Coroutine[Any, Any, Any]]) -> Workflow:
    flow = Workflow("timed", limit_s=RUN_S_MAX)
    for name in STEPS:
        flow.step(name=name, retries=0)(act)
    return flow


async def run_slots(order: Order, say: Say, hear: Hear) -> None:
    async def act(slot: Slot) -> None:
        say(f"slot {slot.at.isoformat()}")

    async def work(store: Store, stop: asyncio.Event) -> None:
        job = Job(name="minutely", cron=CRON, act=act, missed="all", retries=0)
        await Scheduler(store, [job], owner=order["me"]).run(stop)

    await _work(order, say, hear, work)


ROLES: dict[str, Role] = {"dispatch": dispatch, "run_steps": run_steps, "run_slots": run_slots}
