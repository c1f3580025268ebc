"""The processor time of one caller's acts: `python -m bench.store_processor_time [ENGINE]`.

Ours, the bare loop and the driver on our table, as in `store_single` and `outbox_batches`; least of many
short interleaved runs, so that it can be compared on a busy machine.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import uvloop

from bench.event import Event, events
from bench.kit_outbox import new_body
from bench.measure import Place
from bench.outbox_batches import Enqueue, bare, floor, through_holdfast
from bench.outbox_processor_time import Run, compare, processor_time
from bench.store_single import ACTS, Documents, open_ways
from holdfast.worker import freeze_gc

NUMBER, STORED = 200, 5_000
NAMES = ("ours", "bare loop", "driver, our table")


async def _act(name: str, way: Documents, stored: list[Event]) -> None:
    given = events(NUMBER) if name == "create" else random.choices(stored, k=NUMBER)
    for event in given:
        await ACTS[name](way, event)


async def _put_out(enqueue: Enqueue) -> None:
    for _ in range(NUMBER):
        await enqueue([new_body()])


@asynccontextmanager
async def _ways(place: Place, engine: str) -> AsyncIterator[dict[str, dict[str, Run]]]:
    """The runs of each act, by the names of the ways."""
    stored = events(STORED)
    documents = await open_ways(place, engine, stored, floor=True)
    async with AsyncExitStack() as stack:
        queues = [
            await stack.enter_async_context(asynccontextmanager(way)(place.url(engine)))
            for way in (through_holdfast, bare, floor)
        ]
        runs: dict[str, dict[str, Run]] = {
            name: dict(zip(NAMES, (partial(_act, name, way, stored) for way in documents), strict=True))
            for name in ACTS
        }
        runs["one event put out"] = dict(zip(NAMES, (partial(_put_out, one) for one in queues), strict=True))
        yield runs
    for way in documents:
        await way.close()


async def main(engine: str) -> None:
    place = Place(quick=True)
    try:
        clock = await processor_time(place.url(engine))
        async with _ways(place, engine) as acts:
            freeze_gc()
            for name, runs in acts.items():
                print(f"{engine}, one caller: {name}, µs:", flush=True)
                await compare(runs, NUMBER, clock)
    finally:
        place.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for engine in sys.argv[1:] or ["sqlite full", "postgres"]:
            runner.run(main(engine))
