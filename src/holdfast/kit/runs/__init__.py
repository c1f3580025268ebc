"""Runs: ordered steps that never run again once committed, whatever happens to their workers.

    pending ──claim──► running ──► completed
       │                  │  └───► failed        a step failed for good, or the time limit passed
       └────► cancelled ◄─┘                      between two steps

A worker claims a run for a minute and renews the claim three times in it. Each step ends in one commit: its
output, the run's summary, the checkpoint to resume from, the step's own writes and what the joins add. Every
commit carries the claim's fencing number, so a worker that lost the run can't write.
"""

from holdfast.backoff import BackOff
from holdfast.kit.runs.models import (
    KIT,
    RETRIED_RUN_LIFE,
    RUN_CLAIM,
    RUN_INDEXES,
    RUN_LIFE,
    STEP_INDEXES,
    STEP_LIFE,
    RunDocument,
    RunFields,
    RunModels,
    StepDocument,
    StepFields,
    StepSummary,
    TokenUsage,
)
from holdfast.kit.runs.runner import Runner, RunnerStatus
from holdfast.kit.runs.runs import Runs
from holdfast.kit.runs.transitions import Join, TransitionResult
from holdfast.kit.runs.workflow import Step, StepWaits, Workflow

__all__ = [
    "KIT",
    "RETRIED_RUN_LIFE",
    "RUN_CLAIM",
    "RUN_INDEXES",
    "RUN_LIFE",
    "STEP_INDEXES",
    "STEP_LIFE",
    "BackOff",
    "Join",
    "RunDocument",
    "RunFields",
    "RunModels",
    "Runner",
    "RunnerStatus",
    "Runs",
    "Step",
    "StepDocument",
    "StepFields",
    "StepSummary",
    "StepWaits",
    "TokenUsage",
    "TransitionResult",
    "Workflow",
]
