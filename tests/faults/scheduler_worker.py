"""A process that runs slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.app import open_store
from holdfast.kit.schedules import Job, Schedule, Scheduler, Slot, SlotRun
from holdfast.model import Document, ProvidedId, document
from holdfast.store import create
from tests.faults.controlled_process import Hear, Order, Role


@document("slot_marks/{id}", id=ProvidedId())
class SlotMark(Document):
    """Made by the act itself: twice for one slot is an error the store refuses."""

    id: str
    by: str


DOCUMENTS: Final[list[type[Document]]] = [Schedule, SlotRun, SlotMark]
CRON: Final = "* * * * *"


async def run_slots(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Run slots from the first word on until the next; say how many."""
    store = await open_store(order["url"], DOCUMENTS)

    async def mark(slot: Slot) -> None:
        await asyncio.sleep(0.002)
        await store.privileged().commit(
            create(SlotMark(id=slot.at.isoformat(), by=order["me"])), slot.guard()
        )

    scheduler = Scheduler(
        store, [Job(name="job-0", cron=CRON, act=mark, missed="all", retries=0)], owner=order["me"]
    )
    say("ready")
    await hear()
    stop, ran = asyncio.ensure_future(hear()), 0
    while not stop.done():
        ran += await scheduler.turn()
        await asyncio.sleep(0.005)
    say(str(ran))
    await store.close()


ROLES: dict[str, Role] = {"run_slots": run_slots}
