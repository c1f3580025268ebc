"""Trigger jobs: runs of the kit that send a great many events to the RMS."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from holdfast.kit import NO_TENANT
from holdfast.kit.checkpoints import CheckpointDocument
from holdfast.kit.runs import RUN_CLAIM, RUN_INDEXES, RUN_LIFE, RunFields, RunModels, StepDocument
from holdfast.model import MEMBERS_READ, Document, Retention, TimestampId, document
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.models.scores import Count

TriggerStatus = Literal["created", "already queued", "already delivered", "re-queued"]


@document(
    "renewal_trigger_jobs/{id}",
    id=TimestampId("run"),
    tenant="tenant_id",
    indexes=RUN_INDEXES,
    lifecycle=RUN_LIFE,
    claim=RUN_CLAIM,
    immutable=["created_at", "type", "property_id", "calculated_at", "tiers", "residents"],
    retention=Retention("completed_at", after_s=365 * 86_400),
    access=MEMBERS_READ,
)
class TriggerJob(RunFields, rename="camel"):
    """Telling the RMS of whole tiers of one run; `told` of `residents` are done.

    What is told is kept with `after`, where the next batch begins; `whole` says that there is none.
    """

    property_id: str
    calculated_at: datetime
    calculation_id: str = ""
    tiers: list[Tier]
    requested_by: str = ""
    residents: Count = 0
    told: Count = 0
    counts: dict[TriggerStatus, Count] = {}
    after: str | None = None
    whole: bool = False


@document("renewal_trigger_states/{property_id}", tenant="tenant_id", access=MEMBERS_READ)
class TriggerState(Document, rename="camel"):
    """The trigger job a property is in, or was in last."""

    property_id: str
    tenant_id: str = NO_TENANT
    job_id: str


TRIGGER_JOBS = RunModels(run=TriggerJob, step=StepDocument, checkpoint=CheckpointDocument)
