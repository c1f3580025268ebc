"""Transitions of a run as writes: what is committed together when a step or a run ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.kit.runs.decision import Changes, End, end_run, requeue_run, reset_step, update_summary
from holdfast.kit.runs.models import RunFields, RunModels, StepSummary
from holdfast.model.document import schema_of
from holdfast.store.commit import Expect, Write, patch
from holdfast.store.transaction import Transaction
from holdfast.store.write_rules import apply


class TransitionResult(msgspec.Struct, frozen=True):
    """A run after a commit, and the step that the commit was about, if any."""

    run: RunFields
    step: StepSummary | None


Join = Callable[[Transaction, TransitionResult], Awaitable[None]]


class Transition(msgspec.Struct, frozen=True):
    """Changes to a run and to some of its steps, by position."""

    run: Changes
    steps: dict[int, Changes]
    about: int | None = None

    def apply(self, run: RunFields) -> RunFields:
        new: RunFields = apply(schema_of(type(run)), run, self.run | {"steps": self._summaries(run)})
        return new

    def writes(self, run: RunFields, models: RunModels, expect: Expect) -> list[Write]:
        changes = self.run | {"steps": self._summaries(run)}
        writes = [patch(models.run, run.id, changes=changes, expect=expect)]
        for place, one in self.steps.items():
            writes.append(patch(models.step, run.id, run.steps[place].id, changes=one))
        return writes

    def result(self, run: RunFields) -> TransitionResult:
        after = self.apply(run)
        return TransitionResult(after, None if self.about is None else after.steps[self.about])

    def _summaries(self, run: RunFields) -> list[Any]:
        return [
            update_summary(step, self.steps[place]) if place in self.steps else step
            for place, step in enumerate(run.steps)
        ]


def end_transition(
    run: RunFields, end: End, *, now: datetime, fields: Mapping[str, Any] | None = None
) -> Transition:
    """End the run, and skip every step that has not ended; `fields` change with it."""
    skipped: Changes = {"status": "skipped", "completed_at": now}
    open_steps = {n: skipped for n, step in enumerate(run.steps) if step.status in ("pending", "running")}
    return Transition({**end_run(run, end, now=now), **(fields or {})}, open_steps)


def retry_transition(run: RunFields, *, now: datetime) -> Transition:
    """Make the run due again, and every incomplete step pending."""
    again = {n: reset_step() for n, step in enumerate(run.steps) if step.status in ("failed", "skipped")}
    return Transition(requeue_run(run, now=now), again)
