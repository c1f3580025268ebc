"""A resident's history is of finished runs: what is under way, failed or was cancelled is no result."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.kit.runs.models import RunStatus
from holdfast.services.renewals import service
from holdfast.services.renewals.models import CalculationJob, RiskScore
from holdfast.services.renewals.queries.outcomes import Outcomes
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.store import Store, create, patch
from holdfast.store.plan import QueryPlan
from tests.browser import renewals_fixtures as scene
from tests.console.console_harness import console
from tests.services.renewals.calculation_fixtures import opened, working
from tests.services.renewals.server import AS_OF, P, Server, settle_in

ENGINES: Final = ["sqlite", "postgres", "firestore"]
SECOND: Final = timedelta(seconds=1)
# How a run comes to each state that is not the end of a calculation.
WAYS: Final[dict[RunStatus, tuple[RunStatus, ...]]] = {
    "pending": (),
    "running": ("running",),
    "failed": ("running", "failed"),
    "cancelled": ("cancelled",),
}


def portfolio_of(store: Store) -> Portfolio:
    return Portfolio(store.tenant("-"))


async def leave(store: Store, score: RiskScore, *steps: RunStatus) -> None:
    """A score, and the job it is of as these steps leave it."""
    at = score.calculated_at
    job = CalculationJob(
        id=f"run-{at:%d%H%M%S%f}", type="calculate", property_id=score.property_id,
        as_of_date=score.as_of_date, calculated_at=at, created_at=at, updated_at=at,
    )  # fmt: skip
    await store.commit(create(job), create(score))
    for status in steps:
        await store.commit(patch(CalculationJob, job.id, changes={"status": status}))


def later(score: RiskScore, wait: timedelta, **changes: Any) -> RiskScore:
    at = score.calculated_at + wait
    return msgspec.structs.replace(score, id="", calculated_at=at, **changes)


async def finished(store: Store, runs: int) -> list[RiskScore]:
    """Jane's scores of so many runs that came to their end, the newest first."""
    await settle_in(store.tenant("-"))
    async with working(store) as jobs:
        for n in range(runs):
            job = await jobs.start(P, as_of=AS_OF + timedelta(days=n))
            assert (await jobs.wait(job.id, within_s=60)).status == "completed"
    return (await portfolio_of(store).history("jane")).docs


@pytest.mark.parametrize("url", ENGINES, indirect=True)
async def test_scores_of_runs_that_did_not_finish_are_no_history_on_any_engine(url: str) -> None:
    async with opened(url) as store:
        kept = await finished(store, 3)
        assert len(kept) == 3
        for n, steps in enumerate(WAYS.values(), 1):
            for one in (kept[0], kept[2]):
                wait = timedelta(microseconds=n)
                await leave(store.tenant("-"), later(one, wait, risk_score=99), *steps)
        portfolio = portfolio_of(store)
        assert (await portfolio.history("jane")).docs == kept
        # Pages are as long as they are asked to be, and none is lost or repeated between them.
        seen, cursor = list[RiskScore](), None
        for _ in kept:
            page = await portfolio.history("jane", limit=1, cursor=cursor)
            assert len(page.docs) == 1
            seen += page.docs
            cursor = page.cursor
        assert seen == kept
        assert (await portfolio.history("jane", limit=1, cursor=cursor)).docs == []


async def test_a_page_of_history_takes_two_questions_however_many_runs_it_shows(
    sqlite_url: str, plans: list[QueryPlan]
) -> None:
    async with opened(sqlite_url) as store:
        kept = await finished(store, 4)
        plans.clear()
        assert (await portfolio_of(store).history("jane")).docs == kept
        assert [plan.schema.cls for plan in plans] == [RiskScore, CalculationJob]


async def test_history_goes_on_where_a_resident_moved_to_another_property(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        (old,) = await finished(store, 1)
        home = store.tenant("-")
        await leave(home, later(old, SECOND, property_id="p-2"), "running", "failed")
        await leave(home, later(old, 2 * SECOND, property_id="p-2"), "running", "completed")
        page = await portfolio_of(store).history("jane")
        assert [(one.property_id, one.calculated_at) for one in page.docs] == [
            ("p-2", old.calculated_at + 2 * SECOND),
            (P, old.calculated_at),
        ]


async def test_a_history_is_kept_when_the_jobs_of_its_runs_are_gone(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        (kept,) = await finished(store, 1)
        home, long_ago = store.tenant("-"), -timedelta(days=10 * 365)
        early, wrong = later(kept, long_ago), later(kept, long_ago + SECOND)
        await leave(home, early, "running", "completed")
        await leave(home, wrong, "running", "failed")
        for one in (early, wrong):
            changes = {"completed_at": one.calculated_at}
            await home.commit(patch(CalculationJob, f"run-{one.calculated_at:%d%H%M%S%f}", changes=changes))
        assert await store.privileged().expire(CalculationJob) == 1
        page = await portfolio_of(store).history("jane")
        assert [one.calculated_at for one in page.docs] == [kept.calculated_at, early.calculated_at]


async def test_an_outcome_is_judged_by_a_run_that_finished(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        (kept,) = await finished(store, 1)
        home = store.tenant("-")
        await leave(home, later(kept, SECOND, risk_score=99), "running", "failed")
        day = (kept.calculated_at + timedelta(days=2)).date()
        made = await Outcomes(home).build("jane", "lease-jane", outcome="left", decided_on=day)
        assert (made.risk_score, made.calculated_at) == (67, kept.calculated_at)


async def test_the_api_tells_the_history_of_finished_runs(server: Server) -> None:
    await server.calculate()
    (score,) = (await server.renewals.portfolio("-").history("jane")).docs
    await leave(server.store, later(score, SECOND, risk_score=99), "running")
    for limit in (1, 50):
        told = await server.get(f"/residents/jane/risk-history?limit={limit}")
        assert [one["riskScore"] for one in told["items"]] == [67]


async def test_the_page_of_a_resident_shows_finished_runs(tmp_path: Path) -> None:
    async with console(tmp_path, services=[service], work=True) as server:
        await scene.settle(server.runtime, residents=3)
        await scene.calculate(server.runtime)
        portfolio = scene.renewals_of(server.runtime).portfolio("-")
        run = await portfolio.runs.latest(scene.PROPERTIES[0])
        assert run is not None
        score = (await portfolio.risk(run, scene.PROPERTIES[0])).docs[0]
        await leave(portfolio.store, later(score, SECOND, risk_score=99, risk_tier="high"), "running")
        ann = await server.signed_in("ann")
        shown = await ann.page(f"/console/renewals/residents/{score.resident_id}")
        assert "One run so far." in shown
        assert f"<b>{score.risk_score}</b>" in shown
        assert "99</b>" not in shown
