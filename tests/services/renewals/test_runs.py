"""Calculation runs: one for many callers, several at once, each by its own rules and in its order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.services.renewals.domain.scoring import Thresholds
from holdfast.services.renewals.models import CalculationJob, Property, PropertyRules, PropertyState
from holdfast.store import Query, Store, create, delete
from tests.faults.controlled_process import run_processes
from tests.services.renewals.adjustable_clock import AdjustableClock
from tests.services.renewals.calculation_fixtures import jobs_of, opened, working
from tests.services.renewals.crash_points import MODULE, PAGE, order, standing
from tests.services.renewals.run_fixtures import PEOPLE, lives, scores_by_resident
from tests.services.renewals.server import AS_OF, P, Person, Server, settle_in

CALCULATE = f"/properties/{P}/renewal-risk/calculate"


async def test_a_key_stands_for_one_request(server: Server) -> None:
    await settle_in(server.store, [], property_id="p-2")
    for key in ("k", "a/b", "..", "__x__", "ключ".encode().decode("latin-1"), "x" * 200, "'; drop table"):
        headers = {"Idempotency-Key": key}
        body = {"asOfDate": "2026-03-01"}
        first = await server.post(CALCULATE + "?wait=true", body, headers=headers)
        again = await server.post(CALCULATE + "?wait=true", body, headers=headers)
        assert again == first, key
        for path, other in (
            (CALCULATE, {"asOfDate": "2026-03-02"}),
            (CALCULATE, {}),
            ("/properties/p-2/renewal-risk/calculate", body),
        ):
            status, answer = await server.ask("POST", path, json=other, headers=headers)
            assert (status, answer["error"]["code"]) == (422, "key_reused"), (key, answer)
            said = f"the key {key!r} was used for another property or day"
            # What is not ASCII comes in as its bytes, and is told so.
            assert said in answer["error"]["message"] or not key.isascii()
    for key in ("", "x" * 201):
        status, answer = await server.ask("POST", CALCULATE, json={}, headers={"Idempotency-Key": key})
        assert status == 422, (key, answer)
    # What came to nothing may be asked for again under its key.
    headers, path = {"Idempotency-Key": "early"}, "/properties/p-3/renewal-risk/calculate"
    for _ in range(2):
        assert (await server.ask("POST", path, json={}, headers=headers))[0] == 404
    await settle_in(server.store, [], property_id="p-3")
    assert (await server.post(path, {}, status=202, headers=headers))["propertyId"] == "p-3"


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_fifty_callers_in_two_processes_get_one_job(url: str) -> None:
    async with opened(url) as store:
        await settle_in(store.tenant("-"))
        asked = {"url": url, "property": P, "callers": 25}
        async with run_processes(MODULE, "start", asked, asked) as processes:
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
            async with working(store) as local_dispatcher:
                other = await local_dispatcher.start("p-2", as_of=AS_OF)
                assert (await local_dispatcher.wait(other.id, within_s=20)).status == "completed"
            assert (await jobs.get(stuck.id)).status == "running"
            process.resume()
            ended = await jobs.wait(stuck.id, within_s=30)
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
            ended = [await jobs.wait(job.id, within_s=30) for job in started]
        begun = [job.started_at for job in ended if job.started_at is not None]
        over = [job.completed_at for job in ended if job.completed_at is not None]
        assert len(begun) == len(over) == 3
        assert max(begun) < min(over)


async def test_a_run_keeps_to_the_rules_it_was_asked_for_by(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        home = store.tenant("-")
        await settle_in(home, PEOPLE)
        jobs = jobs_of(store)
        job = await jobs.start(P, as_of=AS_OF)
        async with run_processes(MODULE, "calculate", order(sqlite_url, "after", "scores", 1)) as (process,):
            assert 0 < await lives(process, store, job.id) < len(PEOPLE)
        rules = PropertyRules(
            property_id=P, thresholds=Thresholds(high=1, medium=0), updated_at=job.created_at
        )
        await home.commit(create(rules))
        async with working(store, page=PAGE) as local_dispatcher:
            ended = await local_dispatcher.wait(job.id, within_s=30)
            later = await local_dispatcher.wait(
                (await local_dispatcher.start(P, as_of=AS_OF)).id, within_s=30
            )
    assert (ended.scored, ended.low, later.high) == (len(PEOPLE), 0, len(PEOPLE))
    assert 0 < ended.medium == len(PEOPLE) - ended.high


async def test_runs_of_one_moment_and_of_a_clock_turned_back_keep_their_order(sqlite_url: str) -> None:
    clock = AdjustableClock()
    async with opened(sqlite_url, clock=clock) as store:
        await settle_in(store.tenant("-"))
        ended: list[CalculationJob] = []
        async with working(store) as jobs:

            async def run(days: int) -> None:
                job = await jobs.start(P, as_of=AS_OF + timedelta(days=days))
                ended.append(await jobs.wait(job.id, within_s=20))

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


async def test_a_property_without_residents_and_one_that_is_gone(server: Server) -> None:
    await settle_in(server.store, [], property_id="empty")
    told = await server.calculate("empty")
    assert (told["totalResidents"], told["flaggedCount"], told["flags"]) == (0, 0, [])
    assert told["riskTiers"] == {"high": 0, "medium": 0, "low": 0}
    await settle_in(server.store, [Person("Solo", 5, 1_000)], property_id="doomed")
    await server.calculate("doomed")
    await server.store.commit(delete(Property, "doomed"))
    status, _ = await server.ask("POST", "/properties/doomed/renewal-risk/calculate", json={})
    assert status == 404
