"""A wrong run is withdrawn: the one before it counts again, and what was sent stays on record."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from holdfast.kit.audit import AuditEvent
from holdfast.services.renewals import service
from holdfast.services.renewals.models import CalculationJob
from holdfast.store import Query, Store
from tests.browser import renewals_fixtures as scene
from tests.console.console_harness import console
from tests.services.renewals.calculation_fixtures import opened, working
from tests.services.renewals.crash_points import PAGE
from tests.services.renewals.flagged_property import connect, residents_sent, trigger_worker
from tests.services.renewals.operators import operator_of, renewals_on
from tests.services.renewals.run_fixtures import PEOPLE
from tests.services.renewals.server import AS_OF, P, Server, settle_in

EARLIER = date(2026, 2, 1)


async def _calculate(store: Store, *days: date) -> list[CalculationJob]:
    async with working(store) as jobs:
        ended = [await jobs.wait((await jobs.start(P, as_of=day)).id, within_s=60) for day in days]
    assert {one.status for one in ended} == {"completed"}
    return ended


async def _withdrawals(store: Store) -> list[AuditEvent]:
    query = Query(AuditEvent).order_by("sequence")
    events = [one.doc async for one in store.tenant("-").scan(query)]
    return [one for one in events if one.action == "renewals.run_withdrawn"]


@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_the_run_before_a_withdrawn_one_counts_again_on_every_engine(url: str) -> None:
    async with opened(url) as store:
        await settle_in(store.tenant("-"))
        first, wrong = await _calculate(store, AS_OF, EARLIER)
        renewals, by = renewals_on(store), operator_of(store, actor="ann")
        with pytest.raises(
            ConflictError, match=f"not the latest; withdraw those after it first, '{wrong.id}'"
        ):
            await renewals.withdraw(by, P, first.id)

        done = await renewals.withdraw(by, P, wrong.id, reason="wrong day")

        portfolio = renewals.portfolio("-")
        assert done.latest == await portfolio.runs.latest(P)
        assert (done.latest.job_id, done.events) == (first.id, {})  # type: ignore[union-attr]
        assert [one.job_id for one in (await portfolio.runs.all(P))[0]] == [first.id]
        assert {one.calculated_at for one in (await portfolio.history("jane")).docs} == {first.calculated_at}
        assert await portfolio.runs.choose(P, as_of=EARLIER) is None
        with pytest.raises(
            ConflictError, match="was withdrawn by ann: wrong day; its scores count no longer"
        ):
            await portfolio.runs.get(P, wrong.id)
        with pytest.raises(ConflictError, match="was already withdrawn by ann: wrong day"):
            await renewals.withdraw(by, P, wrong.id)
        (event,) = [one for one in await _withdrawals(store) if one.outcome == "done"]
        assert (event.actor, event.subject, event.details["latest"]) == ("ann", wrong.id, first.id)
        assert event.details["reason"] == "wrong day"

        assert (await renewals.withdraw(by, P, first.id)).latest is None
        with pytest.raises(ConflictError, match="not calculated yet"):
            await portfolio.require_run(P)
        (anew,) = await _calculate(store, AS_OF)
        assert (await portfolio.require_run(P)).job_id == anew.id


async def test_of_withdrawals_at_once_one_lands(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await settle_in(store.tenant("-"))
        first, wrong = await _calculate(store, AS_OF, EARLIER)
        renewals, by = renewals_on(store), operator_of(store)
        results = await asyncio.gather(
            *(renewals.withdraw(by, P, wrong.id) for _ in range(5)), return_exceptions=True
        )
        refused = [one for one in results if isinstance(one, ConflictError)]
        assert len(refused) == 4
        assert (await renewals.portfolio("-").require_run(P)).job_id == first.id
        assert [one.outcome for one in await _withdrawals(store)].count("done") == 1


async def test_a_job_that_sends_a_withdrawn_run_ends_with_the_reason(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await settle_in(store.tenant("-"), PEOPLE)
        await connect(store)
        (wrong,) = await _calculate(store, AS_OF)
        renewals, by = renewals_on(store), operator_of(store, actor="ann")
        run = await renewals.portfolio("-").require_run(P)
        jobs = renewals.trigger_jobs("-")
        job = await jobs.start(P, run, tiers=["high", "medium"])
        await renewals.withdraw(by, P, wrong.id, reason="wrong day")
        async with trigger_worker(store, batch=PAGE):
            ended = await jobs.wait(job.id, within_s=60)
        assert ended.status == "failed"
        assert "was withdrawn by ann: wrong day" in str(ended.error)
        assert not await residents_sent(store)


async def _sent(server: Server, run_id: str) -> list[tuple[str, str]]:
    found = await server.get(f"/properties/{P}/runs/{run_id}/deliveries")
    return [(one["residentId"], one["status"]) for one in found["items"]]


async def test_what_a_withdrawn_run_has_sent_stays_on_record(server: Server) -> None:
    await server.endpoint()
    first, wrong = await server.calculate(), await server.calculate(as_of=EARLIER)
    (result,) = (await server.post(f"/properties/{P}/trigger-renewal-events", {"residents": ["john"]}))[
        "items"
    ]
    await server.delivery(result["deliveryId"], "delivered")

    path = f"/properties/{P}/runs/{wrong['jobId']}/withdraw"
    done = await server.post(path, {"reason": "wrong day"})

    assert (done["latest"]["jobId"], done["events"]) == (first["jobId"], {"delivered": 1})
    assert "Events that it sent stay on record: 1 delivered." in done["summary"]
    assert await _sent(server, wrong["jobId"]) == [("john", "delivered")]
    assert await _sent(server, first["jobId"]) == []
    job = await server.get(f"/jobs/{wrong['jobId']}")
    assert (job["status"], job["withdrawnAt"]) == ("cancelled", done["withdrawnAt"])
    assert job["error"].endswith(": wrong day")
    status, answer = await server.ask("POST", path, json={})
    assert (status, answer["error"]["code"]) == (409, "conflict")
    for missing in (
        f"/properties/{P}/runs/run-lost/withdraw",
        f"/properties/p-9/runs/{first['jobId']}/withdraw",
    ):
        assert (await server.ask("POST", missing, json={}))[0] == 404
    # The run before it is the one that is sent by now, under ids of its own.
    (again,) = (await server.post(f"/properties/{P}/trigger-renewal-events", {"residents": ["john"]}))[
        "items"
    ]
    assert again["status"] == "created"
    assert again["eventId"] != result["eventId"]


async def test_the_page_offers_to_withdraw_the_latest_run_and_says_who_did(tmp_path: Path) -> None:
    async with console(tmp_path, services=[service], work=True) as harness:
        await scene.settle(harness.runtime, residents=5)
        for months_back in (1, 0):
            await scene.calculate(harness.runtime, months_back=months_back)
        renewals, property_id = scene.renewals_of(harness.runtime), scene.PROPERTIES[0]
        wrong = await renewals.portfolio("-").require_run(property_id)
        ann = await harness.signed_in("ann", role="developer")
        house = f"/console/renewals/properties/{property_id}"
        assert f"/properties/{property_id}/runs/{wrong.job_id}/withdraw" in await ann.page(house)
        await renewals.withdraw(
            scene.operator(harness.runtime), property_id, wrong.job_id, reason="wrong day"
        )
        page = await ann.page(house)
        assert f"The last calculation, as of {wrong.as_of_date}, was withdrawn by" in page
        assert "What is shown below is the run before it." in page
        assert "wrong day" in await ann.page(f"{house}/runs")
