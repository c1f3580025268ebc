"""Sending many residents to the RMS: in bounded commits, resumed after a crash, nobody sent twice."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import ConflictError
from holdfast.kit.audit import AuditEvent
from holdfast.kit.runs import Runs
from holdfast.services.renewals import service
from holdfast.services.renewals.domain.scoring import FLAGGED
from holdfast.services.renewals.models import (
    TRIGGER_JOBS,
    DeliveryState,
    Resident,
    RiskScore,
    RmsEndpoint,
    TriggerJob,
)
from holdfast.store import Query, Store, create, patch
from tests.browser import renewals_fixtures as scene
from tests.console.console_harness import console
from tests.faults.controlled_process import ControlledProcess, run_processes
from tests.services.renewals.adjustable_clock import AdjustableClock
from tests.services.renewals.calculation_fixtures import opened
from tests.services.renewals.crash_points import AHEAD_S, MODULE, PAGE, order, orders, standing, until_dead
from tests.services.renewals.flagged_property import (
    connect,
    flag,
    residents_sent,
    trigger_jobs_of,
    trigger_worker,
)
from tests.services.renewals.operators import operator_of, renewals_on
from tests.services.renewals.server import AS_OF, P, Server, calculating, serving, settle_in


@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_whole_tiers_are_told_of_batch_by_batch_on_every_engine(url: str) -> None:
    async with opened(url) as store:
        run = await flag(store, high=12, medium=6)
        await connect(store)
        async with trigger_worker(store, batch=PAGE) as jobs:
            job = await jobs.start(P, run, tiers=["high"], by="ann")
            ended = await jobs.wait(job.id, within_s=60)
            assert (ended.status, ended.told, ended.residents, ended.error) == ("completed", 12, 12, None)
            assert ended.counts == {"created": 12}
            again = await jobs.wait((await jobs.start(P, run, tiers=FLAGGED)).id, within_s=60)
        assert again.counts == {"already queued": 12, "created": 6}
        assert sorted(await residents_sent(store)) == [f"r-{n:05}" for n in range(18)]


async def test_a_tier_of_more_than_ten_thousand_is_told_of_by_a_job(sqlite_url: str) -> None:
    """`HOLDFAST_TRIGGERED_RESIDENTS` sets how many are flagged (10,400 unless told)."""
    residents = int(os.environ.get("HOLDFAST_TRIGGERED_RESIDENTS", "10400"))
    async with opened(sqlite_url) as store:
        await flag(store, high=residents, medium=3)
        await connect(store)
        renewals, by = renewals_on(store), operator_of(store, actor="ann")
        few = await renewals.trigger_tiers(by, P, tiers=["medium"])
        assert isinstance(few, list)
        assert len(few) == 3
        job = await renewals.trigger_tiers(by, P, tiers=["high"])
        assert isinstance(job, TriggerJob)
        assert (job.status, job.residents, job.told, job.requested_by) == ("pending", residents, 0, "ann")
        async with trigger_worker(store) as jobs:
            ended = await jobs.wait(job.id, within_s=300)
        assert (ended.status, ended.told, ended.counts) == ("completed", residents, {"created": residents})
        query = Query(DeliveryState).where("endpoint_id", "==", P).order_by("-created_at")
        assert await store.tenant("-").count(query) == residents + 3


STAGES = [("before", "events", 1), ("after", "events", 1), ("before", "events", 2), ("before", "end", 1)]


@pytest.mark.parametrize(("url", "stages"), [("sqlite", STAGES), ("postgres", STAGES[1:])], indirect=["url"])
async def test_a_job_whose_workers_are_killed_at_every_stage_tells_of_everybody_once(
    url: str, stages: list[tuple[str, str, int]]
) -> None:
    clock = AdjustableClock()
    async with opened(url, clock=clock) as store:
        run = await flag(store, high=23)
        await connect(store)
        jobs = trigger_jobs_of(store)
        job = await jobs.start(P, run, tiers=["high"])
        async with run_processes(MODULE, "tell", *orders(url, stages)) as mortal:
            told = [await _lives(one, store, job.id) for one in mortal]
        clock.moved = timedelta(seconds=AHEAD_S * len(stages))
        assert told == sorted(told)
        assert told[-1] == 23
        async with trigger_worker(store, batch=PAGE):
            ended = await jobs.wait(job.id, within_s=30)
        # What had been kept is gone on from, so each is counted as what it was at first.
        assert (ended.status, ended.told, ended.counts) == ("completed", 23, {"created": 23})
        assert sorted(await residents_sent(store)) == [f"r-{n:05}" for n in range(23)]


async def _lives(process: ControlledProcess, store: Store, job_id: str) -> int:
    """Let it work until it dies; gives how many were told of by then."""
    await until_dead(process)
    return (await trigger_jobs_of(store).get(job_id)).told


async def test_a_worker_that_stood_still_past_its_claim_tells_of_nobody(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        run = await flag(store, high=23)
        await connect(store)
        jobs = trigger_jobs_of(store)
        job = await jobs.start(P, run, tiers=["high"])
        async with standing("tell", sqlite_url, "events") as paused:
            async with trigger_worker(store, batch=PAGE):
                ended = await jobs.wait(job.id, within_s=30)
            paused.resume()
            async with trigger_worker(store, batch=PAGE):
                later = await jobs.wait((await jobs.start(P, run, tiers=["high"])).id, within_s=30)
        assert (ended.told, ended.counts) == (23, {"created": 23})
        assert later.counts == {"already queued": 23}
        assert (await jobs.get(job.id)).told == 23
        assert sorted(await residents_sent(store)) == [f"r-{n:05}" for n in range(23)]


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_simultaneous_starts_give_one_job_and_another_tier_waits_its_turn(url: str) -> None:
    async with opened(url) as store:
        run = await flag(store, high=7, medium=7)
        await connect(store)
        jobs = trigger_jobs_of(store)
        started = await asyncio.gather(*(jobs.start(P, run, tiers=["high"]) for _ in range(20)))
        assert len({job.id for job in started}) == 1
        with pytest.raises(ConflictError, match=r"7 residents .* wait until it is done"):
            await jobs.start(P, run, tiers=["medium"])
        async with trigger_worker(store):
            await jobs.wait(started[0].id, within_s=30)
            other = await jobs.wait((await jobs.start(P, run, tiers=["medium"])).id, within_s=30)
        assert other.counts == {"created": 7}


def _resident(score: RiskScore) -> Resident:
    return Resident(
        id=score.resident_id, property_id=P, unit_id=score.unit_id, first_name="R", last_name="Example"
    )


async def test_a_job_and_many_who_send_one_each_make_one_event_of_each(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        run = await flag(store, high=60)
        await connect(store)
        renewals, by = renewals_on(store), operator_of(store)
        scores = (await renewals.portfolio("-").risk(run, P, limit=100)).docs
        await store.tenant("-").commit(*(create(_resident(one)) for one in scores))
        async with trigger_worker(store, batch=PAGE) as jobs:
            job = await jobs.start(P, run, tiers=["high"])
            single = await asyncio.gather(*(renewals.trigger(by, P, one.resident_id) for one in scores))
            ended = await jobs.wait(job.id, within_s=30)
        assert (ended.status, ended.told, sum(ended.counts.values())) == ("completed", 60, 60)
        created = sum(one.status == "created" for one in single) + ended.counts.get("created", 0)
        assert created == 60
        assert len(await residents_sent(store)) == 60


async def test_a_job_that_is_cancelled_tells_of_no_further_batch(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        run = await flag(store, high=23)
        await connect(store)
        jobs = trigger_jobs_of(store)
        job = await jobs.start(P, run, tiers=["high"])
        async with standing("tell", sqlite_url, "events", lease_s=600) as paused:
            await Runs(store.tenant("-"), models=TRIGGER_JOBS).cancel(job.id, reason="the wrong tier")
            paused.resume()
            ended = await jobs.wait(job.id, within_s=30)
        assert (ended.status, ended.error, ended.told) == ("cancelled", "the wrong tier", 2 * PAGE)
        assert len(await residents_sent(store)) == 2 * PAGE
        # The property is free for what was meant.
        async with trigger_worker(store):
            later = await jobs.wait((await jobs.start(P, run, tiers=["high"])).id, within_s=30)
        assert later.counts == {"already queued": 10, "created": 13}


async def test_what_was_given_up_is_put_out_anew_and_what_arrived_is_left(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        run = await flag(store, high=4)
        await connect(store)
        home = store.tenant("-")
        told = await renewals_on(store).trigger_tiers(operator_of(store), P)
        assert isinstance(told, list)
        for one, status in zip(told, ("dlq", "delivered", "skipped"), strict=False):
            for step in ("sending", status) if status != "skipped" else ("cancelled",):
                await home.commit(patch(DeliveryState, one.delivery_id, changes={"status": step}))
        async with trigger_worker(store) as jobs:
            ended = await jobs.wait((await jobs.start(P, run, tiers=["high"])).id, within_s=30)
        assert ended.counts == {"re-queued": 2, "already delivered": 1, "already queued": 1}


async def test_a_job_ends_with_the_reason_where_the_rms_is_switched_off_and_is_gone_on_with_later(
    sqlite_url: str,
) -> None:
    async with opened(sqlite_url) as store:
        run = await flag(store, high=23)
        jobs, home = trigger_jobs_of(store), store.tenant("-")
        with pytest.raises(ConflictError, match="has no RMS endpoint"):
            await jobs.start(P, run, tiers=["high"])
        await connect(store)
        job = await jobs.start(P, run, tiers=["high"])
        async with run_processes(MODULE, "tell", order(sqlite_url, "after", "events", 2)) as (mortal,):
            assert await _lives(mortal, store, job.id) == 2 * PAGE
        await home.commit(patch(RmsEndpoint, P, changes={"status": "disabled", "reason": "gone"}))
        async with trigger_worker(store, batch=PAGE):
            ended = await jobs.wait(job.id, within_s=30)
            assert (ended.status, ended.told) == ("failed", 2 * PAGE)
            assert "is disabled (gone); enable it with" in (ended.error or "")
            await home.commit(patch(RmsEndpoint, P, changes={"status": "active", "reason": ""}))
            later = await jobs.wait((await jobs.start(P, run, tiers=["high"])).id, within_s=30)
        assert later.counts == {"already queued": 10, "created": 13}
        assert len(await residents_sent(store)) == 23


# -- where people meet it -------------------------------------------------------------------------


@pytest.fixture
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.services.renewals.operations.AT_ONCE_MAX", 1)


async def test_the_api_answers_with_the_job_and_the_rms_hears_of_each_once(
    server: Server, two_are_many: None
) -> None:
    await server.calculate()
    await server.endpoint()
    path = f"/properties/{P}/trigger-renewal-events"
    assert (await server.post(path, {"tier": "high"}))["counts"]["created"] == 1
    job = await server.post(path, {"tier": "flagged"}, status=202)
    assert job["statusUrl"] == f"/renewals/api/v1/trigger-jobs/{job['jobId']}"
    assert job["summary"] == "Sending 3 residents to the RMS; 0 done."
    await server.renewals.trigger_jobs("-").wait(job["jobId"], within_s=30)
    seen = await server.get(f"/trigger-jobs/{job['jobId']}")
    assert (seen["status"], seen["told"], seen["residents"]) == ("completed", 3, 3)
    assert (seen["counts"]["created"], sum(seen["counts"].values())) == (2, 3)
    assert seen["summary"].startswith("2 new events are in flight; 1 was ")
    async with asyncio.timeout(60):
        while len(server.rms.state.received) < 3:  # noqa: ASYNC110 - the RMS is another's
            await asyncio.sleep(0.02)
    heard = [msgspec.json.decode(one.body)["residentId"] for one in server.rms.state.received]
    assert sorted(heard) == ["bob", "jane", "john"]
    async with server.client.get("/metrics", headers={"authorization": f"Bearer {server.token}"}) as answer:
        assert 'holdfast_renewals_trigger_jobs_total{outcome="carried"} 1.0' in await answer.text()


async def test_who_asks_second_gets_the_first_ones_job_or_is_told_what_is_under_way_and_what_to_do(
    tmp_path: Path, two_are_many: None
) -> None:
    # Calculations are worked on here, trigger jobs are not: so that one stands still.
    async with serving(tmp_path, working=False) as server, calculating(server):
        await settle_in(server.store)
        await server.calculate()
        await server.endpoint()
        path = f"/properties/{P}/trigger-renewal-events"
        first = await server.post(path, {"tier": "flagged"}, status=202)
        joined = await server.post(path, {"tier": "flagged"}, status=202)
        assert (joined["jobId"], joined["requestedBy"]) == (first["jobId"], first["requestedBy"])
        assert first["requestedBy"]
        started = Query(AuditEvent).where("action", "==", "renewals.trigger_started").order_by("-sequence")
        assert [one.details["job"] for one in (await server.store.query(started)).docs] == [first["jobId"]]
        await server.calculate(as_of=AS_OF + timedelta(days=1))
        status, refused = await server.ask("POST", path, json={"tier": "flagged"})
    assert status == 409
    said = refused["error"]["message"]
    assert "a job is sending 3 residents" in said
    assert f"(high and medium risk of an earlier run, {first['jobId']}" in said
    assert f"requested by {first['requestedBy']}" in said
    assert f"`holdfast runs cancel {first['jobId']} --collection renewal_trigger_jobs`" in said


async def test_operators_see_calculations_and_trigger_jobs_among_the_runs(
    server: Server, two_are_many: None
) -> None:
    run = await server.calculate()
    await server.endpoint()
    job = await server.post(f"/properties/{P}/trigger-renewal-events", {"tier": "flagged"}, status=202)
    found = server.runtime.runs("-")
    for name, id in (("renewal_calculation_jobs", run["jobId"]), ("renewal_trigger_jobs", job["jobId"])):
        assert [one.id for one in (await found[name].page()).docs] == [id]


async def test_the_page_of_the_property_shows_how_far_it_is_and_why_it_stopped(
    tmp_path: Path, two_are_many: None
) -> None:
    async with console(tmp_path, services=[service]) as server:
        store = server.runtime.store
        await flag(store, high=7)
        await connect(store)
        renewals, home = scene.renewals_of(server.runtime), store.tenant("-")
        ann, page = await server.signed_in("ann"), f"/console/renewals/properties/{P}"
        assert "residents at high risk to the RMS" not in await ann.page(page)
        job = await renewals.trigger_tiers(operator_of(store), P, tiers=["high"])
        assert isinstance(job, TriggerJob)
        assert "Sending 7 residents at high risk to the RMS: 0 done." in await ann.page(page)
        assert f'href="/console/runs/renewal_trigger_jobs/{job.id}"' in await ann.page(page)
        assert job.id in await ann.page("/console/runs?collection=renewal_trigger_jobs")
        shown = await ann.page(f"/console/runs/renewal_trigger_jobs/{job.id}")
        assert f"&#34;propertyId&#34;: &#34;{P}&#34;" in shown
        assert "&#34;residents&#34;: 7" in shown
        ben = await server.signed_in("ben", role="viewer")
        assert "propertyId" not in await ben.page(f"/console/runs/renewal_trigger_jobs/{job.id}")
        await home.commit(patch(RmsEndpoint, P, changes={"status": "disabled", "reason": "gone"}))
        async with trigger_worker(store):
            await renewals.trigger_jobs("-").wait(job.id, within_s=30)
        page_text = await ann.page(page)
        assert "0 of 7 residents at high risk were sent to the RMS, then this failed: send: Inv" in page_text
