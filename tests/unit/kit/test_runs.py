"""What a run does next, as rules without a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DeclarationError, ForbiddenError, InvalidError, RetryLaterError
from holdfast.kit.runs import BackOff, RunDocument, Step, StepSummary, StepWaits, TokenUsage, Workflow
from holdfast.kit.runs.decision import (
    LOSSES_MAX,
    SUMMARY_BYTES_MAX,
    Begin,
    End,
    StepCompleted,
    StepFailed,
    StepWaiting,
    check_output,
    classify_error,
    next_action,
    retry_after_s,
    update_summary,
)
from holdfast.kit.runs.models import StepProgress, StepStatus
from holdfast.kit.runs.transitions import end_transition
from holdfast.kit.runs.workflow import STEPS_MAX, StepDefinition
from holdfast.model.limits import DOCUMENT_BYTES_MAX

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def _run(*statuses: StepStatus) -> RunDocument:
    steps = [StepSummary(id=f"s{n}", run_id="run-1", name=f"s{n}", status=s) for n, s in enumerate(statuses)]
    return RunDocument(id="run-1", type="t", status="running", steps=steps, created_at=NOW, updated_at=NOW)


@pytest.mark.parametrize(
    ("statuses", "turn"),
    [
        (("pending", "pending"), Begin(0)),
        (("completed", "pending"), Begin(1)),
        (("completed", "running"), Begin(1)),
        (("completed", "completed"), End("completed")),
    ],
)
def test_the_first_step_that_is_not_completed_is_next(
    statuses: tuple[StepStatus, ...], turn: Begin | End
) -> None:
    assert next_action(_run(*statuses), NOW) == turn


def test_a_cancelled_run_begins_no_step() -> None:
    run = _run("completed", "pending")
    run.cancel_requested_at, run.cancel_reason = NOW, "enough"
    assert next_action(run, NOW) == End("cancelled", "enough")


def test_a_run_over_its_time_begins_no_step_but_a_finished_one_is_completed() -> None:
    run = _run("completed", "pending")
    run.deadline_at = NOW
    assert next_action(run, NOW - timedelta(microseconds=1)) == Begin(1)
    assert isinstance(next_action(run, NOW), End)
    done = _run("completed")
    done.deadline_at = NOW
    assert next_action(done, NOW) == End("completed")


def test_a_step_that_keeps_losing_its_worker_ends_the_run() -> None:
    run = _run("running")
    run.steps[0].attempts, run.steps[0].failures = LOSSES_MAX + 1, 2
    assert next_action(run, NOW) == Begin(0)
    run.steps[0].attempts += 1
    assert next_action(run, NOW) == End("failed", f"s0 lost its worker {LOSSES_MAX} times without progress")


def test_a_step_that_gets_further_with_each_worker_goes_on() -> None:
    run = _run("running")
    run.steps[0].attempts, run.steps[0].failures = 3 * LOSSES_MAX, 2
    run.progress = StepProgress("s0", 2 * LOSSES_MAX)
    assert next_action(run, NOW) == Begin(0)
    run.progress = StepProgress("another", 2 * LOSSES_MAX)
    assert isinstance(next_action(run, NOW), End)


def _plan(retries: int = 3) -> StepDefinition:
    async def act(step: Step) -> None: ...

    return StepDefinition(
        name="s", act=act, retries=retries, limit_s=1.0, back_off=BackOff(first_s=2.0, wait_s_max=5.0)
    )


def test_three_retries_wait_twice_as_long_each_up_to_the_most() -> None:
    failed = StepFailed("x")
    assert [retry_after_s(failed, n, plan=_plan()) for n in (1, 2, 3, 4)] == [2.0, 4.0, 5.0, None]


def test_what_no_retry_can_mend_is_not_tried_again() -> None:
    assert retry_after_s(StepFailed("x", again=False), 1, plan=_plan()) is None


def test_a_step_that_says_when_is_not_tried_sooner() -> None:
    assert retry_after_s(StepFailed("x", after_s=30.0), 1, plan=_plan()) == 30.0
    assert retry_after_s(StepFailed("x", after_s=0.5), 1, plan=_plan()) == 2.0


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (StepWaits(5.0), StepWaiting(5.0)),
        (StepWaits(), StepWaiting(None)),
        (ValueError("bad"), StepFailed("ValueError: bad")),
        (RetryLaterError("busy", after_s=9.0), StepFailed("RetryLaterError: busy", after_s=9.0)),
        (InvalidError("no"), StepFailed("InvalidError: no", again=False)),
        (ForbiddenError("no"), StepFailed("ForbiddenError: no", again=False)),
    ],
)
def test_what_a_step_raises_says_whether_to_try_again(fault: Exception, outcome: object) -> None:
    assert classify_error(fault) == outcome


def test_an_error_text_is_bounded() -> None:
    judged = classify_error(ValueError("x" * 100_000))
    assert isinstance(judged, StepFailed)
    assert len(judged.error) == 1_000


def test_outputs_become_plain_values() -> None:
    judged = check_output(TokenUsage(1, 2), {"at": NOW})
    assert judged == StepCompleted({"input": 1, "output": 2}, {"at": "2026-05-01T12:00:00Z"})


@pytest.mark.parametrize(("output", "state"), [(object(), {}), ("x" * 900_001, {}), (1, {"x": object()})])
def test_what_cannot_be_kept_fails_without_retry(output: object, state: dict[str, object]) -> None:
    judged = check_output(output, state)
    assert isinstance(judged, StepFailed)
    assert judged.again is False


@given(st.integers(0, 3_000))
def test_a_summary_holds_an_output_only_while_it_is_small(length: int) -> None:
    output = "x" * length
    summary = update_summary(StepSummary(id="s", run_id="r", name="s"), {"output": output})
    assert summary.output == (output if length + 2 <= SUMMARY_BYTES_MAX else None)
    assert summary.output_bytes == length + 2


def test_the_largest_run_fits_a_document() -> None:
    filled = StepSummary(
        id="step-100-" + "n" * 100, run_id="run-x" * 6, name="n" * 100, input="x" * 1022, output="x" * 1022,
        error="x" * 1_000, status="completed", started_at=NOW, completed_at=NOW, duration_ms=10**9,
        tokens_used=TokenUsage(10**9, 10**9),
    )  # fmt: skip
    run = _run()
    run.steps = [filled] * STEPS_MAX
    run.input, run.result = "x" * 256 * 1024, "x" * 64 * 1024
    assert len(msgspec.json.encode(run)) < DOCUMENT_BYTES_MAX * 0.75


def test_an_ending_skips_what_had_not_ended_and_leaves_the_rest() -> None:
    run = _run("completed", "running", "pending")
    after = end_transition(run, End("cancelled", "enough"), now=NOW).apply(run)
    assert [step.status for step in after.steps] == ["completed", "skipped", "skipped"]
    assert (after.status, after.error, after.due_at, after.fence) == (
        "cancelled",
        "enough",
        None,
        run.fence + 1,
    )


def test_two_steps_of_one_name_are_refused() -> None:
    workflow = Workflow("w")
    workflow.step(name="a")(_plan().act)
    with pytest.raises(DeclarationError):
        workflow.step(name="a")(_plan().act)


def test_a_step_changes_only_fields_a_service_added() -> None:
    step = Step(_run("running"), "s0", input=None, state={}, attempt=1)
    with pytest.raises(InvalidError):
        step.change(status="completed")
    step.change(approval="pending")
    assert step.changes == {"approval": "pending"}
