"""What can come between while a run calculates: kills, pauses, clocks that jump, people who come and go."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.services.renewals.models import CalculationJob, LeaseRow, Property, PropertyState, Resident
from holdfast.store import Store, create, delete, patch
from tests.faults.controlled_process import run_processes
from tests.services.renewals.adjustable_clock import AdjustableClock
from tests.services.renewals.calculation_fixtures import jobs_of, opened, working
from tests.services.renewals.crash_points import AHEAD_S, MODULE, PAGE, orders, standing
from tests.services.renewals.run_fixtures import PEOPLE, lives, scores_by_resident
from tests.services.renewals.server import AS_OF, P, Person, settle_in

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
        asked = orders(url, [*stages, ("after", "end", 1)])
        async with run_processes(MODULE, "calculate", *asked) as (*mortal, last):
            scored = [await lives(one, store, job.id) for one in mortal]
            await lives(last, store, job.id)
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


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_stood_still_past_its_claim_adds_nothing_to_the_run(url: str) -> None:
    clock = AdjustableClock()
    async with opened(url, clock=clock) as store:
        home = store.tenant("-")
        await settle_in(home, PEOPLE)
        jobs = jobs_of(store)
        job = await jobs.start(P, as_of=AS_OF)
        async with standing("calculate", url, "scores") as paused:
            # What the paused one has read and scored is no longer so.
            await home.commit(patch(Resident, "r07", changes={"status": "moved_out"}))
            await home.commit(patch(LeaseRow, "lease-r08", changes={"status": "terminated"}))
            clock.moved = timedelta(seconds=AHEAD_S)
            async with working(store, page=PAGE):
                ended = await jobs.wait(job.id, within_s=30)
            assert (ended.status, ended.scored, ended.skipped) == ("completed", 18, 1)
            paused.resume()
            assert await paused.hear() == "LeaseLostError"
            async with working(store, page=PAGE) as local_dispatcher:
                later = await local_dispatcher.wait(
                    (await local_dispatcher.start(P, as_of=AS_OF)).id, within_s=30
                )
            assert later.scored == 18
        found = await scores_by_resident(store, ended)
        assert len(found) == 18
        assert not {"r07", "r08"} & set(found)
        assert (await jobs.get(job.id)).scored == 18


async def test_a_clock_that_jumps_during_a_run_leaves_nothing_half_done(sqlite_url: str) -> None:
    clock = AdjustableClock()
    async with opened(sqlite_url, clock=clock) as store:
        await settle_in(store.tenant("-"), PEOPLE)
        async with working(store, page=1) as jobs:

            async def ended_after(jump: timedelta) -> CalculationJob:
                job = await jobs.start(P, as_of=AS_OF)
                await _scored_some(store, job.id)
                clock.moved += jump
                return await jobs.wait(job.id, within_s=30)

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
    async with asyncio.timeout(60):
        while True:
            found = await store.tenant("-").get(CalculationJob, job_id)
            if found is not None and found.doc.scored:
                return
            await asyncio.sleep(0)


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
            ended = await jobs.wait(job.id, within_s=30)
        assert (ended.status, ended.error) == ("completed", None)
        found = await scores_by_resident(store, ended)
        # Aaron comes before those who were scored already, Zoe after; R00 was scored before leaving.
        assert set(found) == {one.name.lower() for one in PEOPLE} - {"r19"} | {"zoe"}
        assert ended.scored == ended.residents == len(found) == ended.high + ended.medium + ended.low


async def settle_documents(store: Store, documents: list[Any]) -> None:
    await store.commit(*(create(one) for one in documents))


async def test_a_property_that_is_removed_before_its_run_begins_ends_it_with_the_reason(
    sqlite_url: str,
) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        await settle_in(home)
        job = await jobs_of(store).start(P)
        await home.commit(delete(Property, P))
        async with working(store) as jobs:
            ended = await jobs.wait(job.id, within_s=30)
    assert (ended.status, ended.scored) == ("failed", 0)
    assert "was removed since" in (ended.error or "")
