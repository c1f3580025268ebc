"""A process that runs slots: `python -m tests.faults.scheduler_worker URL NAME`."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import uvloop

from holdfast.app import open_store
from holdfast.kit.schedules import Job, Schedule, Scheduler, Slot, SlotRun
from holdfast.model import Document, ProvidedId, document
from holdfast.store import create


@document("slot_marks/{id}", id=ProvidedId())
class SlotMark(Document):
    """Made by the act itself: twice for one slot is an error the store refuses."""

    id: str
    by: str


DOCUMENTS: Final[list[type[Document]]] = [Schedule, SlotRun, SlotMark]
CRON: Final = "* * * * *"


async def main(url: str, name: str) -> None:
    store = await open_store(url, DOCUMENTS)

    async def message_id(slot: Slot) -> None:
        await asyncio.sleep(0.002)
        await store.privileged().commit(create(SlotMark(id=slot.at.isoformat(), by=name)), slot.guard())

    jobs = [Job(name=f"job-{n}", cron=CRON, act=message_id, missed="all", retries=0) for n in range(1)]
    scheduler = Scheduler(store, jobs, owner=name)
    ran, empty = 0, 0
    while empty < 20:
        turns = await scheduler.turn()
        ran, empty = ran + turns, 0 if turns else empty + 1
        await asyncio.sleep(0.005)
    print(ran)
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:3]))
