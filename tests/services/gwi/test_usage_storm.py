"""The sums of usage while runs start and end in two processes: a reader finds them equal to the ledger."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.errors import ConflictError, LimitReachedError, RetryLaterError
from holdfast.kit.metering import day_of, month_of
from holdfast.kit.metering.models import fact_id
from holdfast.kit.metering.periods import month_span
from holdfast.model import Document
from holdfast.services.gwi.models.records import (
    PlanAllowance,
    UsageDaily,
    UsageFact,
    UsageMonthly,
    UsageSnapshot,
)
from holdfast.services.gwi.models.runs import RunTotals
from holdfast.services.gwi.models.tenants import Tenant
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.services.gwi.run_starts import AT_ONCE
from holdfast.simulators.github import GithubSimulator
from holdfast.store import Query, Transaction, check
from holdfast.testing import ManualClock
from tests.services.gwi.run_harness import TENANT, RunHarness, a_request, limits, run_harness

D = TypeVar("D", bound=Document)
WAVES = 4


@pytest.fixture(params=["sqlite", "postgres"])
def sql_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


class UsageReader:
    """Reads the ledger and everything that sums it up as of one moment."""

    def __init__(self, harness: RunHarness) -> None:
        self._harness, self._store = harness, harness.store
        self.moments: set[tuple[int, int]] = set()

    async def compare(self) -> None:
        """ConflictError where somebody wrote meanwhile: then nothing was compared."""
        self._assert_equal(**await self._store.transact(self._look, attempts=1))

    async def _look(self, tx: Transaction) -> dict[str, Any]:
        now = self._harness.clock.now()
        tenant = await tx.get(Tenant, TENANT)
        assert tenant is not None
        # A transaction that writes nothing is not checked at its end.
        tx.write(check(Tenant, TENANT, expect=tenant.unchanged))
        totals = await self._get(tx, RunTotals, TENANT)
        sums = [
            await self._get(tx, UsageDaily, f"{TENANT}_{day_of(now)}"),
            await self._get(tx, UsageMonthly, f"{TENANT}_{month_of(now)}"),
            await self._get(tx, UsageSnapshot, TENANT),
        ]
        taken = [
            await self._get(tx, PlanAllowance, f"{TENANT}_{fact_id(name)}")
            for name in (f"runs {month_of(now)}", AT_ONCE)
        ]
        # Every fact moves the sums in its own commit, so with them the ledger is unchanged too.
        first, last = month_span(month_of(now))
        query = Query(UsageFact).where("at", ">=", first).where("at", "<=", last).order_by("at").limit(500)
        facts = [fact.doc async for fact in self._store.scan(query)]
        return {"facts": facts, "totals": totals, "sums": sums, "taken": taken, "tenant": tenant.doc}

    async def _get(self, tx: Transaction, kind: type[D], key: str) -> D | None:
        stored = await tx.get(kind, key)
        return None if stored is None else stored.doc

    def _assert_equal(
        self, *, facts: list[UsageFact], totals: Any, sums: list[Any], taken: list[Any], tenant: Tenant
    ) -> None:
        ended = sum(fact.metrics["runs"] for fact in facts)
        daily, monthly, snapshot = sums
        assert (daily.runs if daily else 0) == (monthly.runs if monthly else 0) == ended
        assert (snapshot.runs_this_month if snapshot else 0) == ended
        started, at_once = (one.used if one else 0 for one in taken)
        assert tenant.runs_this_month == (totals.started if totals else 0) == started
        assert at_once == started - ended - (totals.cancelled if totals else 0)
        self.moments.add((started, ended))


async def test_a_reader_during_the_storm_finds_sums_equal_to_the_ledger(
    sql_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    found = {"limits": limits(monthly=500, at_once=10)}
    async with GithubSimulator(clock=clock) as github:
        app: Any = {"app_id": github.app_id, "app_key": github.private_key, "github_url": github.url}
        async with (
            run_harness(sql_url, clock, tmp_path, found=found, **app) as first,
            run_harness(sql_url, clock, tmp_path, **app) as second,
        ):
            reader = UsageReader(first)
            for _ in range(WAVES):
                over = asyncio.Event()
                reading = asyncio.create_task(_read(reader, over))
                await _wave(first, second, clock)
                over.set()
                await reading
                # Whatever the reader saw within the wave, it sees something after each.
                await reader.compare()
            assert len(reader.moments) >= WAVES
            stats = await first.gwi.runs.stats(TENANT)
            assert (stats.active, stats.started) == (0, stats.completed + stats.cancelled)
            assert (await first.gwi.usage.rebuild(first.by("adam"))).drifts == []


async def _read(reader: UsageReader, over: asyncio.Event) -> None:
    while not over.is_set():
        with contextlib.suppress(ConflictError, RetryLaterError):
            await reader.compare()
        await asyncio.sleep(0)


async def _wave(first: RunHarness, second: RunHarness, clock: ManualClock) -> None:
    """Start, cancel and finish runs in both processes at once, until none is left."""

    async def start(harness: RunHarness) -> None:
        with contextlib.suppress(LimitReachedError):
            await harness.gwi.runs.start_run(harness.by(), a_request(title="Look"))

    async def cancel(harness: RunHarness) -> None:
        pending = await harness.gwi.runs.page(TENANT, RunFilter(status="pending"), limit=1)
        for run in pending.docs:
            with contextlib.suppress(ConflictError):
                await harness.gwi.runs.cancel(harness.by(), run.id)

    both = (first, second)
    await asyncio.gather(*(start(one) for one in both))
    await asyncio.gather(
        *(start(one) for one in both * 3), cancel(first), *(one.runtime.runner.turn() for one in both)
    )
    async with asyncio.timeout(60):
        while (await first.gwi.runs.stats(TENANT)).active:
            await asyncio.gather(*(one.runtime.runner.work_off() for one in both))
            # A step that had to give way is due again later.
            await clock.advance(61)
