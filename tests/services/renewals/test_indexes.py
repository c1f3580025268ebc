"""Every question of the data model is one that the product asks, by the index that is there for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.kit.outbox import Selection
from holdfast.kit.runs import RunModels, Runs
from holdfast.model import Document, schema_of
from holdfast.model.access import ANONYMOUS, SERVICE
from holdfast.operations import endpoints
from holdfast.operations.endpoints import NewEndpoint
from holdfast.runtime import Runtime
from holdfast.service import PageRequest
from holdfast.services.renewals import service
from holdfast.services.renewals.models import (
    DOCUMENTS,
    JOBS,
    OUTBOX_MODELS,
    TRIGGER_JOBS,
    CalculationJob,
    DeadLetterRow,
    DeliveryState,
    LeaseRow,
    Outcome,
    Property,
    Resident,
    RiskScore,
    RmsEndpoint,
    TriggerJob,
    Unit,
)
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.resident_search import find_residents
from holdfast.services.renewals.views.calibration import CalibrationPages
from holdfast.services.renewals.views.property_header import load_header
from holdfast.store import Query, create
from holdfast.store.plan import QueryPlan
from holdfast.store.sql import index_scan
from holdfast.store.sql.tables import index_name
from holdfast.store.sqlite.dialect import DIALECT
from tests.services.renewals.server import AS_OF, P, Person, settle_in

Question = Callable[[Renewals], Awaitable[object]]


async def _risk(renewals: Renewals, sort: Any = "score") -> object:
    portfolio = renewals.portfolio("-")
    run = await portfolio.runs.latest(P)
    assert run is not None
    page = await portfolio.risk(run, P, tiers=["high"], sort=sort)
    return [one.resident_id for one in page.docs]


async def _notices(renewals: Renewals) -> object:
    run = await renewals.portfolio("-").runs.latest(P)
    assert run is not None
    return await renewals.portfolio("-").notices(P, run)


def _resident(renewals: Renewals) -> Awaitable[object]:
    ask = PageRequest(caller=ANONYMOUS, tenant_id="-", path={"resident_id": "new"})
    return CalibrationPages(renewals).resident(ask)


def _of_all_tenants(cls: type[Document], **equal: str) -> Question:
    """As the platform's lists ask for the documents of all tenants."""

    def ask(renewals: Renewals) -> Awaitable[object]:
        query: Query[Any] = Query(cls)
        for name, value in equal.items():
            query = query.where(name, "==", value)
        return renewals.privileged_store().query(query.order_by("-created_at"))

    return ask


def _listed(models: RunModels, asked: dict[str, Any]) -> Question:
    return lambda renewals: Runs(renewals.store("-"), models=models).page(**asked)


# Scanned only when rows gone from a source are removed, which the tests of sources show; and one that the
# platform's schema names, where the outbox claims what is due by an index of its own.
UNASKED: Final = {("UnitType", "property_id_name"), ("DeliveryState", "status_next_retry_at")}
# How operators list runs, by the index that each way takes.
LISTED: Final[dict[str, dict[str, Any]]] = {
    "-createdAt": {},
    "status -createdAt": {"status": "failed"},
    "type -createdAt": {"type": "calculate"},
    "type status -createdAt": {"type": "calculate", "status": "failed"},
}
# Who asks, what, of which index. The first two are the questions the scores were laid out for, the
# next three those of the deliveries: the retry job's, the idempotency check's, a property's history.
ASKED: Final[dict[str, tuple[Question, type[Document], str]]] = {
    "Portfolio.risk": (_risk, RiskScore, "property_id calculated_at risk_tier -risk_score"),
    "Portfolio.history": (
        lambda r: r.portfolio("-").history("john"), RiskScore, "resident_id -calculated_at",
    ),
    "Deliveries.of_event": (lambda r: r.outbox("-").of_event("evt-1"), DeliveryState, "event_id"),
    "RmsDeliveries.page": (lambda r: r.deliveries("-").page(P), DeliveryState, "property_id -created_at"),
    "RmsDeliveries.page, by status": (
        lambda r: r.deliveries("-").page(P, ["failed"]), DeliveryState, "property_id status -created_at",
    ),
    "Deliveries.replay": (
        lambda r: r.outbox("-").replay(Selection(statuses=["dead"])), DeliveryState, "status -created_at",
    ),
    "RmsDeliveries.of_resident": (
        lambda r: r.deliveries("-").of_resident("john"), DeliveryState, "resident_id -created_at",
    ),
    "Deliveries.dead_letters": (
        lambda r: r.outbox("-").dead_letters(), DeadLetterRow, "resolved -created_at",
    ),
    "load_header": (lambda r: load_header(r, "-", P), DeadLetterRow, "property_id resolved -created_at"),
    "Portfolio.summaries": (lambda r: r.portfolio("-").summaries(limit=5), Property, "name"),
    "Portfolio.notices": (_notices, Resident, "property_id status"),
    **{
        f"Runs.listed, {cls.__name__}, by {wanted}": (_listed(models, asked), cls, wanted)
        for cls, models in ((CalculationJob, JOBS), (TriggerJob, TRIGGER_JOBS))
        for wanted, asked in LISTED.items()
    },
    "FinishedRuns.all": (
        lambda r: r.portfolio("-").runs.all(P), CalculationJob, "propertyId status -calculatedAt",
    ),
    "Portfolio.history, runs that did not finish": (
        lambda r: r.portfolio("-").history("john"), CalculationJob, "propertyId status -calculatedAt",
    ),
    "FinishedRuns.choose": (
        lambda r: r.portfolio("-").runs.choose(P, as_of=AS_OF), CalculationJob,
        "propertyId status -asOfDate -calculatedAt",
    ),
    "find_residents, by name": (
        lambda r: find_residents(r.store("-"), P, "exa"), Resident, "property_id last_name first_name",
    ),
    "find_residents, by unit": (
        lambda r: find_residents(r.store("-"), P, "john"), Unit, "property_id unit_number",
    ),
    "find_residents, who lives there": (
        lambda r: find_residents(r.store("-"), P, "john"), Resident, "unit_id",
    ),
    "JudgingPages.resident": (_resident, LeaseRow, "resident_id -lease_start_date"),
    "Outcomes.calibration": (lambda r: r.outcomes("-").calibration(), Outcome, "-decidedOn"),
    "Outcomes.calibration, of a property": (
        lambda r: r.outcomes("-").calibration(P), Outcome, "propertyId -decidedOn",
    ),
    # The platform's own questions of every outbox.
    "operations.endpoints.list_endpoints": (
        lambda r: r.store("-").query(Query(RmsEndpoint).order_by("-created_at")), RmsEndpoint, "-createdAt",
    ),
    "operations.endpoints.list_endpoints, by status": (
        lambda r: r.store("-").query(
            Query(RmsEndpoint).where("status", "==", "paused").order_by("-created_at")
        ),
        RmsEndpoint, "status -createdAt",
    ),
    "operations.endpoints.get": (
        lambda r: r.store("-").query(
            Query(OUTBOX_MODELS.notice).where("endpoint_id", "==", P).order_by("-at")
        ),
        OUTBOX_MODELS.notice, "endpointId -at",
    ),
    "endpoints of all tenants": (
        _of_all_tenants(RmsEndpoint, status="paused"), RmsEndpoint, "status -createdAt",
    ),
    "deliveries of all tenants": (
        _of_all_tenants(DeliveryState, status="failed"), DeliveryState, "status -created_at",
    ),
    **{
        f"{cls.__name__} of all tenants, by {wanted}": (_of_all_tenants(cls, **asked), cls, wanted)
        for cls in (CalculationJob, TriggerJob)
        for wanted, asked in LISTED.items() if "status" in asked
    },
    "dead letters of all tenants": (
        lambda r: r.privileged_store().query(
            Query(DeadLetterRow).where("resolved", "==", False).order_by("-died_at")
        ),
        DeadLetterRow, "resolved -created_at",
    ),
    "retention of notices": (
        lambda r: r.privileged_store().expire(OUTBOX_MODELS.notice), OUTBOX_MODELS.notice, "at",
    ),
    "retention of jobs": (
        lambda r: r.privileged_store().expire(CalculationJob), CalculationJob,
        "status completedAt",
    ),
    "retention of trigger jobs": (
        lambda r: r.privileged_store().expire(TriggerJob), TriggerJob, "completedAt",
    ),
    "retention of deliveries": (
        lambda r: r.privileged_store().expire(DeliveryState), DeliveryState, "status finished_at",
    ),
}  # fmt: skip


def fields_of(plan: QueryPlan) -> str:
    index = plan.index
    assert index is not None, plan.schema.name
    return " ".join(("-" if f.descending else "") + f.column.stored for f in index.fields)


@asynccontextmanager
async def settled(url: str, home: Path) -> AsyncIterator[Renewals]:
    """Four residents with a run, an endpoint and an event that waits; nothing else is at work."""
    config = load_config({"home": home, "store": url}, environ={})
    runtime = await Runtime.open(config, services=[service], clock=SystemClock())
    renewals: Renewals = runtime.parts["renewals"].operations
    by, stop = runtime.operator(SERVICE, "-"), asyncio.Event()
    await settle_in(renewals.store("-"))
    working = asyncio.create_task(runtime.runner.run(stop))
    try:
        job = await renewals.calculate(by, P, as_of=AS_OF)
        assert (await renewals.jobs("-").wait(job.id, within_s=30)).status == "completed"
        stop.set()
        await working
        new = NewEndpoint(id=P, url="https://rms.example/webhooks")
        await endpoints.create(runtime, by, "renewals", new)
        await renewals.trigger_tiers(by, P)
        await renewals.store("-").commit(
            *(create(one) for one in Person("New", 300, 1_500).documents(P, AS_OF))
        )
        yield renewals
    finally:
        stop.set()
        await working
        await runtime.close()


def indexes(plans: list[QueryPlan]) -> set[tuple[str, str]]:
    return {(plan.schema.name, plan.index.name) for plan in plans if plan.index is not None}


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_each_index_is_asked_by_the_product_and_none_is_there_that_nobody_asks(
    request: pytest.FixtureRequest, tmp_path: Path, plans: list[QueryPlan], engine: str
) -> None:
    async with settled(request.getfixturevalue(f"{engine}_url"), tmp_path) as renewals:
        used = indexes(plans)  # a calculation's own
        for who, (ask, cls, wanted) in ASKED.items():
            plans.clear()
            await ask(renewals)
            asked = {fields_of(plan) for plan in plans if plan.schema is schema_of(cls) and plan.index}
            assert wanted in asked, (who, asked)
            used |= indexes(plans)
    declared = {(schema_of(cls).name, index.name) for cls in DOCUMENTS for index in schema_of(cls).indexes}
    assert declared - used == UNASKED


async def test_sqlite_walks_the_index_that_the_product_asks(
    sqlite_url: str, tmp_path: Path, plans: list[QueryPlan]
) -> None:
    async with settled(sqlite_url, tmp_path) as renewals:
        link = apsw.Connection(sqlite_url.removeprefix("sqlite://"), flags=apsw.SQLITE_OPEN_READONLY)
        for who, (ask, cls, wanted) in ASKED.items():
            plans.clear()
            await ask(renewals)
            asked = [plan for plan in plans if plan.schema is schema_of(cls) and fields_of(plan) == wanted]
            table = renewals.privileged_store().catalog.table(schema_of(cls))
            for plan in asked:
                sql, values = index_scan.select(plan, table, dialect=DIALECT, columns=("_key",))
                told = " ".join(str(row[3]) for row in link.execute(f"EXPLAIN QUERY PLAN {sql}", values))
                assert plan.index is not None
                assert f"INDEX {index_name(table, plan.index, DIALECT)} " in told, (who, told)
            assert asked, who
        link.close()
