"""Sending residents to the RMS: one, those named, whole tiers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.idempotent_route import ATOMIC, REPEATABLE
from holdfast.kit.runs.models import RunStatus
from holdfast.projection import project
from holdfast.routing import PREFIX, By, RequestBody, TenantId, action_route
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.jobs.risk_events import TriggerResult, counts_of, describe_counts
from holdfast.services.renewals.jobs.trigger_jobs import describe_progress
from holdfast.services.renewals.models import TriggerJob, TriggerStatus
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.routes.dependencies import Operations, read_route

SHOWN_MAX: Final = 100


class TriggerRequest(RequestBody, frozen=True):
    """The tier to send (`flagged`: high and medium), or the residents."""

    tier: Tier | Literal["flagged"] | None = None
    residents: Annotated[list[str], Meta(min_length=1, max_length=1_000)] | None = None

    def __post_init__(self) -> None:
        if self.tier is not None and self.residents is not None:
            raise ValueError("name a tier or residents, not both")
        if self.tier is None and self.residents is None:
            raise ValueError("name a tier (high, medium or flagged) or residents: nobody is sent by default")


class TriggerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many events were created, delivered before, in flight already or sent again; `items` are the first.

    `skipped` are those named who are not flagged in the latest run.
    """

    property_id: str
    summary: str
    counts: dict[TriggerStatus, int]
    items: list[TriggerResult]
    skipped: list[str]


class TriggerJobResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A trigger job; `told` of its `residents` were sent to the RMS. Who asks for the same meanwhile
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
    counts: dict[TriggerStatus, int]
    error: str | None
    created_at: datetime
    completed_at: datetime | None


def trigger_job_response(job: TriggerJob) -> TriggerJobResponse:
    url, summary = f"/renewals{PREFIX}/trigger-jobs/{job.id}", describe_progress(job)
    return project(job, TriggerJobResponse, job_id=job.id, status_url=url, summary=summary)


@action_route(
    "/properties/{property_id:str}/residents/{resident_id:str}/trigger-renewal-event",
    Renewals.trigger,
    idempotent=ATOMIC,
)
async def trigger(
    operations: Operations, by: By, property_id: FromPath[str], resident_id: FromPath[str]
) -> TriggerResult:
    """Send one resident to the RMS; says whether the event was created or existed already.

    Example: `POST …/properties/property-0001/residents/resident-0000001/trigger-renewal-event`
    """
    return await operations.trigger(by, property_id, resident_id)


@action_route(
    "/properties/{property_id:str}/trigger-renewal-events",
    Renewals.trigger_tiers,
    time_limit_s=120.0,
    idempotent=REPEATABLE,
    answers={200: TriggerReport, 202: TriggerJobResponse},
)
async def trigger_many(
    operations: Operations, by: By, property_id: FromPath[str], data: JSONBody[TriggerRequest]
) -> Response[TriggerReport | TriggerJobResponse]:
    """Send a flagged tier of the latest run, or those of the residents named who are flagged.

    200 with what became of each; more than 10,000 are sent by a job, and the answer is 202 with it.

    Example: `POST …/properties/property-0001/trigger-renewal-events {"tier": "high"}`
    """
    if data.residents is not None:
        results = await operations.trigger_residents(by, property_id, data.residents)
        return Response(_report(property_id, results, data.residents), status_code=200)
    tiers = FLAGGED if data.tier is None or data.tier == "flagged" else (data.tier,)
    sent = await operations.trigger_tiers(by, property_id, tiers=tiers)
    if isinstance(sent, TriggerJob):
        return Response(trigger_job_response(sent), status_code=202)
    return Response(_report(property_id, sent, ()), status_code=200)


def _report(property_id: str, results: Sequence[TriggerResult], named: Sequence[str]) -> TriggerReport:
    counts, done = counts_of(results), {one.resident_id for one in results}
    return TriggerReport(
        property_id=property_id, summary=describe_counts(counts), counts=counts,
        items=list(results[:SHOWN_MAX]),
        skipped=[id for id in dict.fromkeys(named) if id not in done],
    )  # fmt: skip


@read_route("/trigger-jobs/{job_id:str}")
async def trigger_job(
    operations: Operations, tenant_id: TenantId, job_id: FromPath[str]
) -> TriggerJobResponse:
    """The progress of a trigger job.

    Example: `GET …/trigger-jobs/run-m5v2kx8a-a7b3c9d2`
    """
    return trigger_job_response(await operations.trigger_jobs(tenant_id).get(job_id))


ROUTES: Final = (trigger, trigger_many, trigger_job)
