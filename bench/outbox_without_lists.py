"""What the lists of deliveries take: the floors of the outbox with their indexes and without.

`python -m bench.outbox_without_lists [ENGINE]` prints their rates as shares of the bare loop's. Deliveries
are listed by state for a tenant, for all and for an endpoint, and found by when they were finished; without
those indexes only what sending needs is left. A goal that is missed even so is out of reach with any list.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import apsw
import asyncpg
import uvloop

from bench.floor_deliveries import open_floor
from bench.kit_outbox import end_to_end, floor_on
from bench.measure import Place
from bench.outbox_batches import BATCH, Enqueue, bare, enqueue_to, events_per_s, through_pgqueuer
from bench.outbox_processes import inserting_on, minimal_on
from bench.timing_receiver import receiving, seen
from holdfast.worker import freeze_gc

ROUNDS, EVENTS = 12, 3_000
TABLE, NEEDED = "holdfast_deliveries", "__due"
Measure = Callable[[], Awaitable[float]]


async def drop_lists(url: str) -> None:
    """Drop the indexes that sending does not need."""
    if url.startswith("sqlite"):
        file = apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0])
        file.set_busy_timeout(5_000)
        found = file.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
            (TABLE,),
        )
        file.execute(_drops([name for (name,) in found]))
        file.close()
        return
    link = await asyncpg.connect(url)
    text = "SELECT indexname FROM pg_indexes WHERE tablename = $1 AND indexname NOT LIKE '%pkey'"
    await link.execute(_drops([row[0] for row in await link.fetch(text, TABLE)]))
    await link.close()


def _drops(names: list[str]) -> str:
    dropped = [name for name in names if NEEDED not in name]
    assert dropped, "the table has no indexes of lists"
    return "; ".join(f'DROP INDEX "{name}"' for name in dropped)


@asynccontextmanager
async def floor_enqueue(url: str, *, lists: bool) -> AsyncIterator[Enqueue]:
    deliveries = await open_floor(url)
    if not lists:
        await drop_lists(url)
    yield enqueue_to(deliveries)
    await deliveries.close()


@asynccontextmanager
async def one_process(url: str, *, lists: bool) -> AsyncIterator[Measure]:
    with receiving() as port:
        async with floor_on(url, port) as floor:
            if not lists:
                await drop_lists(url)
            yield lambda: end_to_end(EVENTS, floor.put_out, floor.newly_settled)


@asynccontextmanager
async def two_processes(url: str, *, lists: bool) -> AsyncIterator[Measure]:
    with receiving() as port:
        async with inserting_on(url, port) as put_out:
            if not lists:
                await drop_lists(url)

            async def arrived() -> int:
                return (await seen(port)).count

            yield lambda: end_to_end(EVENTS, put_out, arrived)


@asynccontextmanager
async def bare_process(url: str) -> AsyncIterator[Measure]:
    with receiving() as port:
        async with minimal_on(url, port) as outbox:
            yield lambda: end_to_end(EVENTS, outbox.put_out, outbox.newly_settled)


async def compare(name: str, ways: Mapping[str, Measure]) -> None:
    """Print the median rates of interleaved turns; the first of each way, which prepares, is left out."""
    figures: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS + 1):
        for way, measure in ways.items():
            figures[way].append(await measure())
    rates = {way: statistics.median(taken[1:]) for way, taken in figures.items()}
    shares = ", ".join(f"{way} {rate / rates['bare']:.2f}" for way, rate in rates.items() if way != "bare")
    print(f"{name}: {shares} of the bare loop's {rates['bare']:,.0f} events/s", flush=True)


async def put_out(engine: str, place: Place) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        enqueues = {
            "bare": await enter(asynccontextmanager(bare)(place.url(engine))),
            "floor": await enter(floor_enqueue(place.url(engine), lists=True)),
            "without lists": await enter(floor_enqueue(place.url(engine), lists=False)),
        }
        if engine == "postgres":
            enqueues["PGQueuer"] = await enter(asynccontextmanager(through_pgqueuer)(place.url(engine)))
        for size, name in ((BATCH, "in batches of 100"), (1, "one by one")):
            ways = {way: partial(events_per_s, size, enqueue, place) for way, enqueue in enqueues.items()}
            await compare(f"{engine}, put out {name}", ways)


async def delivered(engine: str, place: Place, *, processes: int) -> None:
    opened = one_process if processes == 1 else two_processes
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        ways = {
            "bare": await enter(bare_process(place.url(engine))),
            "floor": await enter(opened(place.url(engine), lists=True)),
            "without lists": await enter(opened(place.url(engine), lists=False)),
        }
        await compare(f"{engine}, end to end, processes: {processes}", ways)


async def main(engine: str) -> None:
    place = Place(quick=False)
    freeze_gc()
    try:
        await put_out(engine, place)
        await delivered(engine, place, processes=1)
        await delivered(engine, place, processes=2)
    finally:
        place.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for engine in sys.argv[1:] or ["sqlite full", "postgres"]:
            runner.run(main(engine))
