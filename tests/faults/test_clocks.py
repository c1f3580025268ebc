"""Processes whose machines' clocks differ, or jump: nothing is done twice, fails or goes silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from aiohttp import web

from holdfast.kit.outbox import BreakerPolicy, Delivery, Endpoint, Event, Outbox
from holdfast.kit.runs import RunDocument, Runs, Step
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.store import Query, Store, create
from tests.faults.clock_worker import CRON, STEPS, opened, workflow
from tests.faults.controlled_process import ControlledProcess, run_processes

WORKER = "tests.faults.clock_worker"
HOUR_S = 3_600.0
EVENTS, RUNS, SLOTS = 60, 16, 20
RECEIVE_S = 0.05
# How far the second process's clock is off when it starts, and what both are set to while they work.
CASES = {
    "90 s apart": (90.0, None),
    "an hour apart": (HOUR_S, None),
    "set an hour ahead": (0.0, HOUR_S),
    "set an hour back": (0.0, -HOUR_S),
}

pytestmark = [
    pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True),
    pytest.mark.parametrize(("shift_s", "set_to_s"), CASES.values(), ids=CASES.keys()),
]


@contextlib.asynccontextmanager
async def _pair(url: str, role: str, shift_s: float) -> AsyncIterator[list[ControlledProcess]]:
    orders = [{"url": url, "me": name, "shift_s": shift} for name, shift in (("a", 0.0), ("b", shift_s))]
    async with run_processes(WORKER, role, *orders) as pair:
        for one in pair:
            await one.hear_until("ready")
        yield pair


async def _finish(pair: list[ControlledProcess]) -> list[str]:
    """What both said until they were told to stop."""
    for one in pair:
        one.say("stop")
    said = await asyncio.gather(*(one.hear_until("over") for one in pair))
    return [line for lines in said for line in lines]


@contextlib.asynccontextmanager
async def _receiver() -> AsyncIterator[tuple[str, Counter[str]]]:
    received = Counter[str]()

    async def receive(request: web.Request) -> web.Response:
        received[request.headers["webhook-id"]] += 1
        await asyncio.sleep(RECEIVE_S)
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", received
    finally:
        await runner.cleanup()


async def _until(store: Store, query: Query[Delivery] | Query[RunDocument], count: int) -> None:
    async with asyncio.timeout(60):
        while await store.tenant("-").count(query) < count:  # noqa: ASYNC110 - other processes, no signal
            await asyncio.sleep(0.05)


async def test_every_event_is_sent_once(url: str, shift_s: float, set_to_s: float | None) -> None:
    async with opened(url) as store, _receiver() as (address, received):
        await store.migrate()
        home, now = store.tenant("-"), store.clock.now()
        ends = [
            Endpoint(
                id=f"ep-{n}", url=address, created_at=now, concurrency=2, breaker=BreakerPolicy(failures=999)
            )
            for n in range(3)
        ]  # fmt: skip
        await home.commit(*(create(one) for one in ends))
        outbox = Outbox(home)
        for n in range(EVENTS):
            await outbox.send(Event(id=f"evt-{n:04}", type="thing.made", body=b"{}"), [ends[n % 3]])
        delivered = Query(Delivery).where("status", "in", ["delivered"]).order_by("-created_at")
        async with _pair(url, "dispatch", shift_s) as pair:
            await _until(store, delivered, EVENTS // 4)
            if set_to_s is not None:
                pair[1].say(f"set {set_to_s}")
            await _until(store, delivered, EVENTS)
            await _finish(pair)
    assert set(received.values()) == {1}
    assert len(received) == EVENTS


async def test_every_step_runs_once_and_no_run_fails(
    url: str, shift_s: float, set_to_s: float | None
) -> None:
    async def nothing(step: Step) -> None: ...

    async with opened(url) as store:
        await store.migrate()
        runs = Runs(store.tenant("-"))
        for _ in range(RUNS):
            await runs.start(workflow(nothing))
        completed = Query(RunDocument).where("status", "==", "completed").order_by("-created_at")
        async with _pair(url, "run_steps", shift_s) as pair:
            await _until(store, completed, RUNS // 4)
            if set_to_s is not None:
                pair[1].say(f"set {set_to_s}")
            await _until(store, completed, RUNS)
            said = await _finish(pair)
    done = Counter(line for line in said if line.startswith("did "))
    assert set(done.values()) == {1}
    assert len(done) == RUNS * len(STEPS)


async def test_every_slot_runs_once_in_its_time(url: str, shift_s: float, set_to_s: float | None) -> None:
    async with opened(url) as store:
        await store.migrate()
        first = store.clock.now().replace(second=0, microsecond=0) - timedelta(minutes=SLOTS - 1)
        schedule = Schedule(
            tenant_id="-", name="minutely", cron=CRON, zone="UTC", missed="all", slot_at=first, next_at=first
        )
        await store.privileged().commit(create(schedule))
        async with _pair(url, "run_slots", shift_s) as pair:
            if set_to_s is not None:
                pair[1].say(f"set {set_to_s}")
            async with asyncio.timeout(120):
                while await _next_at(store) <= store.clock.now() or await _done(store) < SLOTS:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            # Both have looked again since the last slot that is due.
            await asyncio.sleep(1)
            said = await _finish(pair)
            now, next_at = store.clock.now(), await _next_at(store)
    slots = [datetime.fromisoformat(line.split()[1]) for line in said if line.startswith("slot ")]
    assert len(slots) == len(set(slots)) >= SLOTS
    assert max(slots) <= now
    assert now - timedelta(seconds=60) < next_at <= now + timedelta(seconds=60)


async def _done(store: Store) -> int:
    return sum([one.doc.status == "done" async for one in store.privileged().scan(Query(SlotRun))])


async def _next_at(store: Store) -> datetime:
    found = await store.privileged().tenant("-").get(Schedule, "-_minutely")
    assert found is not None
    assert found.doc.next_at is not None
    return found.doc.next_at
