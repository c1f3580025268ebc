"""The next action of a run, and the changes of each event: pure rules over the stored run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import ForbiddenError, InvalidError, RetryLaterError
from holdfast.kit.runs.models import RunFields, StepSummary
from holdfast.kit.runs.workflow import Step, StepDefinition, StepWaits
from holdfast.outside_text import clean_text

LOSSES_MAX: Final = 10
OUTPUT_BYTES_MAX: Final = 900_000
INPUT_BYTES_MAX: Final = 64 * 1024
RESULT_BYTES_MAX: Final = 64 * 1024
SUMMARY_BYTES_MAX: Final = 1024
ERROR_CHARACTERS_MAX: Final = 1_000


class Begin(msgspec.Struct, frozen=True):
    """Begin the step at this position."""

    place: int


class End(msgspec.Struct, frozen=True):
    """End the run."""

    status: Literal["completed", "failed", "cancelled"]
    error: str | None = None


class StepCompleted(msgspec.Struct, frozen=True):
    """A step completed."""

    output: Any
    state: dict[str, Any]


class StepFailed(msgspec.Struct, frozen=True):
    """A step raised; `after_s` is the wait it asked for; `again` is False where no retry can help."""

    error: str
    again: bool = True
    after_s: float | None = None


class StepWaiting(msgspec.Struct, frozen=True):
    """A step can't continue yet."""

    after_s: float | None


Outcome = StepCompleted | StepFailed | StepWaiting


def next_action(run: RunFields, now: datetime) -> Begin | End:
    """The first incomplete step, unless the run was cancelled, is out of time or keeps losing its worker."""
    if run.cancel_requested_at is not None:
        return End("cancelled", run.cancel_reason)
    place = next((n for n, step in enumerate(run.steps) if step.status != "completed"), None)
    if place is None:
        return End("completed")
    if run.deadline_at is not None and run.deadline_at <= now:
        return End("failed", "the run took longer than its time limit")
    step = run.steps[place]
    if losses_without_progress(run, step) >= LOSSES_MAX:
        return End("failed", f"{step.name} lost its worker {LOSSES_MAX} times without progress")
    return Begin(place)


def losses_without_progress(run: RunFields, step: StepSummary) -> int:
    """How many workers a step has lost since it last recorded progress."""
    known = run.progress is not None and run.progress.step == step.name
    return step.attempts - step.failures - (run.progress.losses if run.progress and known else 0)


def check_output(output: Any, state: dict[str, Any]) -> Outcome:
    """Output and state as JSON values, or a failure that no retry can fix."""
    try:
        finished = StepCompleted(msgspec.to_builtins(output), msgspec.to_builtins(state))
        size = len(msgspec.json.encode(finished.output))
    except (TypeError, ValueError) as fault:
        return StepFailed(_error_text("the output can't be stored", fault), again=False)
    if size > OUTPUT_BYTES_MAX:
        return StepFailed(
            f"an output has at most {OUTPUT_BYTES_MAX:,} bytes; this one has {size:,}", again=False
        )
    return finished


def _error_text(what: str, fault: BaseException) -> str:
    return clean_text(f"{what}: {fault}", characters_max=ERROR_CHARACTERS_MAX)


def classify_error(fault: BaseException) -> Outcome:
    """Whether an error of a step is worth a retry."""
    if isinstance(fault, StepWaits):
        return StepWaiting(fault.after_s)
    text = _error_text(type(fault).__name__, fault)
    if isinstance(fault, RetryLaterError):
        return StepFailed(text, after_s=fault.after_s)
    return StepFailed(text, again=not isinstance(fault, (InvalidError, ForbiddenError)))


def retry_after_s(failed: StepFailed, failures: int, *, plan: StepDefinition) -> float | None:
    """Seconds until the next attempt, or None when there is none."""
    if not failed.again or failures > plan.retries:
        return None
    wanted = plan.back_off.wait_s(failures)
    return wanted if failed.after_s is None else max(wanted, failed.after_s)


def drop_if_large(value: Any, bytes_max: int) -> Any:
    """The value, or None where it is too large to store here."""
    return value if len(msgspec.json.encode(value)) <= bytes_max else None


Changes = dict[str, Any]


def begin_step(summary: StepSummary, *, input: Any, now: datetime) -> Changes:
    return {
        "status": "running", "input": drop_if_large(input, INPUT_BYTES_MAX), "attempts": summary.attempts + 1,
        "started_at": summary.started_at or now,
    }  # fmt: skip


def complete_step(summary: StepSummary, outcome: StepCompleted, *, step: Step, now: datetime) -> Changes:
    return _ended(summary, step=step, now=now) | {
        "status": "completed", "output": outcome.output, "error": None,
    }  # fmt: skip


def fail_step(
    summary: StepSummary, outcome: StepFailed, *, step: Step, now: datetime, again: bool
) -> Changes:
    changes = {"error": outcome.error, "failures": summary.failures + 1}
    if again:
        return changes | {"status": "pending", "tokens_used": _tokens(summary, step)}
    return changes | _ended(summary, step=step, now=now) | {"status": "failed"}


def reset_attempt(summary: StepSummary, *, forget: bool = True) -> Changes:
    """The step waits for another attempt; with `forget` the present one does not count."""
    return {"status": "pending", "attempts": summary.attempts - forget}


def update_summary(summary: StepSummary, changes: Mapping[str, Any]) -> StepSummary:
    """The summary with a step's changes, large values left out."""
    small = dict(changes)
    if "output" in small:
        small["output_bytes"] = len(msgspec.json.encode(small["output"]))
    for name in ("input", "output"):
        if name in small:
            small[name] = drop_if_large(small[name], SUMMARY_BYTES_MAX)
    return msgspec.structs.replace(summary, **small)


def release_claim(run: RunFields, *, due_at: datetime | None) -> Changes:
    """Release the claim: the new fence refuses writes that this holder still has in flight."""
    return {"due_at": due_at, "held_by": "", "fence": run.fence + 1}


def end_run(run: RunFields, end: End, *, now: datetime) -> Changes:
    """The last change of the run."""
    return release_claim(run, due_at=None) | {
        "status": end.status, "error": end.error, "current_step": None, "completed_at": now,
        "duration_ms": _ms(run.started_at or now, now), "updated_at": now,
    }  # fmt: skip


def requeue_run(run: RunFields, *, now: datetime) -> Changes:
    """Make a failed run due again with its full time limit; completed steps stay completed."""
    return release_claim(run, due_at=now) | {
        "status": "pending", "error": None, "started_at": None, "completed_at": None, "duration_ms": None,
        "deadline_at": None, "progress": None, "updated_at": now,
    }  # fmt: skip


def reset_step() -> Changes:
    """The step as if it had never begun, except for its token usage and last error."""
    return {
        "status": "pending", "attempts": 0, "failures": 0, "started_at": None, "completed_at": None,
        "duration_ms": None,
    }  # fmt: skip


def _ended(summary: StepSummary, *, step: Step, now: datetime) -> Changes:
    started = summary.started_at or now
    return {"completed_at": now, "duration_ms": _ms(started, now), "tokens_used": _tokens(summary, step)}


def _tokens(summary: StepSummary, step: Step) -> Any:
    used = step.tokens if summary.tokens_used is None else summary.tokens_used + step.tokens
    return used if used.input or used.output else None


def _ms(start: datetime, end: datetime) -> int:
    return max(0, (end - start) // timedelta(milliseconds=1))
