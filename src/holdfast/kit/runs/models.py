"""Documents of runs: the run itself, bounded so that one read shows it, and one per step."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.kit import NO_TENANT
from holdfast.kit.checkpoints import CHECKPOINT_INDEXES, CheckpointDocument, CheckpointFields
from holdfast.kit.model_checks import check_model
from holdfast.model import SERVICE_ONLY, Claim, Document, Index, Lifecycle, Retention, TimestampId, document

RunStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
StepStatus = Literal["pending", "running", "completed", "failed", "skipped"]

_RUN_MOVES = {"pending": ["running", "cancelled"], "running": ["completed", "failed", "cancelled"]}
# For runs that end for good: to repeat one, start another.
RUN_LIFE = Lifecycle("status", initial=["pending"], moves=_RUN_MOVES)
# For runs that people may retry after a failure, from the failed step.
RETRIED_RUN_LIFE = Lifecycle("status", initial=["pending"], moves={**_RUN_MOVES, "failed": ["pending"]})
# A step that waits or is to be retried is pending; one that a crash or a cancel left is skipped. Steps that
# are not completed become pending again when a run is retried.
STEP_LIFE = Lifecycle(
    "status",
    initial=["pending"],
    moves={
        "pending": ["running", "skipped"],
        "running": ["pending", "completed", "failed", "skipped"],
        "failed": ["pending"],
        "skipped": ["pending"],
    },
)
# The indexes for operators' queries; a service's own runs declare them too.
RUN_INDEXES = (
    Index("-created_at"),
    Index("status", "-created_at"),
    Index("type", "-created_at"),
    Index("type", "status", "-created_at"),
    Index("status", "-created_at", across="tenants"),
    Index("type", "status", "-created_at", across="tenants"),
)
STEP_INDEXES = (Index("number"),)
RUN_CLAIM = Claim(due="due_at", fence="fence", owner="held_by", lane="lane", state=("status", "running"))


def lane_of(workflow: str, tenant_id: str) -> str:
    """The lane in which a run is claimed: a worker claims those of the workflows that it knows."""
    return f"{workflow}:{tenant_id}"


class TokenUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Tokens that language models read and wrote."""

    input: int = 0
    output: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(self.input + other.input, self.output + other.output)


class StepSummary(msgspec.Struct, rename="camel", kw_only=True):
    """A step within its run. Values too large for the run are in the step's document alone."""

    id: str
    run_id: str
    name: str
    status: StepStatus = "pending"
    input: Any = None
    output: Any = None
    output_bytes: int = 0
    error: str | None = None
    attempts: int = 0
    failures: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_ms: int | None = None
    tokens_used: TokenUsage | None = None


class StepFields(Document, rename="camel"):
    """The fields of a step; `attempts` counts starts, `failures` those that ended in an error."""

    id: str
    run_id: str
    tenant_id: str = NO_TENANT
    name: str
    number: int
    status: StepStatus = "pending"
    input: Any = None
    output: Any = None
    error: str | None = None
    attempts: int = 0
    failures: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_ms: int | None = None
    tokens_used: TokenUsage | None = None


class StepProgress(msgspec.Struct, frozen=True, rename="camel"):
    """How often a step had lost its worker when it last recorded progress."""

    step: str
    losses: int


class RunFields(Document, rename="camel"):
    """The fields of a run; declare a subclass for a service's own fields and collection name.

    `due_at`, `fence` and `held_by` are the run's claim: held for a minute, renewed, and released with a new
    fencing number, so that nothing an earlier holder sends can land. `lane` is made of workflow and tenant.
    """

    id: str = ""
    tenant_id: str = NO_TENANT
    type: str
    status: RunStatus = "pending"
    current_step: str | None = None
    steps: list[StepSummary] = []
    input: Any = None
    result: Any = None
    error: str | None = None
    tokens: TokenUsage = TokenUsage()
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    due_at: datetime | None = None
    fence: int = 0
    held_by: str = ""
    lane: str = ""
    wakes: int = 0
    progress: StepProgress | None = None
    deadline_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_ms: int | None = None

    def __post_init__(self) -> None:
        self.lane = self.lane or lane_of(self.type, self.tenant_id)


@document(
    "holdfast_runs/{id}",
    id=TimestampId("run"),
    tenant="tenant_id",
    indexes=RUN_INDEXES,
    lifecycle=RETRIED_RUN_LIFE,
    claim=RUN_CLAIM,
    immutable=["created_at", "type"],
    retention=Retention("completed_at", after_s=90 * 86_400),
    access=SERVICE_ONLY,
)
class RunDocument(RunFields, rename="camel"):
    """A run of the kit's own collection."""


@document(
    "holdfast_runs/{run_id}/holdfast_run_steps/{id}",
    tenant="tenant_id",
    indexes=STEP_INDEXES,
    lifecycle=STEP_LIFE,
    retention=Retention("completed_at", after_s=90 * 86_400),
    access=SERVICE_ONLY,
)
class StepDocument(StepFields, rename="camel"):
    """A step of the kit's own collection."""


class RunModels(msgspec.Struct, frozen=True, kw_only=True):
    """The document classes of runs: the kit's own, or a service's."""

    run: type[RunFields] = RunDocument
    step: type[StepFields] = StepDocument
    summary: type[StepSummary] = StepSummary
    checkpoint: type[CheckpointFields] = CheckpointDocument

    def __post_init__(self) -> None:
        check_model(self.run, RunFields, path=("id",), claim=RUN_CLAIM)
        check_model(self.step, StepFields, path=("run_id", "id"), indexes=STEP_INDEXES)
        check_model(self.checkpoint, CheckpointFields, path=("checkpoint_id",), indexes=CHECKPOINT_INDEXES)

    @property
    def documents(self) -> list[type[Document]]:
        """The document classes that a store of these runs must know."""
        return [self.run, self.step, self.checkpoint]


KIT = RunModels()
