"""Runs while their workers are paused and killed: every step is committed once, none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time

import pytest

from holdfast.kit.checkpoints import Checkpoints
from holdfast.kit.runs import RunFields, Runs, Step
from holdfast.store import Store
from tests.faults.controlled_process import ControlledProcess, Order, run_processes
from tests.faults.run_worker import STEPS, TENANT, Effect, carry, finish, four_steps, opened
from tests.kit.eventually import ended

RUNS = int(os.environ.get("HOLDFAST_FAULT_RUNS", "30"))
FIRESTORE_RUNS = int(os.environ.get("HOLDFAST_FAULT_RUNS_FIRESTORE", "6"))
ROUNDS_MAX = 10
LEASE_S = 1.0
WORKER = "tests.faults.run_worker"
LEFT = {"left-1", "left-2"}

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)


async def _nothing(step: Step) -> None: ...


async def test_a_paused_worker_that_lost_its_run_commits_nothing_more(url: str) -> None:
    order = {"url": url, "lease_s": LEASE_S, "stops": 0.0}
    async with opened(url) as store:
        await store.migrate()
        runs = Runs(store.tenant(TENANT))
        run_id = (await runs.start(four_steps(_nothing), input=0)).id
        async with run_processes(WORKER, "gated", order | {"me": "old"}) as (old,):
            await old.hear_until("s2 begins")
            old.pause()
            async with run_processes(WORKER, "steady", order | {"me": "new"}) as (new,):
                run = await ended(runs, run_id, within_s=60)
                new.say("stop")
                assert (await new.end())[-1] == "lost 0 faults 0 None"
            before = await _stored(store, run)
            old.say("go on")
            old.resume()
            assert (await old.end())[-1] == "lost 1 faults 0 None"
        assert await _stored(store, run) == before
        await _assert_whole(store, run)
    assert [effect.worker for effect in before[1]] == ["old", "new", "new", "new"]
    assert [(step.attempts, step.failures) for step in run.steps] == [(1, 0), (2, 0), (1, 0), (1, 0)]


async def test_the_run_of_a_killed_worker_is_found_when_its_claim_is_over(url: str) -> None:
    order = {"url": url, "lease_s": LEASE_S, "me": "old"}
    async with opened(url) as store:
        await store.migrate()
        runs = Runs(store.tenant(TENANT))
        run_id = (await runs.start(four_steps(_nothing), input=0)).id
        async with run_processes(WORKER, "gated", order) as (old,):
            await old.hear_until("s2 begins")
            stop = asyncio.Event()
            workflow = four_steps(lambda step: finish(step, "new"))
            working = asyncio.create_task(carry(store, workflow, order | {"me": "new"}, stop))
            await old.kill()
            killed_s = time.monotonic()
            run = await ended(runs, run_id, within_s=60)
            found_s = time.monotonic() - killed_s
            stop.set()
            assert await working == "lost 0 faults 0 None"
        await _assert_whole(store, run)
    assert [step.attempts for step in run.steps] == [1, 2, 1, 1]
    assert found_s < LEASE_S + 20


async def test_a_killed_workers_runs_are_left_alone_by_those_who_do_not_know_them(url: str) -> None:
    order = {"url": url, "lease_s": LEASE_S, "stops": 0.0}
    left, right = four_steps(_nothing, "left"), four_steps(_nothing, "right")
    async with opened(url) as store:
        await store.migrate()
        runs = Runs(store.tenant(TENANT))
        mine = [(await runs.start(left, input=0)).id for _ in range(3)]
        async with (
            run_processes(WORKER, "gated", order | {"me": "left-1", "workflow": "left"}) as (old,),
            run_processes(WORKER, "steady", order | {"me": "right-1", "workflow": "right"}) as (other,),
        ):
            await old.hear_until("s2 begins")
            await old.kill()
            # Of the same collection: each turn of the other process sees the dead one's runs come due.
            theirs = [(await runs.start(right, input=0)).id for _ in range(3)]
            done = [await ended(runs, run_id, within_s=60) for run_id in theirs]
            await _until_due(store, mine)
            done += [await ended(runs, (await runs.start(right, input=0)).id, within_s=60)]
            waiting = [await runs.get(run_id) for run_id in mine]
            assert {run.held_by for run in waiting if run is not None} <= {"", "left-1"}
            async with run_processes(WORKER, "steady", order | {"me": "left-2", "workflow": "left"}) as (
                new,
            ):
                finished = [await ended(runs, run_id, within_s=60) for run_id in mine]
                new.say("stop")
                assert (await new.end())[-1] == "lost 0 faults 0 None"
            other.say("stop")
            assert (await other.end())[-1] == "lost 0 faults 0 None"
        for run, workers in [*((one, {"right-1"}) for one in done), *((one, LEFT) for one in finished)]:
            await _assert_whole(store, run)
            assert {effect.worker for effect in (await _stored(store, run))[1]} <= workers


async def _until_due(store: Store, run_ids: list[str]) -> None:
    """Return once the leases of the dead are over, and their runs due."""
    async with asyncio.timeout(60):
        while True:
            found = [await Runs(store.tenant(TENANT)).get(run_id) for run_id in run_ids]
            now = store.clock.now()
            if all(one is not None and one.due_at is not None and one.due_at <= now for one in found):
                return
            await asyncio.sleep(0.05)


async def test_runs_survive_workers_that_are_killed_and_paused_at_random(url: str) -> None:
    count = FIRESTORE_RUNS if url.startswith("firestore") else RUNS
    order = {"url": url, "lease_s": LEASE_S, "stops": 0.02}
    async with opened(url) as store:
        await store.migrate()
        runs, workflow = Runs(store.tenant(TENANT)), four_steps(_nothing)
        chaos = asyncio.create_task(_chaos(order))
        begun_again = 0
        try:
            # Chance may spare every step of a few runs; then there are more, until one was hit.
            for _ in range(ROUNDS_MAX):
                started = [(await runs.start(workflow, input=0)).id for _ in range(count)]
                over = [await ended(runs, run_id, within_s=180) for run_id in started]
                for run in over:
                    await _assert_whole(store, run)
                begun_again += sum(step.attempts - 1 for run in over for step in run.steps)
                if begun_again:
                    break
        finally:
            chaos.cancel()
        said = await chaos
    assert not [line for line in said if line.startswith("REDONE")]
    assert begun_again > 0, "no kill and no pause hit a step: the test showed nothing"


async def _chaos(order: Order) -> list[str]:
    """Three workers; one after another is killed and replaced, or stood still for longer than its claim."""
    said: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        workers = [await _worker(stack, order, said) for _ in range(3)]
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                paused = [worker for worker in workers if worker.paused]
                await asyncio.sleep(LEASE_S * 1.3 if paused else random.uniform(0.2, 0.6))
                for worker in paused:
                    worker.resume()
                if random.random() < 0.4:
                    victim = random.randrange(3)
                    await workers[victim].kill()
                    workers[victim] = await _worker(stack, order, said)
    return said


async def _worker(stack: contextlib.AsyncExitStack, order: Order, said: list[str]) -> ControlledProcess:
    me = f"w{random.randrange(10**6)}"
    (worker,) = await stack.enter_async_context(run_processes(WORKER, "steady", order | {"me": me}))

    async def listen() -> None:
        with contextlib.suppress(RuntimeError):
            while True:
                said.append(await worker.hear(within_s=600))

    listening = asyncio.create_task(listen())
    stack.callback(listening.cancel)
    return worker


async def _stored(store: Store, run: RunFields) -> tuple[RunFields | None, list[Effect]]:
    acme = store.tenant(TENANT)
    found = await acme.get_many(Effect, [f"{run.id}-{name}" for name in STEPS])
    return await Runs(acme).get(run.id), [effect.doc for effect in found if effect is not None]


async def _assert_whole(store: Store, run: RunFields) -> None:
    """Each step committed once, with its effect, its state and its checkpoint, by holders in turn."""
    acme = store.tenant(TENANT)
    stored, effects = await _stored(store, run)
    assert stored == run
    assert (run.status, run.result, run.due_at) == ("completed", 4, None)
    steps = await Runs(acme).steps(run.id)
    assert [(step.status, step.output) for step in steps] == [("completed", n) for n in (1, 2, 3, 4)]
    assert len(effects) == 4
    fences = [effect.fence for effect in effects]
    assert fences == sorted(fences)
    history = await Checkpoints(acme).history(run.id)
    assert [(one.number, one.is_latest) for one in history] == [(4, True), (3, False), (2, False), (1, False)]
    assert history[0].state == {name: effect.worker for name, effect in zip(STEPS, effects, strict=True)}
