"""The outbox beside a loop for speed alone, in one process and in two; and its latency in two.

`python -m bench.outbox_processes URL` is the second process: a dispatcher on the same store.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import uvloop

from bench.kit_outbox import SIGN, PutOut, end_to_end, ours_on, signing, steadily
from bench.measure import SLOW_TURNS, Goal, Open, Pair, Place, Workload
from bench.minimal_outbox import SENDS_MAX, MinimalOutbox
from bench.timing_receiver import receiving, seen
from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, Dispatcher, Endpoint, Event, Outbox
from holdfast.net import AddressGuard, RawSender
from holdfast.store import put
from holdfast.worker import freeze_gc

LATENCY_MS_MAX = 3.0


@contextlib.asynccontextmanager
async def minimal_on(url: str, port: int) -> AsyncIterator[MinimalOutbox]:
    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    outbox = MinimalOutbox(sender, url=f"http://127.0.0.1:{port}/hook", sign=SIGN)
    await outbox.open(url)
    yield outbox
    await outbox.close()
    await sender.close()


@contextlib.contextmanager
def _dispatcher(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.outbox_processes", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def sending_on(url: str, port: int) -> AsyncIterator[PutOut]:
    """A call that puts an event out in this process; the dispatcher is another."""
    store = await open_store(url, OUTBOX_MODELS.all)
    await store.migrate()
    target = f"http://127.0.0.1:{port}/hook"
    endpoint = Endpoint(id="ep", url=target, created_at=store.clock.now(), concurrency=SENDS_MAX)
    await store.tenant("-").commit(put(endpoint))
    outbox = Outbox(store)

    async def put_out(body: bytes) -> None:
        await outbox.send(Event(type="thing.made", body=body), [endpoint])

    with _dispatcher(url):
        yield put_out
    await store.close()


@contextlib.asynccontextmanager
async def in_one_process(place: Place, engine: str) -> AsyncIterator[Pair]:
    count = place.scale(5_000, 1_000)
    with receiving() as port:
        async with ours_on(place.url(engine), port) as ours, minimal_on(place.url(engine), port) as bare:
            yield Pair(
                lambda: end_to_end(count, ours.put_out, ours.settled),
                lambda: end_to_end(count, bare.put_out, bare.newly_settled),
            )


@contextlib.asynccontextmanager
async def in_two_processes(place: Place, engine: str) -> AsyncIterator[Pair]:
    """Ours with a dispatcher beside; the other implementation has all in one process."""
    count, url = place.scale(5_000, 1_000), place.url(engine)
    with receiving() as port, receiving() as bare_port:
        async with sending_on(url, port) as put_out, minimal_on(place.url(engine), bare_port) as bare:

            async def arrived() -> int:
                return (await seen(port)).count

            yield Pair(
                lambda: end_to_end(count, put_out, arrived),
                lambda: end_to_end(count, bare.put_out, bare.newly_settled),
            )


@contextlib.asynccontextmanager
async def latency_in_two(place: Place, engine: str) -> AsyncIterator[Pair]:
    async def limit() -> float:
        return LATENCY_MS_MAX

    count = place.scale(600, 200)
    with receiving() as port:
        async with sending_on(place.url(engine), port) as put_out:
            yield Pair(lambda: steadily(count, put_out, port), limit)


async def dispatch(url: str) -> None:
    """Deliver what others put out, until the process is ended."""
    store = await open_store(url, OUTBOX_MODELS.all)
    dispatcher = Dispatcher(store, RawSender(AddressGuard(allow=["127.0.0.1"])), signing=signing)
    freeze_gc()
    print("ready", flush=True)
    await dispatcher.run(asyncio.Event())


def _against_bare(name: str, goal: float, open: Open) -> Workload:
    return Workload(
        name=name, engines=("sqlite full", "postgres"), unit="events/s", goal=Goal(goal),
        other_name="loop for speed alone, table of its own", open=open,
    )  # fmt: skip


WORKLOADS = [
    _against_bare("outbox end to end, 100 callers, one process", 0.6, in_one_process),
    _against_bare("outbox end to end, 100 callers, two processes", 0.75, in_two_processes),
    Workload(
        name="outbox p95 to arrival at 200/s, two processes", engines=("sqlite full", "postgres"), unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=latency_in_two, turns=SLOW_TURNS,
    ),
]  # fmt: skip

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(dispatch(sys.argv[1]))
