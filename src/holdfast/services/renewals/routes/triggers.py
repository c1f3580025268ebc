"""Telling the RMS: of one resident, of those named, of whole tiers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.kit.runs.models import RunStatus
from holdfast.routing import PREFIX, Actor, RequestBody, RuntimeDependency, TenantId
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.jobs.risk_events import Triggered, counts_of, summary_of
from holdfast.services.renewals.jobs.trigger_jobs import progress_of, started_details
from holdfast.services.renewals.models import Told, TriggerJob
from holdfast.services.renewals.routes.dependencies import acts, reads, renewals_of

SHOWN_MAX: Final = 100


class TriggerRequest(RequestBody, frozen=True):
    """A tier (high and medium unless said), or the residents to tell of."""

    tier: Tier | None = None
    residents: Annotated[list[str], Meta(min_length=1, max_length=1_000)] | None = None

    def __post_init__(self) -> None:
        if self.tier is not None and self.residents is not None:
            raise ValueError("name a tier or residents, not both")


class TriggerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many events were created, found delivered, on their way, or put out anew; `items` are the first.

    `skipped` are those named who are not flagged in the latest run.
    """

    property_id: str
    summary: str
    counts: dict[Told, int]
    items: list[Triggered]
    skipped: list[str]


class TriggerJobResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A trigger job; the RMS is `told` of so many of its `residents`. Whoever asks for the same meanwhile
    gets this one; `requested_by` is who asked first."""

    job_id: str
    status_url: str
    property_id: str
    status: RunStatus
    tiers: list[Tier]
    requested_by: str
    calculated_at: datetime
    residents: int
    told: int
    summary: str
    counts: dict[Told, int]
    error: str | None
    created_at: datetime
    completed_at: datetime | None


def trigger_job_response(job: TriggerJob) -> TriggerJobResponse:
    return TriggerJobResponse(
        job_id=job.id, status_url=f"/renewals{PREFIX}/trigger-jobs/{job.id}", property_id=job.property_id,
        status=job.status, tiers=job.tiers, requested_by=job.requested_by, calculated_at=job.calculated_at,
        residents=job.residents, told=job.told, summary=progress_of(job), counts=job.counts, error=job.error,
        created_at=job.created_at, completed_at=job.completed_at,
    )  # fmt: skip


@acts(
    "/properties/{property_id:str}/residents/{resident_id:str}/trigger-renewal-event", "developer",
    action="trigger",
)  # fmt: skip
async def trigger(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    property_id: FromPath[str],
    resident_id: FromPath[str],
) -> Triggered:
    """Tell the RMS about one resident; says whether the event was created or is there already.

    Example: `POST …/properties/property-0001/residents/resident-0000001/trigger-renewal-event`
    """
    renewals = renewals_of(runtime)
    told = await renewals.portfolio(tenant_id).trigger(property_id, resident_id)
    await renewals.note(tenant_id, actor, "triggered", subject=told.event_id, details={"status": told.status})
    return told


@acts(
    "/properties/{property_id:str}/trigger-renewal-events", "developer", action="trigger", time_limit_s=120.0
)
async def trigger_many(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    property_id: FromPath[str],
    data: JSONBody[TriggerRequest],
) -> Response[TriggerReport | TriggerJobResponse]:
    """The same for a flagged tier of the latest run, or for those of the residents named who are flagged.

    200 with what became of each; of more than 10,000 the RMS is told by a job, and the answer is 202 with it.

    Example: `POST …/properties/property-0001/trigger-renewal-events {"tier": "high"}`
    """
    renewals = renewals_of(runtime)
    portfolio = renewals.portfolio(tenant_id)
    if data.residents is not None:
        told = await portfolio.trigger_many(property_id, residents=data.residents)
    else:
        tiers = FLAGGED if data.tier is None else (data.tier,)
        noting = renewals.noting(
            tenant_id, actor, "trigger_started", subject=property_id, details=started_details
        )
        made = await portfolio.trigger_tiers(property_id, tiers=tiers, by=actor, noting=noting)
        if isinstance(made, TriggerJob):
            return Response(trigger_job_response(made), status_code=202)
        told = made
    counts = counts_of(told)
    await renewals.note(tenant_id, actor, "triggered", subject=property_id, details=counts)
    return Response(_report(property_id, told, data.residents or ()), status_code=200)


def _report(property_id: str, told: Sequence[Triggered], named: Sequence[str]) -> TriggerReport:
    counts, done = counts_of(told), {one.resident_id for one in told}
    return TriggerReport(
        property_id=property_id, summary=summary_of(counts), counts=counts, items=list(told[:SHOWN_MAX]),
        skipped=[id for id in dict.fromkeys(named) if id not in done],
    )  # fmt: skip


@reads("/trigger-jobs/{job_id:str}")
async def trigger_job(
    runtime: RuntimeDependency, tenant_id: TenantId, job_id: FromPath[str]
) -> TriggerJobResponse:
    """How far a trigger job is, and what became of those it has told of.

    Example: `GET …/trigger-jobs/run-m5v2kx8a-a7b3c9d2`
    """
    return trigger_job_response(await renewals_of(runtime).portfolio(tenant_id).trigger_jobs.get(job_id))


ROUTES: Final = (trigger, trigger_many, trigger_job)
