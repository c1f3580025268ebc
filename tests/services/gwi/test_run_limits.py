"""Starts of runs against the limits of a tenant's plan, on every engine."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.errors import (
    ConflictError,
    ForbiddenError,
    LimitReachedError,
    NotFoundError,
    RetryLaterError,
)
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.models.tenants import Repo, Tenant
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.services.gwi.run_starts import AT_ONCE, runs_this_month
from holdfast.testing import ManualClock
from tests.services.gwi.run_harness import REPO, TENANT, RunHarness, a_request, limits, run_harness

STARTS = 100


async def _try(harness: RunHarness) -> AgentRun | LimitReachedError:
    try:
        return await harness.gwi.runs.start_run(harness.by(), a_request())
    except LimitReachedError as fault:
        return fault


@pytest.mark.parametrize(("monthly", "at_once", "started"), [(7, 50, 7), (500, 5, 5)])
async def test_simultaneous_starts_never_pass_a_limit(
    any_url: str, clock: ManualClock, tmp_path: Path, monthly: int, at_once: int, started: int
) -> None:
    found = {"limits": limits(monthly=monthly, at_once=at_once)}
    async with (
        run_harness(any_url, clock, tmp_path, found=found) as first,
        run_harness(any_url, clock, tmp_path) as second,
    ):
        tries = STARTS if any_url.startswith("sqlite") else STARTS // 5
        answers = await asyncio.gather(*(_try((first, second)[n % 2]) for n in range(tries)))
        runs = [one for one in answers if isinstance(one, AgentRun)]
        assert len(runs) == started
        stored = await first.gwi.runs.page(TENANT, RunFilter(), limit=200)
        assert {one.id for one in stored.docs} == {one.id for one in runs}
        refusals = [one for one in answers if isinstance(one, LimitReachedError)]
        limit = min(monthly, at_once)
        assert {(one.usage, one.limit, one.plan) for one in refusals} == {(limit, limit, "pro")}
        assert {one.after_s for one in refusals} == {None if limit == monthly else 30.0}
        assert await first.meter.used(AT_ONCE) == started
        assert (await first.gwi.runs.stats(TENANT)).started == started
        tenant, repo = await first.store.get(Tenant, TENANT), await first.store.get(Repo, TENANT, REPO)
        assert tenant is not None
        assert repo is not None
        assert (tenant.doc.runs_this_month, repo.doc.total_runs) == (started, started)
        assert (await first.gwi.runs.events(TENANT, runs[0].id)).docs[0].action == "run_started"


async def test_an_ended_run_frees_its_place_and_a_new_month_begins_at_zero(
    sqlite_url: str, tmp_path: Path
) -> None:
    clock = ManualClock(datetime(2026, 11, 30, 23, 0, tzinfo=UTC))
    found = {"limits": limits(monthly=2, at_once=1)}
    async with run_harness(sqlite_url, clock, tmp_path, found=found) as harness:
        for _ in range(2):
            run = await harness.gwi.runs.start_run(harness.by(), a_request())
            refused = await _try(harness)
            assert isinstance(refused, LimitReachedError)
            ended = await harness.gwi.runs.cancel(harness.by(), run.id, reason="enough")
            assert ended.status == "cancelled"
        stats = await harness.gwi.runs.stats(TENANT)
        assert (stats.started, stats.active, stats.cancelled) == (2, 0, 2)
        refused = await _try(harness)
        assert isinstance(refused, LimitReachedError)
        assert (refused.usage, refused.limit, refused.after_s) == (2, 2, None)
        await clock.advance(3_600)
        await harness.gwi.runs.start_run(harness.by(), a_request())
        tenant = await harness.store.get(Tenant, TENANT)
        assert tenant is not None
        assert runs_this_month(tenant.doc, clock.now()) == 1
        assert await harness.meter.used("runs 2026-11") == 2
        assert await harness.meter.used("runs 2026-12") == 1


async def test_who_may_not_start_runs_is_told_why(
    sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with run_harness(sqlite_url, clock, tmp_path, found={}) as harness:
        start = harness.gwi.runs.start_run
        with pytest.raises(ForbiddenError):
            await start(harness.by("vera"), a_request())
        with pytest.raises(NotFoundError, match="gh-repo-1"):
            await start(harness.by(), a_request(repo_id="gh-repo-1"))
        await harness.change_tenant(paused_at=clock.now())
        with pytest.raises(RetryLaterError, match="paused"):
            await start(harness.by(), a_request())
        await harness.change_tenant(paused_at=None, status="suspended")
        with pytest.raises(ForbiddenError, match="suspended"):
            await start(harness.by(), a_request())
        await harness.change_tenant(status="active")
        with pytest.raises(ConflictError):
            await harness.gwi.runs.approve(harness.by("adam"), (await start(harness.by(), a_request())).id)


async def test_at_most_ten_runs_a_day_start_by_themselves_in_a_repository(
    sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with run_harness(sqlite_url, clock, tmp_path, found={"limits": limits()}) as harness:
        for _ in range(10):
            await harness.gwi.runs.start_run(harness.by(), a_request(automatic=True))
        with pytest.raises(LimitReachedError):
            await harness.gwi.runs.start_run(harness.by(), a_request(automatic=True))
        await harness.gwi.runs.start_run(harness.by(), a_request())
