"""Runs: steps in order, each committed once with all that belongs to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import msgspec
import pytest

from holdfast.errors import AlreadyExistsError, InvalidError, LeaseLostError, NotFoundError
from holdfast.kit.checkpoints import Checkpoints
from holdfast.kit.runs import (
    KIT,
    RUN_CLAIM,
    RUN_LIFE,
    STEP_LIFE,
    BackOff,
    Kinds,
    Moved,
    RunDocument,
    RunFields,
    Runner,
    Runs,
    Step,
    StepFields,
    StepSummary,
    StepWaits,
    Tokens,
    Workflow,
)
from holdfast.model import Document, Index, Stamped, document
from holdfast.store import Fence, Increment, Store, Transaction, create, patch, upsert
from holdfast.testing import ManualClock, settle
from tests.kit.eventually import ended, until

SOON = BackOff(first_s=0.01)


@document("results/{id}", tenant="tenant_id")
class Result(Document):
    id: str
    tenant_id: str = "acme"
    text: str = ""
    count: int = 1


class OwnSummary(StepSummary, rename="camel", kw_only=True):
    name: str = msgspec.field(name="agent")


@document("own_runs/{id}", id=Stamped("run"), tenant="tenant_id", lifecycle=RUN_LIFE, claim=RUN_CLAIM)
class OwnRun(RunFields, rename="camel"):
    """A service's run: its own collection, its own fields beside the kit's."""

    repo_id: str
    type: Literal["w", "other"]
    steps: list[OwnSummary] = []  # type: ignore[assignment]
    approval_status: str = "none"


@document("own_runs/{run_id}/steps/{id}", tenant="tenant_id", indexes=[Index("number")], lifecycle=STEP_LIFE)
class OwnStep(StepFields, rename="camel"):
    name: str = msgspec.field(name="agent")


OWN = Kinds(run=OwnRun, step=OwnStep, summary=OwnSummary)
DOCUMENTS = [*KIT.documents, OwnRun, OwnStep, Result]


@contextlib.asynccontextmanager
async def carried(store: Store, *workflows: Workflow, **settings: Any) -> AsyncIterator[Runner]:
    """A worker that carries runs while the block runs."""
    runner, stop = Runner(store.privileged(), workflows, **settings), asyncio.Event()
    working = asyncio.create_task(runner.run(stop))
    try:
        yield runner
    finally:
        stop.set()
        await asyncio.wait_for(working, 20)


def simple(*acts: Callable[[Step], Awaitable[Any]], **settings: Any) -> Workflow:
    workflow = Workflow("w")
    for number, act in enumerate(acts, 1):
        workflow.step(name=f"s{number}", **({"back_off": SOON} | settings))(act)
    return workflow


async def one(step: Step) -> dict[str, int]:
    step.state["seen"] = [*step.state.get("seen", []), step.name]
    return {"n": step.input["n"] + 1}


async def test_steps_run_in_order_each_on_what_the_one_before_gave(live_store: Store) -> None:
    workflow, acme = simple(one, one, one), live_store.tenant("acme")
    runs = Runs(acme)
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow, input={"n": 1})).id)
    assert (run.status, run.result, run.error) == ("completed", {"n": 4}, None)
    steps = await runs.steps(run.id)
    assert [(s.name, s.status, s.input, s.output, s.attempts) for s in steps] == [
        ("s1", "completed", {"n": 1}, {"n": 2}, 1),
        ("s2", "completed", {"n": 2}, {"n": 3}, 1),
        ("s3", "completed", {"n": 3}, {"n": 4}, 1),
    ]
    assert [(s.id, s.status, s.output) for s in run.steps] == [(s.id, s.status, s.output) for s in steps]
    latest = await Checkpoints(acme).latest(run.id)
    assert latest is not None
    assert (latest.number, latest.step_id, latest.state) == (3, steps[-1].id, {"seen": ["s1", "s2", "s3"]})
    assert (run.due_at, run.held_by, run.current_step) == (None, "", None)


async def test_a_large_output_is_in_its_step_alone_and_reaches_the_next(live_store: Store) -> None:
    async def large(step: Step) -> str:
        return "x" * 500_000

    async def measure(step: Step) -> int:
        return len(step.input)

    workflow = simple(large, measure)
    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert run.result == 500_000
    assert (run.steps[0].output, run.steps[0].output_bytes) == (None, 500_002)
    assert (await runs.steps(run.id))[0].output == "x" * 500_000


async def test_a_failing_step_is_tried_three_times_more_and_then_ends_the_run(live_store: Store) -> None:
    attempts: list[int] = []

    async def broken(step: Step) -> None:
        attempts.append(step.attempt)
        step.state["leak"] = True
        step.add(create(Result(id=f"leak-{step.attempt}")))
        raise ZeroDivisionError("no")

    workflow = simple(one, broken, one)
    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow, input={"n": 1})).id)
    assert attempts == [1, 2, 3, 4]
    assert (run.status, run.error) == ("failed", "s2: ZeroDivisionError: no")
    assert [step.status for step in run.steps] == ["completed", "failed", "skipped"]
    assert [s.status for s in await runs.steps(run.id)] == ["completed", "failed", "skipped"]
    assert await live_store.tenant("acme").get(Result, "leak-1") is None


async def test_a_step_that_recovers_goes_on_from_an_untouched_state(live_store: Store) -> None:
    states: list[dict[str, Any]] = []

    async def flaky(step: Step) -> str:
        states.append(dict(step.state))
        step.state["touched"] = True
        if step.attempt < 3:
            raise RuntimeError
        return "at last"

    workflow = simple(one, flaky)
    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow, input={"n": 1})).id)
    assert run.status == "completed"
    assert states == [{"seen": ["s1"]}] * 3
    assert (run.steps[1].attempts, run.steps[1].failures) == (3, 2)


async def test_an_error_that_no_retry_can_mend_ends_the_run_at_once(live_store: Store) -> None:
    async def refused(step: Step) -> None:
        raise InvalidError("bad input")

    workflow = simple(refused)
    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert (run.status, run.steps[0].attempts) == ("failed", 1)


async def test_a_step_over_its_time_is_stopped_and_counts_as_failed(live_store: Store) -> None:
    stopped = asyncio.Event()

    async def hangs(step: Step) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    workflow = simple(hangs, limit_s=0.05, retries=0)
    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert (run.status, run.error) == ("failed", "s1: s1 took longer than 0.05 s")
    assert stopped.is_set()


async def test_a_run_over_its_time_fails_before_its_next_step(live_store: Store) -> None:
    workflow = Workflow("w", limit_s=0.2)

    @workflow.step()
    async def slow(step: Step) -> None:
        await asyncio.Event().wait()

    runs = Runs(live_store.tenant("acme"))
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert (run.status, run.error) == ("failed", "the run took longer than its time limit")


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


async def test_what_a_step_writes_lands_with_its_checkpoint_or_not_at_all(live_store: Store) -> None:
    acme = live_store.tenant("acme")
    await acme.commit(create(Result(id="taken")))

    async def writes(step: Step) -> str:
        step.add(create(Result(id=f"good-{step.attempt}")))
        step.add(create(Result(id="taken" if step.attempt == 1 else "free")))
        return "written"

    workflow, runs = simple(writes), Runs(acme)
    async with carried(live_store, workflow):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert run.status == "completed"
    assert (run.steps[0].failures, run.steps[0].attempts) == (1, 2)
    assert [r is not None for r in await acme.get_many(Result, ["good-1", "good-2", "free"])] == [
        False,
        True,
        True,
    ]
    assert len(await Checkpoints(acme).history(run.id)) == 1


async def test_joins_add_to_the_commit_of_each_step_and_see_its_tokens(live_store: Store) -> None:
    async def talks(step: Step) -> str:
        step.use(Tokens(100, 20))
        if step.attempt == 1:
            raise RuntimeError("tokens of a failed try are used as well")
        return "ok"

    async def meter(transaction: Transaction, moved: Moved) -> None:
        if moved.step is not None and moved.step.status == "completed":
            assert moved.step.tokens_used is not None
            used = moved.step.tokens_used.input
            transaction.write(
                upsert(Result(id="used", count=used), changes={"count": Increment(used)}),
                create(Result(id=f"fact-{moved.step.id}")),
            )

    workflow, acme = simple(talks, talks), live_store.tenant("acme")
    runs = Runs(acme)
    async with carried(live_store, workflow, joins=[meter]):
        run = await ended(runs, (await runs.start(workflow)).id)
    assert run.tokens == Tokens(400, 80)
    used = await acme.get(Result, "used")
    assert used is not None
    assert used.doc.count == 400


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


async def test_the_start_of_a_run_can_be_part_of_another_commit(kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    runs = Runs(acme)
    await acme.commit(create(Result(id="taken")))
    run, writes = runs.writes_start(simple(one))
    with pytest.raises(AlreadyExistsError):
        await acme.commit(create(Result(id="taken")), *writes)
    assert await runs.get(run.id) is None
    assert await runs.steps(run.id) == []


async def test_a_run_is_due_only_after_its_delay(kit_store: Store, clock: ManualClock) -> None:
    runs = Runs(kit_store.tenant("acme"))
    await runs.start(simple(one), delay_s=30)
    assert await kit_store.privileged().claim_due(RunDocument, limit=1, lease_s=1) == []
    await clock.advance(30)
    assert len(await kit_store.privileged().claim_due(RunDocument, limit=1, lease_s=1)) == 1


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


async def test_a_run_of_an_unknown_workflow_is_left_to_others(live_store: Store) -> None:
    known, unknown = simple(one), Workflow("unknown")
    unknown.step(name="s")(one)
    runs = Runs(live_store.tenant("acme"))
    left = await runs.start(unknown, input={"n": 1})
    async with carried(live_store, known) as runner:
        await ended(runs, (await runs.start(known, input={"n": 1})).id)
        await until(lambda: runner.status().held == 0)
    found = await runs.get(left.id)
    assert found is not None
    assert (found.held_by, found.steps[0].status) == ("", "pending")


async def test_many_runs_go_on_at_once_and_a_crowded_tenant_delays_no_other(live_store: Store) -> None:
    together = asyncio.Barrier(20)

    async def meets(step: Step) -> str:
        await together.wait()
        return "met"

    workflow = simple(meets)
    crowd, small = Runs(live_store.tenant("crowd")), Runs(live_store.tenant("small"))
    many = [await crowd.start(workflow) for _ in range(38)]
    few = [await small.start(workflow) for _ in range(2)]
    async with carried(live_store, workflow, at_once=20):
        done = [await ended(small, run.id) for run in few]
        done += [await ended(crowd, run.id) for run in many]
    assert {run.status for run in done} == {"completed"}
    first = min(run.completed_at for run in done[2:] if run.completed_at is not None)
    assert all(run.started_at is not None and run.started_at <= first for run in done[:2])


async def test_a_service_keeps_runs_under_its_own_names_with_its_own_fields(live_store: Store) -> None:
    async def asks(step: Step) -> str:
        assert isinstance(step.run, OwnRun)
        step.change(approval_status="pending")
        return step.run.repo_id

    workflow, acme = simple(asks), live_store.tenant("acme")
    runs = Runs(acme, kinds=OWN)
    async with carried(live_store, workflow, kinds=OWN):
        run = await ended(runs, (await runs.start(workflow, fields={"repo_id": "gh-repo-1"})).id)
    assert isinstance(run, OwnRun)
    assert (run.status, run.result, run.approval_status) == ("completed", "gh-repo-1", "pending")
    stored = msgspec.to_builtins(run)
    assert stored["steps"][0]["agent"] == "s1"
    assert msgspec.to_builtins((await runs.steps(run.id))[0])["agent"] == "s1"


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
