"""What a process does that carries runs while a test pauses and kills it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from typing import Any

from holdfast.kit.runs import KIT, BackOff, Runner, Runs, Step, Workflow
from holdfast.kit.runs.workflow import Act
from holdfast.model import Document, document
from holdfast.store import Store, create
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.store_opener import opener

TENANT = "acme"
STEPS = ["s1", "s2", "s3", "s4"]
Say = Callable[[str], None]


@document("effects/{id}", tenant="tenant_id")
class Effect(Document):
    """What a step did: made by `create`, so that a step committed twice is refused."""

    id: str
    tenant_id: str = TENANT
    worker: str
    fence: int


ALL: list[type[Document]] = [*KIT.documents, Effect]


opened = opener(ALL)


def four_steps(act: Act, name: str = "faulty") -> Workflow:
    workflow = Workflow(name)
    for name in STEPS:
        workflow.step(name=name, retries=0, back_off=BackOff(first_s=0.01))(act)
    return workflow


async def finish(step: Step, worker: str) -> int:
    """A step's work: one more than it was given, a mark in the state, a document of its own."""
    step.state[step.name] = worker
    step.add(create(Effect(id=f"{step.run.id}-{step.name}", worker=worker, fence=step.run.fence)))
    return (step.input or 0) + 1


async def carry(store: Store, workflow: Workflow, order: Order, stop: asyncio.Event) -> str:
    runner = Runner(
        store.privileged(), [workflow], owner=order["me"], lease_s=order["lease_s"],
        renew_s=order["lease_s"] / 3, poll_s=1.0, concurrency=10,
    )  # fmt: skip
    await runner.run(stop)
    status = runner.status()
    return f"lost {status.lost} faults {status.faults} {status.last_fault}"


async def gated(order: Order, say: Say, hear: Hear) -> None:
    """Stands still in the second step until told to go on, then is told to stop."""
    stop, hearing = asyncio.Event(), asyncio.Lock()

    async def act(step: Step) -> Any:
        say(f"{step.name} begins")
        if step.name == "s2":
            async with hearing:  # a second run that listened at the same time would fail
                await hear()
            stop.set()
        return await finish(step, order["me"])

    async with opened(order["url"]) as store:
        workflow = four_steps(act, order.get("workflow", "faulty"))
        say(await carry(store, workflow, order, stop))


async def steady(order: Order, say: Say, hear: Hear) -> None:
    """Carries runs until told to stop; now and then it stops dead with its work done and not committed."""
    stop = asyncio.Event()

    async def act(step: Step) -> Any:
        if await already_done(step):
            say(f"REDONE {step.key}")
        await asyncio.sleep(random.uniform(0.0, 0.02))
        if random.random() < order["stops"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        return await finish(step, order["me"])

    async def already_done(step: Step) -> bool:
        run = await Runs(store.tenant(TENANT)).get(step.run.id)
        assert run is not None
        # Under another number it may well be done: then this process stood still and will be refused.
        mine = run.fence == step.run.fence
        return mine and any(one.name == step.name and one.status == "completed" for one in run.steps)

    async with opened(order["url"]) as store:
        say("open")
        workflow = four_steps(act, order.get("workflow", "faulty"))
        working = asyncio.create_task(carry(store, workflow, order, stop))
        await hear()
        stop.set()
        say(await working)


ROLES: dict[str, Role] = {"gated": gated, "steady": steady}
