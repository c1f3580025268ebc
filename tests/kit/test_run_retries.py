"""Runs that failed and are let go on: from the step that did, once, as their declaration allows."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, IllegalMoveError, InvalidError, LeaseLostError, NotFoundError
from holdfast.kit.checkpoints import CheckpointDocument, Checkpoints
from holdfast.kit.runs import KIT, RunDocument, RunFields, RunModels, Runs, Step, TransitionResult, Workflow
from holdfast.kit.runs.decision import LOSSES_MAX
from holdfast.kit.runs.models import StepProgress
from holdfast.store import Fence, Increment, Store, Transaction, delete, patch, upsert
from tests.kit.eventually import ended
from tests.kit.run_fixture import OwnRun, OwnStep, OwnSummary, Result, carried, one, simple

OWN = RunModels(run=OwnRun, step=OwnStep, summary=OwnSummary)
DOCUMENTS = [*KIT.documents, OwnRun, OwnStep, Result]


class Bridge:
    """A step that fails until it is mended, between two that count how often they are done."""

    def __init__(self) -> None:
        self.mended = False
        self.done: list[str] = []

    def workflow(self) -> Workflow:
        return simple(self.approach, self.cross, self.arrive, retries=1)

    async def approach(self, step: Step) -> dict[str, int]:
        self.done.append("approach")
        return await one(step)

    async def cross(self, step: Step) -> dict[str, int]:
        if not self.mended:
            raise ValueError("the bridge is out")
        self.done.append("cross")
        return await one(step)

    async def arrive(self, step: Step) -> dict[str, int]:
        self.done.append("arrive")
        return await one(step)


async def _failed(store: Store, bridge: Bridge) -> RunFields:
    runs = Runs(store.tenant("acme"))
    async with carried(store, bridge.workflow()):
        run = await ended(runs, (await runs.start(bridge.workflow(), input={"n": 1})).id)
    assert (run.status, [step.status for step in run.steps]) == ("failed", ["completed", "failed", "skipped"])
    return run


async def test_a_run_that_failed_goes_on_from_the_step_that_did(live_store: Store) -> None:
    bridge, runs = Bridge(), Runs(live_store.tenant("acme"))
    before = await _failed(live_store, bridge)
    # Every go has all tries: it fails as often as the first time.
    for _ in range(2):
        assert await runs.retry(before.id) == "pending"
        async with carried(live_store, bridge.workflow()):
            again = await ended(runs, before.id)
        assert (again.status, again.error, again.steps[1].failures) == ("failed", before.error, 2)
    bridge.mended = True
    assert await runs.retry(before.id) == "pending"
    async with carried(live_store, bridge.workflow()):
        run = await ended(runs, before.id)
    assert (run.status, run.error, run.result) == ("completed", None, {"n": 4})
    assert bridge.done == ["approach", "cross", "arrive"], "what was done is not done again"
    assert [step.status for step in run.steps] == ["completed"] * 3
    last = await Checkpoints(live_store.tenant("acme")).latest(run.id)
    assert last is not None
    assert last.state == {"seen": ["s1", "s2", "s3"]}


async def test_a_retried_run_has_its_whole_time_and_keeps_its_checkpoint(live_store: Store) -> None:
    runs = Runs(live_store.tenant("acme"))
    before = await _failed(live_store, Bridge())
    checkpoints = Checkpoints(live_store.tenant("acme"))
    retired = await checkpoints.latest(before.id)
    assert retired is not None
    assert retired.expires_at is not None
    await runs.retry(before.id)
    run, kept = await runs.get(before.id), await checkpoints.latest(before.id)
    assert run is not None
    assert kept is not None
    assert kept.expires_at is None
    assert (run.status, run.deadline_at, run.started_at, run.completed_at) == ("pending", None, None, None)
    assert [step.status for step in await runs.steps(run.id)] == ["completed", "pending", "pending"]


async def test_whoever_held_a_run_before_it_was_retried_can_not_write_it(live_store: Store) -> None:
    runs, acme = Runs(live_store.tenant("acme")), live_store.tenant("acme")
    before = await _failed(live_store, Bridge())
    await runs.retry(before.id)
    late = patch(RunDocument, before.id, changes={"result": "late"}, expect=Fence(before.fence))
    with pytest.raises(LeaseLostError):
        await acme.commit(late)


async def test_of_many_who_retry_a_run_at_once_one_does(live_store: Store) -> None:
    acme = live_store.tenant("acme")

    async def count(transaction: Transaction, moved: TransitionResult) -> None:
        assert moved.run.status == "pending"
        transaction.write(upsert(Result(id="retried"), {"count": Increment(1)}))

    runs = Runs(acme, joins=[count])
    before = await _failed(live_store, Bridge())
    assert await asyncio.gather(*(runs.retry(before.id) for _ in range(5))) == ["pending"] * 5
    run, counted = await runs.get(before.id), await acme.get(Result, "retried")
    assert run is not None
    assert counted is not None
    assert (run.fence, counted.doc.count) == (before.fence + 1, 1)


async def test_what_did_not_fail_is_left_as_it_is(live_store: Store) -> None:
    runs = Runs(live_store.tenant("acme"))
    run = await runs.start(simple(one), input={"n": 1})
    assert await runs.retry(run.id) == "pending"
    await runs.cancel(run.id)
    over = await runs.get(run.id)
    assert await runs.retry(run.id) == "cancelled"
    assert await runs.get(run.id) == over
    with pytest.raises(NotFoundError):
        await runs.retry("run-none")


async def test_a_run_whose_checkpoint_was_removed_is_not_retried(live_store: Store) -> None:
    acme = live_store.tenant("acme")
    before = await _failed(live_store, Bridge())
    last = await Checkpoints(acme).latest(before.id)
    assert last is not None
    await acme.commit(delete(CheckpointDocument, last.checkpoint_id))
    with pytest.raises(ConflictError, match="start another"):
        await Runs(acme).retry(before.id)
    assert await Runs(acme).get(before.id) == before


async def test_runs_that_declare_no_such_move_end_for_good(live_store: Store) -> None:
    acme, bridge = live_store.tenant("acme"), Bridge()
    runs = Runs(acme, models=OWN)
    async with carried(live_store, bridge.workflow(), models=OWN):
        started = await runs.start(bridge.workflow(), input={"n": 1}, fields={"repo_id": "r"})
        run = await ended(runs, started.id)
    assert (run.status, runs.retriable, Runs(acme).retriable) == ("failed", False, True)
    with pytest.raises(InvalidError, match="can't be retried"):
        await runs.retry(run.id)
    with pytest.raises(IllegalMoveError):
        await acme.commit(patch(OwnRun, run.id, changes={"status": "pending"}))


async def _with_losses(store: Store, run_id: str, count: int = LOSSES_MAX) -> None:
    """Leave the run as so many workers would that were killed during its first step."""
    runs = Runs(store.tenant("acme"))
    run = await runs.get(run_id)
    assert run is not None
    run.steps[0].attempts = count
    await store.tenant("acme").commit(patch(RunDocument, run_id, changes={"steps": run.steps}))


async def test_a_run_that_lost_ten_workers_without_progress_fails_and_can_be_retried(
    live_store: Store,
) -> None:
    runs, workflow = Runs(live_store.tenant("acme")), simple(one)
    run_id = (await runs.start(workflow, input={"n": 1})).id
    await _with_losses(live_store, run_id)
    async with carried(live_store, workflow):
        failed = await ended(runs, run_id)
    assert (failed.status, failed.error) == ("failed", "s1 lost its worker 10 times without progress")
    assert await runs.retry(run_id) == "pending"
    async with carried(live_store, workflow):
        assert (await ended(runs, run_id)).status == "completed"


async def test_a_step_records_its_progress_under_the_claim(live_store: Store) -> None:
    runs = Runs(live_store.tenant("acme"))

    held: list[Step] = []

    async def advance(step: Step) -> None:
        held.append(step)
        await live_store.tenant("acme").commit(step.progress())

    workflow = simple(advance)
    run_id = (await runs.start(workflow, input={})).id
    await _with_losses(live_store, run_id, LOSSES_MAX - 1)
    async with carried(live_store, workflow):
        run = await ended(runs, run_id)
    assert (run.status, run.progress) == ("completed", StepProgress("s1", LOSSES_MAX))
    with pytest.raises(LeaseLostError):
        await live_store.tenant("acme").commit(held[0].progress())
