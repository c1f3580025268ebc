"""The processor time of an event: `python -m bench.outbox_processor_time [ENGINE]`.

Least of many short interleaved runs, so that it can be compared on a busy machine. Three ways: ours; the
outbox by hand under our promises (`floor_outbox`), on our tables and indexes; one for speed alone, on its
smallest table. What the second takes is the floor.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from bench.kit_outbox import end_to_end, floor_on, new_body, ours_on
from bench.measure import Place
from bench.outbox_batches import BATCH, Enqueue, bare, through_holdfast
from bench.outbox_batches import floor as batch_floor
from bench.outbox_processes import minimal_on
from bench.timing_receiver import receiving
from holdfast.worker import freeze_gc

EVENTS, ROUNDS = 1_000, 15
Run = Callable[[], Coroutine[Any, Any, object]]


class ProcessorTime:
    """Reads what this thread, the process's others and a database server have used so far, in µs."""

    def __init__(self, server: int | None) -> None:
        self._server = server

    def read(self) -> tuple[float, float, float]:
        loop = time.thread_time()
        return loop * 1e6, (time.process_time() - loop) * 1e6, self._server_us()

    def _server_us(self) -> float:
        if self._server is None:
            return 0.0
        children = Path(f"/proc/{self._server}/task/{self._server}/children").read_text().split()
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in children) / 1e3


async def processor_time(url: str) -> ProcessorTime:
    """The clock of this process and, on PostgreSQL, of the server whose children are its backends."""
    if url.startswith("sqlite"):
        return ProcessorTime(None)
    connection = await asyncpg.connect(url)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    status = Path(f"/proc/{backend}/stat").read_text()  # gone with the connection
    await connection.close()
    return ProcessorTime(int(status.rpartition(")")[2].split()[1]))


async def compare(ways: dict[str, Run], events: int, clock: ProcessorTime) -> None:
    """Print a line for each way: µs of an event."""
    used: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            before = clock.read()
            await run()
            used[name].append(tuple((b - a) / events for a, b in zip(before, clock.read(), strict=True)))
    for name, rows in used.items():
        # The first run prepares statements and opens connections. A commit may be made in either thread.
        loop, threads, server = min(rows[1:], key=sum)
        print(f"  {name:22} loop {loop:6.1f}   threads {threads:6.1f}   server {server:6.1f}", flush=True)


@asynccontextmanager
async def _end_to_end(place: Place, engine: str) -> AsyncIterator[dict[str, Run]]:
    async with AsyncExitStack() as stack:
        port = stack.enter_context(receiving())
        ours = await stack.enter_async_context(ours_on(place.url(engine), port))
        floor = await stack.enter_async_context(floor_on(place.url(engine), port))
        minimal = await stack.enter_async_context(minimal_on(place.url(engine), port))
        yield {
            "ours": lambda: end_to_end(EVENTS, ours.put_out, ours.settled),
            "by hand, our tables": lambda: end_to_end(EVENTS, floor.put_out, floor.newly_settled),
            "loop for speed alone": lambda: end_to_end(EVENTS, minimal.put_out, minimal.newly_settled),
        }


async def _enqueue_batches(enqueue: Enqueue) -> None:
    for _ in range(EVENTS // BATCH):
        await enqueue([new_body() for _ in range(BATCH)])


@asynccontextmanager
async def _batches(place: Place, engine: str) -> AsyncIterator[dict[str, Run]]:
    async with AsyncExitStack() as stack:
        ways = {"ours": through_holdfast, "driver, our table": batch_floor, "bare loop": bare}
        opened = {
            name: await stack.enter_async_context(asynccontextmanager(way)(place.url(engine)))
            for name, way in ways.items()
        }
        yield {name: partial(_enqueue_batches, enqueue) for name, enqueue in opened.items()}


async def main(engine: str) -> None:
    place = Place(quick=True)
    try:
        clock = await processor_time(place.url(engine))
        for name, opened in (("end to end", _end_to_end), ("in batches of 100", _batches)):
            async with opened(place, engine) as ways:
                freeze_gc()
                print(f"{engine}, {name}, µs of an event:", flush=True)
                await compare(ways, EVENTS, clock)
    finally:
        place.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name in sys.argv[1:] or ["sqlite full", "postgres"]:
            runner.run(main(name))
