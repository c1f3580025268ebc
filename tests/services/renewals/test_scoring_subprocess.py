"""Calculations with a process beside them: the same scores, and no harm when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec
import pytest

import holdfast.subprocess_worker
from holdfast.services.renewals.domain.scoring import TIERS, Rules
from holdfast.services.renewals.jobs.scoring_pipeline import PART_NAME, Assignment, scored_pages
from holdfast.services.renewals.models import CalculationJob, RiskScore
from holdfast.services.renewals.queries.scores import scores_of_run
from holdfast.services.renewals.sample_data import SamplePlan, keep
from holdfast.store import Store
from holdfast.subprocess_worker import StoreSubprocessWorker
from tests.services.renewals.calculation_fixtures import Watched, opened, working
from tests.services.renewals.server import AS_OF

PAGE = 30
PROPERTY = "property-0001"


@pytest.fixture(autouse=True)
def little_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the companion has made and nobody has read yet is little, so that it is never done early.
    monkeypatch.setattr(holdfast.subprocess_worker, "UNREAD_BYTES_MAX", 1_000)


async def fill(store: Store, residents: int) -> None:
    plan = SamplePlan(residents=residents, as_of=AS_OF, tenant_id="-", per_property=residents)
    async for _ in keep(store.tenant("-"), plan):
        pass


async def calculated(
    store: Store, *, beside: Watched | None = None
) -> tuple[CalculationJob, list[RiskScore]]:
    async with working(store, page=PAGE, subprocess_pool=beside) as jobs:
        job = await jobs.start(PROPERTY, as_of=AS_OF)
        ended = await jobs.wait(job.id, within_s=60)
    found = await scores_of_run(store.tenant("-"), PROPERTY, ended.calculated_at, tiers=TIERS)
    return ended, found


def said(scores: list[RiskScore]) -> dict[str, dict[str, object]]:
    """What a run says of each resident, whenever it was."""
    found = {one.resident_id: msgspec.to_builtins(one) for one in scores}
    return {
        id: {k: v for k, v in one.items() if k not in ("id", "calculated_at")} for id, one in found.items()
    }


class Doomed(Watched):
    """Its companion is killed when two pages have come from it, and there are more to come."""

    @contextlib.asynccontextmanager
    async def __call__(self, part: str) -> AsyncIterator[StoreSubprocessWorker]:
        async with super().__call__(part) as companion:
            companion.stream = _killing(companion)  # type: ignore[method-assign, assignment]
            yield companion


def _killing(companion: StoreSubprocessWorker) -> Callable[[bytes], AsyncGenerator[bytes, None]]:
    stream = companion.stream

    async def killed_half_way(given: bytes) -> AsyncGenerator[bytes, None]:
        came = 0
        async for message in stream(given):
            yield message
            came += 1
            if came == 2:
                assert companion.pid is not None
                os.kill(companion.pid, signal.SIGKILL)

    return killed_half_way


@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_the_scores_are_the_same_with_a_process_beside(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with opened(url) as store:
        await fill(store, 200)
        watched = Watched(url)
        alone, by_itself = await calculated(store)
        ended, together = await calculated(store, beside=watched)
        assert len(watched.companions) == 1
        assert (ended.status, ended.scored, ended.skipped) == ("completed", alone.scored, alone.skipped)
        assert said(together) == said(by_itself)
        assert "scoring goes on here" not in capfd.readouterr().out


class Late:
    """Ready only when asked for the third time: after two pages."""

    def __init__(self, companion: StoreSubprocessWorker) -> None:
        self._companion, self._asked, self.pages = companion, 0, 0

    @property
    def ready(self) -> bool:
        self._asked += 1
        return self._asked > 2

    async def stream(self, given: bytes) -> AsyncGenerator[bytes, None]:
        async for message in self._companion.stream(given):
            self.pages += 1
            yield message


async def test_a_process_that_is_ready_late_makes_the_rest(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await fill(store, 200)
        assignment = Assignment("-", PROPERTY, "UTC", AS_OF, Rules(), store.clock.now(), page=PAGE)
        async with Watched(sqlite_url)(PART_NAME) as companion:
            late = Late(companion)
            pages = [page async for page in scored_pages(store.tenant("-"), assignment, worker=late)]
        alone = [page async for page in scored_pages(store.tenant("-"), assignment)]
        assert pages == alone
        assert late.pages == len(alone) - 2 > 2


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_run_goes_on_by_itself_when_the_process_beside_it_is_killed(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with opened(url) as store:
        # Far more pages than the pipes between the processes hold, so that it is not done before.
        await fill(store, 1_200)
        _, by_itself = await calculated(store)
        ended, together = await calculated(store, beside=Doomed(url))
        assert (ended.status, ended.scored) == ("completed", len(by_itself))
        assert said(together) == said(by_itself)
        assert "scoring goes on here" in capfd.readouterr().out


async def test_a_run_given_up_as_the_other_process_begins_leaves_nothing_behind(
    sqlite_url: str,
) -> None:
    async with opened(sqlite_url) as store:
        await fill(store, 200)
        watched = Watched(sqlite_url)
        assignment = Assignment("-", PROPERTY, "UTC", AS_OF, Rules(), store.clock.now(), page=PAGE)
        async with watched(PART_NAME) as companion:
            pages = scored_pages(store.tenant("-"), assignment, worker=companion)
            assert len(await anext(pages)) == PAGE
            await pages.aclose()
        assert len(asyncio.all_tasks()) == 1
