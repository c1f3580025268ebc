"""Calculation runs: one a property at a time, several properties at once, and gone on with after a crash."""

from __future__ import annotations

import asyncio
import os
from datetime import date, datetime

import pytest

from holdfast.errors import NotFoundError
from holdfast.kit.runs import Runs
from holdfast.services.renewals.domain.scoring import TIERS
from holdfast.services.renewals.models import JOBS, CalculationJob, Property, PropertyState, RiskScore
from holdfast.services.renewals.queries.lease_end_order import LeaseEndOrder
from holdfast.services.renewals.queries.scores import scores_of_run
from holdfast.services.renewals.sample_data import SamplePlan, keep
from holdfast.store import Query, Store, patch
from tests.faults.controlled_process import run_processes
from tests.services.renewals.calculation_fixtures import jobs_of, opened, working
from tests.services.renewals.server import AS_OF, P, settle_in

ENGINES = ["sqlite", "postgres", "firestore"]
FIRST, SECOND = "property-0001", "property-0002"


async def fill(store: Store, residents: int, *, per_property: int) -> None:
    plan = SamplePlan(residents=residents, as_of=AS_OF, tenant_id="-", per_property=per_property)
    async for _ in keep(store.tenant("-"), plan):
        pass


async def scores(store: Store, job: CalculationJob) -> list[RiskScore]:
    return await scores_of_run(store.tenant("-"), job.property_id, job.calculated_at, tiers=TIERS)


@pytest.mark.parametrize("url", ENGINES, indirect=True)
async def test_a_run_scores_everybody_alike_on_every_engine(url: str) -> None:
    async with opened(url) as store:
        await settle_in(store.tenant("-"))
        async with working(store, page=2) as jobs:
            job = await jobs.start(P, as_of=AS_OF)
            ended = await jobs.wait(job.id, within_s=60)
        assert (ended.status, ended.scored, ended.error) == ("completed", 4, None)
        found = {one.resident_id: (one.risk_score, one.risk_tier) for one in await scores(store, ended)}
        assert found == {
            "jane": (67, "medium"), "john": (77, "high"), "alice": (8, "low"), "bob": (63, "medium"),
        }  # fmt: skip


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_simultaneous_starts_of_a_property_give_one_job(url: str) -> None:
    async with opened(url) as store:
        await settle_in(store.tenant("-"))
        jobs = jobs_of(store)
        started = await asyncio.gather(*(jobs.start(P, by=f"caller {n}") for n in range(20)))
        assert len({job.id for job in started}) == 1
        with_keys = await asyncio.gather(*(jobs.start(P, key=f"key-{n % 3}") for n in range(9)))
        assert {job.id for job in with_keys} == {started[0].id}
        async with working(store) as jobs:
            await jobs.wait(started[0].id, within_s=30)
            later = await jobs.start(P)
            assert later.id != started[0].id
            await jobs.wait(later.id, within_s=30)


async def test_different_properties_are_calculated_at_the_same_time(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await fill(store, 1_600, per_property=800)
        async with working(store, page=40) as jobs:
            started = [await jobs.start(FIRST, as_of=AS_OF), await jobs.start(SECOND, as_of=AS_OF)]
            one, two = [await jobs.wait(job.id, within_s=60) for job in started]
        assert (one.scored, two.scored) == (800, 800)
        assert _spans(one)[0] < _spans(two)[1]
        assert _spans(two)[0] < _spans(one)[1]


def _spans(job: CalculationJob) -> tuple[datetime, datetime]:
    assert job.started_at is not None
    assert job.completed_at is not None
    return job.started_at, job.completed_at


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_run_that_is_killed_half_way_goes_on_where_it_was(url: str) -> None:
    residents, page = 1_800, 30
    module = "tests.services.renewals.calculation_fixtures"
    order = {"url": url, "page": page}
    async with opened(url) as store:
        await fill(store, residents, per_property=residents)
        jobs = jobs_of(store)
        job = await jobs.start(FIRST, as_of=AS_OF)
        async with run_processes(module, "calculate", order) as (first,):
            await first.hear_until("ready")
            await _until_scored(store, job.id, 5 * page)
            await first.kill()
        left = await jobs.get(job.id)
        assert left.status == "running"
        assert 0 < left.scored < residents
        assert (await jobs.start(FIRST)).id == job.id
        async with run_processes(module, "calculate", order):
            ended = await jobs.wait(job.id, within_s=60)
        assert (ended.status, ended.scored, ended.residents) == ("completed", residents, residents)
        found = await scores(store, ended)
        assert len({one.resident_id for one in found}) == len(found) == residents
        state = await store.tenant("-").get(PropertyState, FIRST)
        assert state is not None
        assert state.doc.latest is not None
        assert state.doc.latest.total_residents == residents
        assert ended.high + ended.medium + ended.low == residents
        listed = await LeaseEndOrder(store.tenant("-"), FIRST, ended.calculated_at).page(
            TIERS, limit=residents + 1
        )
        assert {one.resident_id for one in listed.docs} == {one.resident_id for one in found}


async def _until_scored(store: Store, job_id: str, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await store.tenant("-").get(CalculationJob, job_id)
            if found is not None and found.doc.scored >= count:
                return
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_run_that_is_cancelled_ends_between_two_pages_and_the_next_one_works(url: str) -> None:
    residents, page = 900, 10
    async with opened(url) as store:
        await fill(store, residents, per_property=residents)
        async with working(store, page=page) as jobs:
            job = await jobs.start(FIRST, as_of=AS_OF)
            await _until_scored(store, job.id, 3 * page)
            await Runs(store.tenant("-"), models=JOBS).cancel(job.id, reason="not today")
            ended = await jobs.wait(job.id, within_s=60)
            assert (ended.status, ended.cancel_reason) == ("cancelled", "not today")
            assert ended.steps[0].failures == 0
            assert 0 < ended.scored < residents
            again = await jobs.start(FIRST, as_of=AS_OF)
            assert (await jobs.wait(again.id, within_s=60)).scored == residents


async def test_a_run_takes_a_bounded_amount_of_memory(sqlite_url: str) -> None:
    """`HOLDFAST_RENEWALS_RESIDENTS` sets how many live in the property (4,000 unless told)."""
    residents = int(os.environ.get("HOLDFAST_RENEWALS_RESIDENTS", "4000"))
    async with opened(sqlite_url) as store:
        await fill(store, residents, per_property=residents)
    order = {"url": sqlite_url, "property": FIRST, "as_of": AS_OF.isoformat()}
    async with run_processes("tests.services.renewals.calculation_fixtures", "measure", order) as (process,):
        said = await process.hear(within_s=600)
        while not said.startswith("peak "):
            said = await process.hear(within_s=600)
    _, status, scored, peak_mb = said.split()
    assert (status, int(scored)) == ("completed", residents)
    assert int(peak_mb) < 300


async def test_a_run_that_can_not_go_on_fails_with_its_reason_and_the_next_one_works(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        await settle_in(home)
        await home.commit(patch(Property, P, changes={"time_zone": "Nowhere/Land"}))
        # The as-of date is given, so that only the run itself meets the zone.
        async with working(store) as jobs:
            job = await jobs.start(P, as_of=AS_OF)
            ended = await jobs.wait(job.id, within_s=60)
            assert ended.status == "failed"
            assert "Nowhere/Land" in (ended.error or "")
            await home.commit(patch(Property, P, changes={"time_zone": "UTC"}))
            again = await jobs.start(P, as_of=AS_OF)
            assert (await jobs.wait(again.id, within_s=60)).status == "completed"


async def test_a_property_that_is_not_there_is_not_calculated(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        with pytest.raises(NotFoundError):
            await jobs_of(store).start("nowhere")
        assert await store.privileged().count(Query(CalculationJob)) == 0


async def test_the_as_of_date_is_the_propertys_own_today(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        days: set[date] = set()
        for id, zone in (("far-east", "Pacific/Kiritimati"), ("far-west", "Pacific/Midway")):
            await settle_in(home, [], property_id=id)
            await home.commit(patch(Property, id, changes={"time_zone": zone}))
            days.add((await jobs_of(store).start(id)).as_of_date)
        # Their clocks are 25 hours apart, so it is never the same day in both.
        assert len(days) == 2
