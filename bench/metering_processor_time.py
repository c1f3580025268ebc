"""The processor time of a usage fact in batches of 100: `python -m bench.metering_processor_time [ENGINE]`.

Ours, the driver on our tables, the bare loop and SQLAlchemy's ORM in two ways, as in `kit_metering`; least of
many short interleaved runs, so that it can be compared on a busy machine.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import uvloop

from bench.kit_metering import (
    BATCH,
    Record,
    bare,
    floor,
    new_batches,
    through_holdfast,
    through_orm,
    through_upserts,
)
from bench.measure import Place
from bench.outbox_processor_time import Run, compare, processor_time
from holdfast.worker import freeze_gc

BATCHES = 10
WAYS = {
    "ours": through_holdfast, "driver, our tables": floor, "bare loop": bare, "SQLAlchemy ORM": through_orm,
    "SQLAlchemy upserts": through_upserts,
}  # fmt: skip


async def _record_batches(record: Record) -> None:
    for batch in new_batches(BATCHES):
        await record(batch)


async def main(engine: str) -> None:
    place = Place(quick=True)
    try:
        clock = await processor_time(place.url(engine))
        async with AsyncExitStack() as stack:
            opened = {
                name: await stack.enter_async_context(asynccontextmanager(way)(place.url(engine)))
                for name, way in WAYS.items()
            }
            freeze_gc()
            print(f"{engine}, µs of a fact:", flush=True)
            runs: dict[str, Run] = {name: partial(_record_batches, record) for name, record in opened.items()}
            await compare(runs, BATCHES * BATCH, clock)
    finally:
        place.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for engine in sys.argv[1:] or ["sqlite full", "postgres"]:
            runner.run(main(engine))
