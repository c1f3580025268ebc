"""Calculating, and looking at what was calculated."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final

import msgspec
from litestar import Response
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from holdfast.kit.runs.models import RunStatus
from holdfast.projection import project
from holdfast.routing import PREFIX, By, Cursor, Limit, RequestBody, TenantId, action_route, call_route
from holdfast.services.renewals.domain.scoring import TIERS, Signal, Thresholds, Tier, Weights
from holdfast.services.renewals.jobs.calculation_jobs import KEY_MAX, RunSummary
from holdfast.services.renewals.models import CalculationJob, RiskScore, Summary
from holdfast.services.renewals.operations import AREA, Renewals
from holdfast.services.renewals.queries.portfolio import PropertySummary, Sort, WhatIf
from holdfast.services.renewals.routes.dependencies import Operations, read_route

WAIT_S_MAX: Final = 60.0
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=KEY_MAX,
        description="The same key gives the same job.",
    ),
]

RunId = Annotated[
    str | None,
    QueryParameter(name="run", max_length=200, description="A finished run's `jobId`; else the latest."),
]
AsOf = Annotated[
    date | None,
    QueryParameter(name="asOf", description="The run of this as-of date, or of the nearest before it."),
]


class Calculate(RequestBody, frozen=True):
    """As of which day; the property's own today unless said."""

    as_of_date: date | None = None


class JobResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A calculation job; `scored` of `residents` are done."""

    job_id: str
    status_url: str
    property_id: str
    status: RunStatus
    as_of_date: date
    calculated_at: datetime
    residents: int
    scored: int
    skipped: int
    sent: int
    risk_tiers: dict[Tier, int]
    error: str | None
    created_at: datetime
    completed_at: datetime | None
    withdrawn_at: datetime | None


class ScoreResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resident's score with its reasons; `signals` is what a flag carries, `reasons` says why."""

    resident_id: str
    name: str
    unit_id: str
    lease_id: str
    risk_score: int
    risk_tier: Tier
    days_to_expiry: int | None
    notice_given: bool
    as_of_date: date
    calculated_at: datetime
    signals: dict[str, int | bool | None]
    reasons: dict[str, Signal]


class RiskPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of a run's scores; no run yet leaves `run` null and nothing to show."""

    property_id: str
    run: Summary | None
    items: list[ScoreResponse]
    cursor: str | None


class CalculationPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    property_id: str
    items: list[Summary]
    cursor: str | None


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resident_id: str
    items: list[ScoreResponse]
    cursor: str | None


class PortfolioPage(msgspec.Struct, frozen=True):
    items: list[PropertySummary]
    cursor: str | None


class WhatIfRequest(RequestBody, frozen=True):
    """Weights are whole points that add up to 100; what is left out is as the property has it."""

    weights: Weights | None = None
    thresholds: Thresholds | None = None


def job_response(job: CalculationJob) -> JobResponse:
    url, tiers = f"/renewals{PREFIX}/jobs/{job.id}", {"high": job.high, "medium": job.medium, "low": job.low}
    return project(job, JobResponse, job_id=job.id, status_url=url, risk_tiers=tiers)


def score_response(score: RiskScore) -> ScoreResponse:
    signals = {name: signal.value for name, signal in score.signals.items()}
    return project(score, ScoreResponse, signals=signals, reasons=score.signals)


@action_route(
    "/properties/{property_id:str}/renewal-risk/calculate", Renewals.calculate, status=202,
    time_limit_s=WAIT_S_MAX + 10, answers={200: RunSummary, 202: JobResponse},
)  # fmt: skip
async def calculate(
    operations: Operations,
    by: By,
    property_id: FromPath[str],
    data: JSONBody[Calculate],
    key: Key = None,
    wait: Annotated[bool, QueryParameter(description="Answer once the job has ended.")] = False,
) -> Response[JobResponse | RunSummary]:
    """Score every resident of a property, in a job of its own.

    202 with the job; with `?wait=true` 200 with the whole summary once it is there, 409 with the job's id and
    its reason where it failed, 202 where it takes longer than a minute. While a job of the property is under
    way, everybody who asks gets that one.

    Example: `POST …/properties/property-0001/renewal-risk/calculate {"asOfDate": "2026-03-01"}`
    """
    job = await operations.calculate(by, property_id, as_of=data.as_of_date, key=key)
    if wait:
        jobs = operations.jobs(by.tenant_id)
        job = await jobs.wait_for_result(job.id, within_s=WAIT_S_MAX)
        if job.status == "completed":
            return Response(await jobs.summary(job), status_code=200)
    return Response(job_response(job), status_code=202)


@read_route("/jobs/{job_id:str}")
async def job(operations: Operations, tenant_id: TenantId, job_id: FromPath[str]) -> JobResponse:
    """How far a job is.

    Example: `GET …/jobs/run-m5v2kx8a-a7b3c9d2`
    """
    return job_response(await operations.jobs(tenant_id).get(job_id))


@read_route("/properties/{property_id:str}/renewal-risk")
async def risk(
    operations: Operations,
    tenant_id: TenantId,
    property_id: FromPath[str],
    tier: Annotated[
        list[Tier] | None, QueryParameter(description="May be repeated; all unless given.")
    ] = None,
    sort: Annotated[
        Sort, QueryParameter(description="The most at risk, or the soonest to end, first.")
    ] = "score",
    run: RunId = None,
    as_of: AsOf = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RiskPage:
    """The scores of a property's latest run, or of one before it, with the tiers of its day.

    Example: `GET …/properties/property-0001/renewal-risk?tier=high&limit=20`
    """
    portfolio = operations.portfolio(tenant_id)
    chosen = await portfolio.runs.choose(property_id, id=run, as_of=as_of)
    if chosen is None:
        return RiskPage(property_id=property_id, run=None, items=[], cursor=None)
    tiers = tier or TIERS
    page = await portfolio.risk(chosen, property_id, tiers=tiers, sort=sort, limit=limit, cursor=cursor)
    return RiskPage(
        property_id=property_id,
        run=chosen,
        items=[score_response(one) for one in page.docs],
        cursor=page.cursor,
    )


@read_route("/properties/{property_id:str}/runs")
async def runs(
    operations: Operations,
    tenant_id: TenantId,
    property_id: FromPath[str],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CalculationPage:
    """A property's finished runs, the newest first; each can be looked at by its `jobId`.

    Example: `GET …/properties/property-0001/runs`
    """
    portfolio = operations.portfolio(tenant_id)
    await portfolio.property(property_id)
    items, after = await portfolio.runs.all(property_id, limit=limit, cursor=cursor)
    return CalculationPage(property_id=property_id, items=items, cursor=after)


@read_route("/residents/{resident_id:str}/risk-history")
async def history(
    operations: Operations,
    tenant_id: TenantId,
    resident_id: FromPath[str],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> HistoryPage:
    """A resident's scores, one for each finished run, the newest first.

    Example: `GET …/residents/resident-0000001/risk-history`
    """
    page = await operations.portfolio(tenant_id).history(resident_id, limit=limit, cursor=cursor)
    items = [score_response(one) for one in page.docs]
    return HistoryPage(resident_id=resident_id, items=items, cursor=page.cursor)


@read_route("/portfolio")
async def portfolio(
    operations: Operations, tenant_id: TenantId, limit: Limit = 100, cursor: Cursor = None
) -> PortfolioPage:
    """Every property with what its latest run came to, by name.

    Example: `GET …/portfolio`
    """
    return PortfolioPage(*await operations.portfolio(tenant_id).summaries(limit=limit, cursor=cursor))


@call_route("/properties/{property_id:str}/what-if", "viewer", area=AREA, action="read")
async def what_if(
    operations: Operations, tenant_id: TenantId, property_id: FromPath[str], data: JSONBody[WhatIfRequest]
) -> WhatIf:
    """The latest run's residents by other weights or thresholds; nothing is stored.

    Example: `POST …/properties/property-0001/what-if {"weights": {"expiry": 50, "delinquency": 15}}`
    """
    portfolio = operations.portfolio(tenant_id)
    return await portfolio.what_if(property_id, weights=data.weights, thresholds=data.thresholds)


ROUTES: Final = (calculate, job, risk, runs, history, portfolio, what_if)
