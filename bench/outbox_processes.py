"""The outbox beside a loop for speed alone, in one process and in two; and its latency in two.

The floor is the outbox by hand (`floor_outbox`): in one process it hands over what was put out, in two the
second claims it. `python -m bench.outbox_processes ours|floor URL PORT` is the second
process: a dispatcher on the same store.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial

import uvloop

from bench.floor_outbox import new_delivery
from bench.kit_outbox import (
    FLOOR,
    SIGN,
    PutOut,
    end_to_end,
    floor_on,
    floor_store,
    ours_on,
    signing,
    steadily,
)
from bench.measure import SLOW_TURNS, Goal, Open, Place, Ways, Workload
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
def _dispatcher(kind: str, url: str, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.outbox_processes", kind, url, str(port)]
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

    with _dispatcher("ours", url, port):
        yield put_out
    await store.close()


@contextlib.asynccontextmanager
async def inserting_on(url: str, port: int) -> AsyncIterator[PutOut]:
    """The same by hand."""
    store = await floor_store(url, make=True, owner=None)

    async def put_out(body: bytes) -> None:
        await store.insert(*new_delivery(body, owner=None))

    with _dispatcher("floor", url, port):
        yield put_out
    await store.close()


@contextlib.asynccontextmanager
async def in_one_process(place: Place, engine: str) -> AsyncIterator[Ways]:
    count = place.scale(3_000, 1_000)
    async with AsyncExitStack() as stack:
        port = stack.enter_context(receiving())
        ours = await stack.enter_async_context(ours_on(place.url(engine), port))
        bare = await stack.enter_async_context(minimal_on(place.url(engine), port))
        floor = await stack.enter_async_context(floor_on(place.url(engine), port))
        yield Ways(
            lambda: end_to_end(count, ours.put_out, ours.settled),
            lambda: end_to_end(count, bare.put_out, bare.newly_settled),
            lambda: end_to_end(count, floor.put_out, floor.newly_settled),
        )


@contextlib.asynccontextmanager
async def in_two_processes(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Ours and the floor with a dispatcher beside; the other implementation has all in one process."""
    count = place.scale(3_000, 1_000)
    async with AsyncExitStack() as stack:
        ports = [stack.enter_context(receiving()) for _ in range(3)]
        ours = await stack.enter_async_context(sending_on(place.url(engine), ports[0]))
        bare = await stack.enter_async_context(minimal_on(place.url(engine), ports[1]))
        floor = await stack.enter_async_context(inserting_on(place.url(engine), ports[2]))

        async def arrived(port: int) -> int:
            return (await seen(port)).count

        yield Ways(
            lambda: end_to_end(count, ours, partial(arrived, ports[0])),
            lambda: end_to_end(count, bare.put_out, bare.newly_settled),
            lambda: end_to_end(count, floor, partial(arrived, ports[2])),
        )


@contextlib.asynccontextmanager
async def latency_in_two(place: Place, engine: str) -> AsyncIterator[Ways]:
    async def limit() -> float:
        return LATENCY_MS_MAX

    count = place.scale(400, 200)
    with receiving() as port:
        async with sending_on(place.url(engine), port) as put_out:
            yield Ways(lambda: steadily(count, put_out, port), limit)


async def dispatch(kind: str, url: str, port: int) -> None:
    """Deliver what others put out, until the process is ended."""
    if kind == "floor":
        async with floor_on(url, port, claims=True):
            freeze_gc()
            print("ready", flush=True)
            await asyncio.Event().wait()
    store = await open_store(url, OUTBOX_MODELS.all)
    dispatcher = Dispatcher(store, RawSender(AddressGuard(allow=["127.0.0.1"])), signing=signing)
    freeze_gc()
    print("ready", flush=True)
    await dispatcher.run(asyncio.Event())


def _against_bare(name: str, goal: float, open: Open) -> Workload:
    return Workload(
        name=name, engines=("sqlite full", "postgres"), unit="events/s", goal=Goal(goal),
        other_name="loop for speed alone, table of its own", floor_name=FLOOR,
        floor_goal=Goal(0.8), open=open,
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
        runner.run(dispatch(sys.argv[1], sys.argv[2], int(sys.argv[3])))
