"""Calculation jobs: runs of the kit, with what this service adds to them."""

from __future__ import annotations

from datetime import date, datetime

from holdfast.kit.checkpoints import CheckpointDocument
from holdfast.kit.runs import RUN_CLAIM, RUN_INDEXES, RUN_LIFE, RunFields, RunModels, StepDocument
from holdfast.model import MEMBERS_READ, Index, Lifecycle, Retention, TimestampId, document
from holdfast.services.renewals.domain.rules import Sending
from holdfast.services.renewals.domain.scoring import Rules
from holdfast.services.renewals.models.scores import Count

YEAR_S = 365 * 86_400
# A finished run may be withdrawn, and is cancelled from then on.
CALCULATION_LIFE = Lifecycle(
    "status", initial=RUN_LIFE.initial, moves={**RUN_LIFE.moves, "completed": ["cancelled"]}
)


@document(
    "renewal_calculation_jobs/{id}",
    id=TimestampId("run"),
    tenant="tenant_id",
    indexes=[
        *RUN_INDEXES,
        Index("property_id", "status", "-calculated_at"),
        Index("property_id", "status", "-as_of_date", "-calculated_at"),
    ],
    lifecycle=CALCULATION_LIFE,
    claim=RUN_CLAIM,
    immutable=["created_at", "type", "property_id", "as_of_date", "calculated_at", "rules"],
    # One that did not finish or was withdrawn stays: it tells that the scores it left behind are no result.
    retention=Retention("completed_at", after_s=5 * YEAR_S, when={"status": "completed"}),
    access=MEMBERS_READ,
)
class CalculationJob(RunFields, rename="camel"):
    """One run over one property, by the rules of the moment it was asked for. What is scored is kept with
    `after`, the last resident scored."""

    property_id: str
    as_of_date: date
    calculated_at: datetime
    requested_by: str = ""
    rules: Rules = Rules()
    send: Sending = "nothing"
    residents: Count = 0
    scored: Count = 0
    skipped: Count = 0
    sent: Count = 0
    high: Count = 0
    medium: Count = 0
    low: Count = 0
    after: str = ""
    withdrawn_at: datetime | None = None


JOBS = RunModels(run=CalculationJob, step=StepDocument, checkpoint=CheckpointDocument)
