"""Runs of one tenant: pages, filters and statistics with a million stored, against a thousand.

Times are inside the process, from the question to the documents of the answer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, get_args

from bench.bulk_load import load
from bench.measure import SLOW_TURNS, Goal, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.config import load_config
from holdfast.runtime import Runtime
from holdfast.runtime.document_registry import documents_of
from holdfast.services.gwi import service
from holdfast.services.gwi.models.runs import AgentRun, AgentStepSummary, RunTotals, RunTrigger, RunType
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.store import put

TENANT: Final = "gh-org-7"
SMALL: Final = 1_000
LARGE, QUICK_LARGE = 1_000_000, 10_000
ASKED: Final = 100
# One run in so many is cancelled: what a filter has to find among the others.
CANCELLED_EVERY: Final = 20
_TYPES: Final[tuple[RunType, ...]] = get_args(RunType)
_filled: dict[tuple[Place, str, int], str] = {}


async def filled(place: Place, engine: str, runs: int) -> str:
    """A store with so many runs of one tenant; made once for all workloads."""
    if (place, engine, runs) not in _filled:
        url = place.url(engine)
        store = await open_store(url, documents_of([service]))
        await store.migrate()
        now = store.clock.now()
        totals = RunTotals(tenant_id=TENANT, started=runs, updated_at=now)
        await store.tenant(TENANT).commit(put(totals))
        await store.close()
        await load(url, AgentRun, (_run(number, runs, now=now) for number in range(runs)))
        _filled[place, engine, runs] = url
    return _filled[place, engine, runs]


def _run(number: int, count: int, *, now: datetime) -> AgentRun:
    at, id = now - timedelta(seconds=count - number), f"run-{number:09}"
    names = enumerate(("triage", "publisher"))
    steps = [AgentStepSummary(id=f"step-{n}", run_id=id, name=name) for n, name in names]
    run = AgentRun(
        id=id, tenant_id=TENANT, type=_TYPES[number % len(_TYPES)], steps=steps, due_at=None,
        created_at=at, updated_at=at, repo_id=f"gh-repo-{number % 10}", trigger=RunTrigger(source="api"),
        input={"title": f"Change {number}"}, approval_status="none",
    )  # fmt: skip
    if number % CANCELLED_EVERY == 0:
        run.status, run.completed_at = "cancelled", now
    return run


@asynccontextmanager
async def opened(place: Place, url: str) -> AsyncIterator[Gwi]:
    config = load_config({"home": place.folder(), "store": url}, environ={})
    runtime = await Runtime.open(config, services=[service])
    try:
        yield runtime.parts["gwi"].operations
    finally:
        await runtime.close()


Act = Callable[[Gwi], Awaitable[Any]]


async def list_runs(gwi: Gwi) -> None:
    first = await gwi.runs.page(TENANT, limit=50)
    page = await gwi.runs.page(TENANT, limit=50, cursor=first.cursor)
    assert len(page.docs) == 50


async def filter_runs(gwi: Gwi) -> None:
    for wanted in (
        RunFilter(status="cancelled"),
        RunFilter(type="triage", status="pending"),
        RunFilter(repo_id="gh-repo-3"),
    ):
        assert len((await gwi.runs.page(TENANT, wanted, limit=40)).docs) == 40


async def read_stats(gwi: Gwi) -> None:
    assert (await gwi.runs.stats(TENANT)).started >= SMALL


async def _ms(gwi: Gwi, act: Act) -> float:
    """The median time of an act."""
    took = []
    for _ in range(ASKED):
        start = time.perf_counter()
        await act(gwi)
        took.append((time.perf_counter() - start) * 1_000)
    return statistics.median(took)


def _sizes(act: Act) -> Any:
    @asynccontextmanager
    async def both(place: Place, engine: str) -> AsyncIterator[Ways]:
        large = await filled(place, engine, place.scale(LARGE, QUICK_LARGE))
        small = await filled(place, engine, SMALL)
        async with opened(place, large) as ours, opened(place, small) as other:
            yield Ways(ours=lambda: _ms(ours, act), other=lambda: _ms(other, act))

    return both


WORKLOADS = [
    Workload(
        name=f"gwi: {name} with 1,000,000 runs", quick_name=f"gwi: {name} with 10,000 runs",
        engines=("sqlite full", "postgres"), unit="ms", goal=Goal(1.3, at_most=True), other_name="1,000 runs",
        open=_sizes(act), turns=SLOW_TURNS,
    )
    for name, act in (("list", list_runs), ("filter", filter_runs), ("stats", read_stats))
]  # fmt: skip
