"""Who carries runs on: told to stop, cancelled, too late, many at once, each its own kinds."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import DeclarationError, LeaseLostError, NotFoundError
from holdfast.kit.runs import KIT, RunDocument, RunModels, Runner, Runs, Step, StepWaits, Workflow
from holdfast.store import Fence, Store, Transaction, create, patch
from holdfast.testing import ManualClock, settle
from tests.kit.eventually import ended, until
from tests.kit.run_fixture import SOON, OwnRun, OwnStep, OwnSummary, Result, carried, one, simple

DOCUMENTS = [*KIT.documents, OwnRun, OwnStep, Result]


async def test_a_cancel_lets_the_step_finish_and_no_further_one_begin(live_store: Store) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def gate(step: Step) -> dict[str, int]:
        inside.set()
        await go_on.wait()
        return {"n": 1}

    workflow = simple(gate, one)
    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run_id = (await runs.start(workflow)).id
        await inside.wait()
        assert await runs.cancel(run_id, reason="enough") == "running"
        go_on.set()
        run = await ended(runs, run_id)
    assert (run.status, run.error) == ("cancelled", "enough")
    assert [step.status for step in run.steps] == ["completed", "skipped"]


async def test_a_run_that_nobody_holds_is_cancelled_at_once(kit_store: Store) -> None:
    workflow = simple(one)
    runs = Runs(kit_store.tenant("acme"))
    run = await runs.start(workflow)
    assert await runs.cancel(run.id) == "cancelled"
    assert await runs.cancel(run.id) == "cancelled"
    assert await kit_store.privileged().claim_due(RunDocument, limit=1, lease_s=1) == []
    with pytest.raises(NotFoundError):
        await runs.cancel("run-none")
    with pytest.raises(NotFoundError):
        await Runs(kit_store.tenant("beta")).cancel(run.id)


async def test_a_run_waits_for_what_wakes_it(live_store: Store) -> None:
    waiting = asyncio.Event()

    async def approval(step: Step) -> str:
        found = await live_store.tenant("acme").get(Result, "approval")
        if found is None:
            waiting.set()
            raise StepWaits
        return found.doc.text

    workflow, acme = simple(approval), live_store.tenant("acme")
    runs = Runs(acme)

    async def approve(transaction: Transaction) -> None:
        transaction.write(create(Result(id="approval", text="yes")))
        await runs.wake(run_id, transaction)

    async with carried(live_store, workflow):
        run_id = (await runs.start(workflow)).id
        await waiting.wait()
        # The step may not have come to rest yet: a wake-up in between must not be missed.
        await acme.transact(approve)
        run = await ended(runs, run_id)
    assert (run.status, run.result, run.steps[0].failures) == ("completed", "yes", 0)


async def test_waking_an_ended_run_does_nothing(kit_store: Store) -> None:
    runs = Runs(kit_store.tenant("acme"))
    run = await runs.start(simple(one))
    await runs.cancel(run.id)
    await runs.wake(run.id)
    assert await kit_store.privileged().claim_due(RunDocument, limit=1, lease_s=1) == []


async def test_a_worker_told_to_stop_gives_back_what_it_can_not_finish(live_store: Store) -> None:
    inside = asyncio.Event()
    attempts: list[int] = []

    async def hangs_once(step: Step) -> str:
        attempts.append(step.attempt)
        if len(attempts) == 1:
            inside.set()
            await asyncio.Event().wait()
        return "done"

    workflow, runs = simple(one, hangs_once), Runs(live_store.tenant("acme"))
    run_id = (await runs.start(workflow, input={"n": 1})).id
    async with carried(live_store, workflow, stop_s=0.05):
        await inside.wait()
    given_back = await runs.get(run_id)
    assert given_back is not None
    assert (given_back.status, given_back.held_by) == ("running", "")
    assert [step.status for step in given_back.steps] == ["completed", "pending"]
    async with carried(live_store, workflow):
        run = await ended(runs, run_id)
    assert run.status == "completed"
    assert attempts == [1, 1]


async def test_a_worker_that_is_cancelled_while_it_stops_still_gives_back(live_store: Store) -> None:
    inside = asyncio.Event()

    async def hangs(step: Step) -> None:
        inside.set()
        await asyncio.Event().wait()

    workflow, runs = simple(hangs), Runs(live_store.tenant("acme"))
    run_id = (await runs.start(workflow)).id
    stop = asyncio.Event()
    working = asyncio.create_task(Runner(live_store.privileged(), [workflow], stop_s=60).run(stop))
    await inside.wait()
    stop.set()
    await settle()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    run = await runs.get(run_id)
    assert run is not None
    assert (run.held_by, run.steps[0].status, run.steps[0].attempts) == ("", "pending", 0)


async def test_a_worker_told_to_stop_finishes_the_step_and_leaves_the_next(live_store: Store) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def gate(step: Step) -> str:
        inside.set()
        await go_on.wait()
        return "done"

    workflow, runs = simple(gate, one), Runs(live_store.tenant("acme"))
    run_id = (await runs.start(workflow)).id
    stop = asyncio.Event()
    working = asyncio.create_task(Runner(live_store.privileged(), [workflow]).run(stop))
    await inside.wait()
    stop.set()
    go_on.set()
    await working
    run = await runs.get(run_id)
    assert run is not None
    assert [step.status for step in run.steps] == ["completed", "pending"]


async def test_a_run_of_an_unknown_workflow_is_left_to_others_untouched(live_store: Store) -> None:
    known, unknown = simple(one), Workflow("unknown")
    unknown.step(name="s")(one)
    runs = Runs(live_store.tenant("acme"))
    left = await runs.start(unknown, input={"n": 1})
    async with carried(live_store, known) as runner:
        await ended(runs, (await runs.start(known, input={"n": 1})).id)
        await until(lambda: runner.status().held == 0)
        found = await runs.get(left.id)
        assert found is not None
        assert (found.due_at, found.fence) == (left.due_at, 0), "not even claimed, so nothing holds it back"
        async with carried(live_store, unknown):
            assert (await ended(runs, left.id)).status == "completed"
        assert runner.status().claimed == 1


async def test_runs_that_nobody_here_knows_delay_no_timer_of_those_that_are_known(live_store: Store) -> None:
    attempts: list[int] = []

    async def fails_once(step: Step) -> str:
        attempts.append(step.attempt)
        if len(attempts) == 1:
            raise RuntimeError("once")
        return "done"

    unknown, runs = Workflow("unknown"), Runs(live_store.tenant("acme"))
    unknown.step(name="s")(one)
    await runs.start(unknown, input={"n": 1})
    workflow = simple(fails_once)
    async with carried(live_store, workflow, poll_s=600):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert (run.status, attempts) == ("completed", [1, 2])


async def test_one_runner_executes_workflows_of_several_collections(live_store: Store) -> None:
    own = RunModels(run=OwnRun, step=OwnStep, summary=OwnSummary)
    here, there = simple(one), simple(one)
    runner, stop = Runner(live_store.privileged(), [here]), asyncio.Event()
    runner.add([there], models=own)
    kit, others = Runs(live_store.tenant("acme")), Runs(live_store.tenant("acme"), models=own)
    working = asyncio.create_task(runner.run(stop))
    first = await kit.start(here, input={"n": 1})
    second = await others.start(there, input={"n": 5}, fields={"repo_id": "r1"})
    results = [(await ended(kit, first.id)).result, (await ended(others, second.id)).result]
    await until(lambda: runner.idle)
    stop.set()
    await working
    assert results == [{"n": 2}, {"n": 6}]
    assert [runner.status(one).settled for one in (here, there)] == [1, 1]
    with pytest.raises(DeclarationError, match="two workflows are named 'w' in OwnRun"):
        runner.add([simple(one)], models=own)


async def test_a_workflow_that_fills_the_process_leaves_others_their_share(live_store: Store) -> None:
    go_on = asyncio.Event()

    async def hangs(step: Step) -> str:
        await go_on.wait()
        return "done"

    crowd, small = Workflow("crowd"), Workflow("small")
    crowd.step(name="s")(hangs)
    small.step(name="s", back_off=SOON)(one)
    runs = Runs(live_store.tenant("acme"))
    many = [await runs.start(crowd) for _ in range(8)]
    async with carried(live_store, crowd, small, concurrency=4) as runner:
        await until(lambda: runner.status(crowd).held == 3)
        late = await runs.start(small, input={"n": 1})
        assert (await ended(runs, late.id)).status == "completed"
        assert runner.status(crowd).claimed == 3
        go_on.set()
        assert {(await ended(runs, run.id)).status for run in many} == {"completed"}


async def test_a_tenant_that_holds_all_it_may_leaves_room_for_another(live_store: Store) -> None:
    go_on = asyncio.Event()

    async def hangs(step: Step) -> str:
        if step.run.tenant_id == "crowd":
            await go_on.wait()
        return "done"

    workflow = simple(hangs)
    crowd, small = Runs(live_store.tenant("crowd")), Runs(live_store.tenant("small"))
    writes = [write for _ in range(36) for write in crowd.writes_start(workflow)[1]]
    await live_store.tenant("crowd").commit(*writes)
    async with carried(live_store, workflow, concurrency=32) as runner:
        await until(lambda: runner.status().held == 31)
        late = await small.start(workflow)
        assert (await ended(small, late.id)).status == "completed"
        go_on.set()
        await until(lambda: runner.status().settled == 37)


async def test_many_runs_go_on_at_once_and_a_crowded_tenant_delays_no_other(live_store: Store) -> None:
    together = asyncio.Barrier(20)

    async def meets(step: Step) -> str:
        await together.wait()
        return "met"

    workflow = simple(meets)
    crowd, small = Runs(live_store.tenant("crowd")), Runs(live_store.tenant("small"))
    many = [await crowd.start(workflow) for _ in range(38)]
    few = [await small.start(workflow) for _ in range(2)]
    async with carried(live_store, workflow, concurrency=20):
        done = [await ended(small, run.id) for run in few]
        done += [await ended(crowd, run.id) for run in many]
    assert {run.status for run in done} == {"completed"}
    first = min(run.completed_at for run in done[2:] if run.completed_at is not None)
    assert all(run.started_at is not None and run.started_at <= first for run in done[:2])


async def test_whoever_lost_a_run_can_not_write_it(kit_store: Store, clock: ManualClock) -> None:
    runs = Runs(kit_store.tenant("acme"))
    await runs.start(simple(one))
    (old,) = await kit_store.privileged().claim_due(RunDocument, limit=1, lease_s=60, owner="old")
    await clock.advance(60)
    (new,) = await kit_store.privileged().claim_due(RunDocument, limit=1, lease_s=60, owner="new")
    late = Step(old.doc, "s1", input=None, state={}, attempt=1)
    with pytest.raises(LeaseLostError):
        await kit_store.tenant("acme").commit(late.guard(), create(Result(id="late")))
    assert new.fenced == Fence(old.doc.fence + 1)
    with pytest.raises(LeaseLostError):
        await kit_store.tenant("acme").commit(
            patch(RunDocument, old.doc.id, changes={"result": "late"}, expect=old.fenced)
        )
