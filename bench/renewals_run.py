"""A whole calculation run (read, score, store with reasons) against two alternatives.

A bare set-based script on plain tables, and a job that goes row by row through an ORM (a few hundred
residents, as a rate).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Any, Final

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from bench import bare_renewals as bare
from bench import orm_renewals as orm
from bench.measure import Goal, Measure, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.runs import Runner
from holdfast.services.renewals.jobs.calculation import workflow
from holdfast.services.renewals.jobs.calculation_jobs import CalculationJobs
from holdfast.services.renewals.models import DOCUMENTS, JOBS
from holdfast.services.renewals.sample_data import SamplePlan, keep, sample
from holdfast.subprocess_worker import StoreSubprocessPool
from holdfast.worker import freeze_gc

AS_OF: Final = date(2026, 3, 1)
PROPERTY: Final = "property-0001"
ORM_RESIDENTS: Final = 300
Script = Callable[[datetime], Awaitable[int]]


def plan_of(place: Place) -> SamplePlan:
    residents = place.scale(100_000, 10_000)
    return SamplePlan(residents=residents, as_of=AS_OF, tenant_id="-", per_property=residents)


@asynccontextmanager
async def ours(url: str, plan: SamplePlan) -> AsyncIterator[Measure]:
    """The service's own run, by its own runner, in residents per second."""
    store = await open_store(url, [*DOCUMENTS, *JOBS.documents, IdempotencyDocument])
    await store.migrate()
    async for _ in keep(store.tenant("-"), plan):
        pass
    # As every worker does once it is ready.
    freeze_gc()
    beside, stop = StoreSubprocessPool(url), asyncio.Event()
    flow = workflow(store, subprocess_pool=beside)
    working = asyncio.create_task(Runner(store.privileged(), [flow], models=JOBS).run(stop))
    jobs = CalculationJobs(store.tenant("-"), flow)

    async def once() -> float:
        start = time.perf_counter()
        job = await jobs.start(PROPERTY, as_of=AS_OF)
        ended = await jobs.wait(job.id, within_s=600)
        assert (ended.status, ended.scored) == ("completed", plan.residents), ended.error
        return plan.residents / (time.perf_counter() - start)

    yield once
    stop.set()
    await working
    await beside.close()
    await store.close()


def rate_of(script: Script) -> Measure:
    async def once() -> float:
        start = time.perf_counter()
        count = await script(datetime.now(UTC))
        return count / (time.perf_counter() - start)

    return once


def rows_of(plan: SamplePlan) -> dict[str, list[tuple[Any, ...]]]:
    tables: dict[str, list[tuple[Any, ...]]] = {}
    for documents in sample(plan):
        for document in documents:
            found = bare.plain_row(document)
            if found is not None:
                tables.setdefault(found[0], []).append(found[1])
    return tables


def fill_sqlite(path: str, plan: SamplePlan) -> Any:
    link = bare.open_sqlite(path)
    with link:
        for statement in bare.statements():
            link.execute(statement)
        for table, rows in rows_of(plan).items():
            marks = ", ".join("?" * len(rows[0]))
            link.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        for statement in bare.INDEXES:
            link.execute(statement)
    link.execute("ANALYZE")
    return link


async def fill_postgres(url: str, plan: SamplePlan) -> Any:
    link = await bare.open_postgres(url)
    for statement in bare.statements():
        await link.execute(statement)
    for table, rows in rows_of(plan).items():
        await link.copy_records_to_table(table, records=rows)
    for statement in bare.INDEXES:
        await link.execute(statement)
    await link.execute("ANALYZE")
    return link


@asynccontextmanager
async def against_script(place: Place, engine: str) -> AsyncIterator[Ways]:
    plan, url = plan_of(place), place.url(engine)
    link: Any
    if engine == "postgres":
        link = await fill_postgres(place.url(engine), plan)
        script: Script = lambda at: bare.run_on_postgres(link, PROPERTY, AS_OF, at=at)  # noqa: E731
    else:
        link = fill_sqlite(_path(place.url(engine)), plan)

        async def script(at: datetime) -> int:
            return bare.run_on_sqlite(link, PROPERTY, AS_OF, at=at)

    async with ours(url, plan) as run:
        yield Ways(run, rate_of(script))
    closed = link.close()
    if closed is not None:
        await closed


@asynccontextmanager
async def against_orm(place: Place, engine: str) -> AsyncIterator[Ways]:
    plan, url, own = plan_of(place), place.url(engine), place.url(engine)
    async with ours(url, plan) as run:
        if engine == "postgres":
            link = await fill_postgres(own, plan)
            await link.close()
            async with AsyncSession(
                create_async_engine(own.replace("postgresql:", "postgresql+asyncpg:"))
            ) as s:
                yield Ways(run, rate_of(lambda at: _rows_async(s, at)))
        else:
            fill_sqlite(_path(own), plan).close()
            with Session(create_engine(f"sqlite:///{_path(own)}")) as session:
                yield Ways(run, rate_of(lambda at: asyncio.to_thread(_rows, session, at)))


def _rows(session: Session, at: datetime) -> int:
    return orm.run(session, PROPERTY, AS_OF, at=at, residents=ORM_RESIDENTS)


async def _rows_async(session: AsyncSession, at: datetime) -> int:
    return await orm.run_async(session, PROPERTY, AS_OF, at=at, residents=ORM_RESIDENTS)


def _path(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


ENGINES: Final = ("sqlite full", "postgres")
WORKLOADS = [
    Workload(
        name="score 100,000 residents", quick_name="score 10,000 residents", engines=ENGINES,
        unit="residents/s", goal=Goal(0.4), other_name="bare set-based script", open=against_script, turns=1,
    ),
    Workload(
        name="score 100,000 residents", quick_name="score 10,000 residents", engines=ENGINES,
        unit="residents/s", goal=Goal(50), other_name="row by row, SQLAlchemy", open=against_orm, turns=1,
    ),
]  # fmt: skip
