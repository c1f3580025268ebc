"""Runs: steps in order, each committed once with all that belongs to it, until the end or a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.errors import AlreadyExistsError, InvalidError
from holdfast.kit.checkpoints import Checkpoints
from holdfast.kit.runs import KIT, RunDocument, RunModels, Runs, Step, TokenUsage, TransitionResult, Workflow
from holdfast.store import Increment, Store, Transaction, create, upsert
from holdfast.testing import ManualClock
from tests.kit.eventually import ended
from tests.kit.run_fixture import OwnRun, OwnStep, OwnSummary, Result, carried, one, simple

OWN = RunModels(run=OwnRun, step=OwnStep, summary=OwnSummary)
DOCUMENTS = [*KIT.documents, OwnRun, OwnStep, Result]


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
        step.add_tokens(TokenUsage(100, 20))
        if step.attempt == 1:
            raise RuntimeError("tokens of a failed try are used as well")
        return "ok"

    async def meter(transaction: Transaction, moved: TransitionResult) -> None:
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
    assert run.tokens == TokenUsage(400, 80)
    used = await acme.get(Result, "used")
    assert used is not None
    assert used.doc.count == 400


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


async def test_a_service_keeps_runs_under_its_own_names_with_its_own_fields(live_store: Store) -> None:
    async def asks(step: Step) -> str:
        assert isinstance(step.run, OwnRun)
        step.change(approval_status="pending")
        return step.run.repo_id

    workflow, acme = simple(asks), live_store.tenant("acme")
    runs = Runs(acme, models=OWN)
    async with carried(live_store, workflow, models=OWN):
        run = await ended(runs, (await runs.start(workflow, fields={"repo_id": "gh-repo-1"})).id)
    assert isinstance(run, OwnRun)
    assert (run.status, run.result, run.approval_status) == ("completed", "gh-repo-1", "pending")
    stored = msgspec.to_builtins(run)
    assert stored["steps"][0]["agent"] == "s1"
    assert msgspec.to_builtins((await runs.steps(run.id))[0])["agent"] == "s1"


async def test_waking_and_cancelling_change_a_services_own_fields_too(kit_store: Store) -> None:
    runs = Runs(kit_store.tenant("acme"), models=OWN)
    run = await runs.start(simple(one), fields={"repo_id": "gh-repo-1"})
    assert await runs.wake(run.id, fields={"approval_status": "approved"})
    woken = await runs.get(run.id)
    assert isinstance(woken, OwnRun)
    assert (woken.approval_status, woken.wakes) == ("approved", 1)
    await runs.cancel(run.id, reason="no", fields={"approval_status": "rejected"})
    ended_run = await runs.get(run.id)
    assert isinstance(ended_run, OwnRun)
    assert (ended_run.approval_status, ended_run.status, ended_run.error) == ("rejected", "cancelled", "no")
