"""Calculation runs and what can come between: other callers, kills, pauses, clocks, changing data."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.clock import SystemClock, to_us
from holdfast.services.renewals.models import (
    CalculationJob,
    LeaseRow,
    Property,
    PropertyRules,
    PropertyState,
    Resident,
    RiskScore,
)
from holdfast.services.renewals.scoring import TIERS, Thresholds
from holdfast.services.renewals.triggering import scores_of_run
from holdfast.store import Query, Store, create, delete, patch
from tests.faults.puppet import Puppet, puppets
from tests.services.renewals.bed import AS_OF, Bed, P, Person, settle_in
from tests.services.renewals.calculations import jobs_of, opened, working
from tests.services.renewals.killing import MODULE, PAGE, order, standing, until_dead

CALCULATE = f"/properties/{P}/renewal-risk/calculate"
PEOPLE = [Person(f"R{n:02}", 20 + n, 1_400) for n in range(20)]


class Wayward(SystemClock):
    """A clock whose hands somebody moves, or holds; what has passed is not changed by it."""

    def __init__(self) -> None:
        self.held: datetime | None = None
        self.moved = timedelta()

    def now_us(self) -> int:
        return to_us(self.held) if self.held else super().now_us() + self.moved // timedelta(microseconds=1)


async def scores_by_resident(store: Store, job: CalculationJob) -> dict[str, RiskScore]:
    """Everybody's score of a run; each resident has one."""
    found = await scores_of_run(store.tenant("-"), job.property_id, job.calculated_at, tiers=TIERS)
    by_id = {one.resident_id: one for one in found}
    assert len(by_id) == len(found)
    return by_id


# -- who asks -------------------------------------------------------------------------------------


async def test_a_key_stands_for_one_request(bed: Bed) -> None:
    await settle_in(bed.store, [], property_id="p-2")
    for key in ("k", "a/b", "..", "__x__", "ключ".encode().decode("latin-1"), "x" * 200, "'; drop table"):
        headers = {"Idempotency-Key": key}
        body = {"asOfDate": "2026-03-01"}
        first = await bed.post(CALCULATE + "?wait=true", body, headers=headers)
        again = await bed.post(CALCULATE + "?wait=true", body, headers=headers)
        assert again == first, key
        for path, other in (
            (CALCULATE, {"asOfDate": "2026-03-02"}),
            (CALCULATE, {}),
            ("/properties/p-2/renewal-risk/calculate", body),
        ):
            status, answer = await bed.ask("POST", path, json=other, headers=headers)
            assert (status, answer["error"]["code"]) == (422, "key_reused"), (key, answer)
    for key in ("", "x" * 201):
        status, answer = await bed.ask("POST", CALCULATE, json={}, headers={"Idempotency-Key": key})
        assert status == 422, (key, answer)
    # What came to nothing may be asked for again under its key.
    headers, path = {"Idempotency-Key": "early"}, "/properties/p-3/renewal-risk/calculate"
    for _ in range(2):
        assert (await bed.ask("POST", path, json={}, headers=headers))[0] == 404
    await settle_in(bed.store, [], property_id="p-3")
    assert (await bed.post(path, {}, status=202, headers=headers))["propertyId"] == "p-3"


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_fifty_callers_in_two_processes_get_one_job(url: str) -> None:
    async with opened(url) as store:
        await settle_in(store.tenant("-"))
        asked = {"url": url, "property": P, "callers": 25}
        async with puppets(MODULE, "start", asked, asked) as processes:
            for one in processes:
                await one.hear_until("ready")
            for one in processes:
                one.say("go")
            said = [await one.hear() for one in processes]
        assert len(set(said)) == 1
        assert await _jobs(store) == said[:1]


async def _jobs(store: Store) -> list[str]:
    query = Query(CalculationJob).where("property_id", "==", P).where("status", "==", "pending")
    return [one.id for one in (await store.tenant("-").query(query.order_by("-calculated_at"))).docs]


async def test_a_property_is_calculated_while_another_ones_run_stands_still(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await settle_in(store.tenant("-"), PEOPLE)
        await settle_in(store.tenant("-"), [Person("Other", 10, 1_000)], property_id="p-2")
        jobs = jobs_of(store)
        stuck = await jobs.start(P, as_of=AS_OF)
        async with standing("calculate", sqlite_url, "scores", lease_s=600) as process:
            async with working(store) as near:
                other = await near.start("p-2", as_of=AS_OF)
                assert (await near.ended(other.id, within_s=20)).status == "completed"
            assert (await jobs.get(stuck.id)).status == "running"
            process.resume()
            ended = await jobs.ended(stuck.id, within_s=30)
        assert (ended.status, ended.scored) == ("completed", len(PEOPLE))
        assert ended.started_at is not None
        assert ended.started_at < (await jobs.get(other.id)).created_at


async def test_one_worker_calculates_several_properties_at_the_same_time(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        names = [f"p-{n}" for n in range(3)]
        for name in names:
            people = [Person(f"{name}-{one.name}", 10, 1_400) for one in PEOPLE]
            await settle_in(store.tenant("-"), people, property_id=name)
        # All are there before the worker is, so it takes them together; each needs ten commits.
        started = [await jobs_of(store).start(name, as_of=AS_OF) for name in names]
        async with working(store, page=2) as jobs:
            ended = [await jobs.ended(job.id, within_s=30) for job in started]
        begun = [job.started_at for job in ended if job.started_at is not None]
        over = [job.completed_at for job in ended if job.completed_at is not None]
        assert len(begun) == len(over) == 3
        assert max(begun) < min(over)


# -- who dies -------------------------------------------------------------------------------------

BEGUN = [("before", "begin", 1), ("after", "begin", 1)]
KEPT = [("after", "scores", 1), ("before", "end", 1)]


@pytest.mark.parametrize(("url", "stages"), [("sqlite", BEGUN + KEPT), ("postgres", KEPT)], indirect=["url"])
async def test_a_run_whose_workers_are_killed_at_every_stage_comes_to_its_end(
    url: str, stages: list[tuple[str, str, int]]
) -> None:
    async with opened(url) as store:
        await settle_in(store.tenant("-"), PEOPLE)
        jobs = jobs_of(store)
        job = await jobs.start(P, as_of=AS_OF)
        orders = [order(url, *stage) for stage in stages]
        async with puppets(MODULE, "calculate", *orders, order(url, "after", "end")) as processes:
            *mortal, last = processes
            scored = [await _lives(one, store, job.id) for one in mortal]
            await _lives(last, store, job.id)
        # What was kept is gone on from; nothing is scored anew, nothing is left out.
        assert scored == sorted(scored)
        assert scored[-1] == len(PEOPLE)
        ended = await jobs.get(job.id)
        assert (ended.status, ended.error, ended.scored) == ("completed", None, len(PEOPLE))
        assert set(await scores_by_resident(store, ended)) == {one.name.lower() for one in PEOPLE}
        state = await store.tenant("-").get(PropertyState, P)
        assert state is not None
        assert state.doc.latest is not None
        assert state.doc.latest.total_residents == len(PEOPLE) == ended.high + ended.medium + ended.low
        # The last one was killed after its ending commit, so nothing is under way: the next run is a new one.
        assert (await jobs.start(P)).id != job.id


async def _lives(process: Puppet, store: Store, job_id: str) -> int:
    """Let it work until it dies; gives how many the run has scored by then."""
    await until_dead(process)
    found = await store.tenant("-").get(CalculationJob, job_id)
    assert found is not None
    return found.doc.scored


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_stood_still_past_its_claim_adds_nothing_to_the_run(url: str) -> None:
    async with opened(url) as store:
        home = store.tenant("-")
        await settle_in(home, PEOPLE)
        jobs = jobs_of(store)
        job = await jobs.start(P, as_of=AS_OF)
        async with standing("calculate", url, "scores") as paused:
            # What the paused one has read and scored is no longer so.
            await home.commit(patch(Resident, "r07", changes={"status": "moved_out"}))
            await home.commit(patch(LeaseRow, "lease-r08", changes={"status": "terminated"}))
            async with working(store, page=PAGE):
                ended = await jobs.ended(job.id, within_s=30)
            assert (ended.status, ended.scored, ended.skipped) == ("completed", 18, 1)
            paused.resume()
            async with working(store, page=PAGE) as near:
                # A later run is carried while the other one wakes up and gives in.
                later = await near.ended((await near.start(P, as_of=AS_OF)).id, within_s=30)
            assert later.scored == 18
        found = await scores_by_resident(store, ended)
        assert len(found) == 18
        assert not {"r07", "r08"} & set(found)
        assert (await jobs.get(job.id)).scored == 18


async def test_a_run_keeps_to_the_rules_it_was_asked_for_by(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        await settle_in(home, PEOPLE)
        jobs = jobs_of(store)
        job = await jobs.start(P, as_of=AS_OF)
        async with puppets(MODULE, "calculate", order(sqlite_url, "after", "scores", 1)) as (process,):
            assert 0 < await _lives(process, store, job.id) < len(PEOPLE)
        rules = PropertyRules(
            property_id=P, thresholds=Thresholds(high=1, medium=0), updated_at=job.created_at
        )
        await home.commit(create(rules))
        async with working(store, page=PAGE) as near:
            ended = await near.ended(job.id, within_s=30)
            later = await near.ended((await near.start(P, as_of=AS_OF)).id, within_s=30)
    assert (ended.scored, ended.low, later.high) == (len(PEOPLE), 0, len(PEOPLE))
    assert 0 < ended.medium == len(PEOPLE) - ended.high


# -- the clock ------------------------------------------------------------------------------------


async def test_runs_of_one_moment_and_of_a_clock_turned_back_keep_their_order(sqlite_url: str) -> None:
    clock = Wayward()
    async with opened(sqlite_url, clock=clock) as store:
        await settle_in(store.tenant("-"))
        ended: list[CalculationJob] = []
        async with working(store) as jobs:

            async def run(days: int) -> None:
                job = await jobs.start(P, as_of=AS_OF + timedelta(days=days))
                ended.append(await jobs.ended(job.id, within_s=20))

            clock.held = clock.now()
            for days in (0, 10, 20):
                await run(days)
            clock.held = None
            clock.moved = timedelta(days=-1)
            await run(30)
            clock.moved = timedelta(days=1)
            await run(40)
        assert [(job.status, job.scored) for job in ended] == [("completed", 4)] * 5
        times = [job.calculated_at for job in ended]
        assert times == sorted(set(times))
        for n, job in enumerate(ended):
            jane = (await scores_by_resident(store, job))["jane"]
            assert jane.days_to_expiry == 45 - 10 * n
        state = await store.tenant("-").get(PropertyState, P)
        assert state is not None
        assert state.doc.latest is not None
        assert state.doc.latest.job_id == ended[-1].id


async def test_a_clock_that_jumps_during_a_run_leaves_nothing_half_done(sqlite_url: str) -> None:
    clock = Wayward()
    async with opened(sqlite_url, clock=clock) as store:
        await settle_in(store.tenant("-"), PEOPLE)
        async with working(store, page=1) as jobs:

            async def ended_after(jump: timedelta) -> CalculationJob:
                job = await jobs.start(P, as_of=AS_OF)
                await _scored_some(store, job.id)
                clock.moved += jump
                return await jobs.ended(job.id, within_s=30)

            # On past the claim, which then is anybody's; and back to before it was made.
            for jump in (timedelta(minutes=10), timedelta(hours=-3)):
                ended = await ended_after(jump)
                assert (ended.status, ended.scored, ended.error) == ("completed", len(PEOPLE), None), jump
                assert len(await scores_by_resident(store, ended)) == len(PEOPLE)
            # On past the run's time limit: it may end as failed, with its reason, and the next one works.
            ended = await ended_after(timedelta(days=30))
            assert ended.status == "completed" or ended.error == "the run took longer than its time limit"
            assert (await ended_after(timedelta(days=-60))).scored == len(PEOPLE)


async def _scored_some(store: Store, job_id: str) -> None:
    async with asyncio.timeout(20):
        while True:
            found = await store.tenant("-").get(CalculationJob, job_id)
            if found is not None and found.doc.scored:
                return
            await asyncio.sleep(0)


# -- what changes meanwhile -----------------------------------------------------------------------


async def test_a_run_goes_on_while_people_come_and_go_and_the_property_is_renamed(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        await settle_in(home, PEOPLE)
        jobs = jobs_of(store)
        job = await jobs.start(P, as_of=AS_OF)
        async with standing("calculate", sqlite_url, "scores", lease_s=600) as process:
            await home.commit(delete(Resident, "r00"), delete(Resident, "r19"))
            for name in ("Aaron", "Zoe"):
                documents = Person(name, 10, 1_400).documents(P, AS_OF)
                await settle_documents(home, documents)
            await home.commit(patch(Property, P, changes={"name": "Another name", "time_zone": "Asia/Tokyo"}))
            process.resume()
            ended = await jobs.ended(job.id, within_s=30)
        assert (ended.status, ended.error) == ("completed", None)
        found = await scores_by_resident(store, ended)
        # Aaron comes before those who were scored already, Zoe after; R00 was scored before leaving.
        assert set(found) == {one.name.lower() for one in PEOPLE} - {"r19"} | {"zoe"}
        assert ended.scored == ended.residents == len(found) == ended.high + ended.medium + ended.low


async def settle_documents(store: Store, documents: list[Any]) -> None:
    await store.commit(*(create(one) for one in documents))


async def test_a_property_without_residents_and_one_that_is_gone(bed: Bed) -> None:
    await settle_in(bed.store, [], property_id="empty")
    told = await bed.calculate("empty")
    assert (told["totalResidents"], told["flaggedCount"], told["flags"]) == (0, 0, [])
    assert told["riskTiers"] == {"high": 0, "medium": 0, "low": 0}
    await settle_in(bed.store, [Person("Solo", 5, 1_000)], property_id="doomed")
    await bed.calculate("doomed")
    await bed.store.commit(delete(Property, "doomed"))
    status, _ = await bed.ask("POST", "/properties/doomed/renewal-risk/calculate", json={})
    assert status == 404


async def test_a_property_that_is_removed_before_its_run_begins_ends_it_with_the_reason(
    sqlite_url: str,
) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        await settle_in(home)
        job = await jobs_of(store).start(P)
        await home.commit(delete(Property, P))
        async with working(store) as jobs:
            ended = await jobs.ended(job.id, within_s=30)
    assert (ended.status, ended.scored) == ("failed", 0)
    assert "was removed since" in (ended.error or "")
