"""The service keeps up with its source by itself, one process at a time, and says how old its data is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from holdfast.clock import Clock, SystemClock
from holdfast.config import load_config
from holdfast.errors import ConfigError, InProgressError
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.runtime import Runtime
from holdfast.services.renewals import service
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.refresh import JOB
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import LeaseRow, SourceState
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.views import attention
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.kit.eventually import until_found
from tests.services.renewals.platform_schema import PASSWORD, Platform, id_of, platform
from tests.services.renewals.server import serving
from tests.services.renewals.test_import import write

LEASE = id_of("lease", 3)
SCHEDULE = f"-_{JOB}"


@pytest.fixture
async def source(postgres_url: str) -> AsyncIterator[Platform]:
    async with platform(postgres_url) as made:
        await made.fill(20)
        yield made


def file_of(folder: Path, source: Platform, **more: Any) -> Path:
    """Settings that name the source."""
    lines = [f'home = "{folder}"', "[service.renewals]", f'source = "{source.url}"']
    lines += [f"{name} = {value!r}" for name, value in more.items()]
    path = folder / "holdfast.toml"
    path.write_text("\n".join(lines))
    return path


@contextlib.asynccontextmanager
async def running(file: Path, clock: Clock) -> AsyncIterator[Runtime]:
    runtime = await Runtime.open(load_config(environ={}, file=file), services=[service], clock=clock)
    try:
        yield runtime
    finally:
        await runtime.close()


@contextlib.asynccontextmanager
async def working(runtime: Runtime) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(runtime.work(stop))
    try:
        yield
    finally:
        stop.set()
        await task


def inside(runtime: Runtime) -> Renewals:
    found: Renewals = runtime.parts["renewals"].operations
    return found


async def rent(runtime: Runtime) -> int:
    found = await runtime.store.tenant("-").get(LeaseRow, LEASE)
    return 0 if found is None else found.doc.monthly_rent_cents


async def raise_rent(source: Platform) -> None:
    await source.owner.execute(
        f"UPDATE rop.leases SET monthly_rent = monthly_rent + 100 WHERE id = '{LEASE}'"
    )


async def test_a_process_reads_at_its_start_and_again_when_the_job_runs(
    tmp_path: Path, source: Platform
) -> None:
    async with running(file_of(tmp_path, source), SystemClock()) as runtime, working(runtime):

        async def has_rent(cents: int) -> bool:
            return await rent(runtime) == cents

        await until_found(lambda: has_rent(140_010))
        await raise_rent(source)
        await until_found(lambda: runtime.store.tenant("-").get(Schedule, SCHEDULE))
        await runtime.scheduler.run_now(SCHEDULE)
        await until_found(lambda: has_rent(150_010))
        renewals = inside(runtime)
        job = await renewals.jobs("-").start(id_of("property", 1), by="ada")
        ended = await renewals.jobs("-").wait(job.id, within_s=30)
        assert (ended.status, ended.scored) == ("completed", 10)
        state = await renewals.source_state("-")
        assert state is not None
        assert state.read_at is not None
        assert ended.calculated_at > state.read_at
        assert (await runtime.health()).status == "ok"


async def test_the_job_comes_due_every_so_many_minutes_and_runs_in_one_process(
    tmp_path: Path, source: Platform, clock: ManualClock
) -> None:
    file = file_of(tmp_path, source, refresh_minutes=5)
    async with running(file, clock) as one, running(file, clock) as other:
        for runtime in (one, other):
            await runtime.scheduler.declare()
        assert await one.scheduler.turn() + await other.scheduler.turn() == 0
        for slot in range(1, 4):
            await raise_rent(source)
            await clock.advance(300)
            ran = await asyncio.gather(one.scheduler.turn(), other.scheduler.turn())
            assert sum(ran) == 1
            assert await rent(one) == 140_010 + slot * 10_000
        runs = Query(SlotRun).where("schedule_id", "==", SCHEDULE).order_by("-slot_at")
        history = (await one.store.tenant("-").query(runs)).docs
        assert [run.result["updated"] for run in history] == [1, 1, 0]
        assert {run.status for run in history} == {"done"}


async def test_a_source_that_is_away_degrades_health_once_the_data_is_late(
    tmp_path: Path, source: Platform, clock: ManualClock
) -> None:
    async with running(file_of(tmp_path, source), clock) as runtime:
        renewals = inside(runtime)
        assert (await renewals.refresh.health()).reasons == ("the source was never read",)
        await renewals.refresh.refresh()
        assert (await renewals.refresh.health()).status == "ok"
        assert (await renewals.refresh.check()).fine
        await source.owner.execute("ALTER SCHEMA rop RENAME TO moved")
        await clock.advance(15 * 60)
        with pytest.raises(ConfigError):
            await renewals.refresh.refresh()
        assert (await renewals.refresh.health()).status == "ok"
        (notice,) = await attention(renewals, "-")
        assert "there is no schema 'rop'" in notice.text
        await clock.advance(31 * 60)
        health = await renewals.refresh.health()
        assert health.status == "degraded"
        assert health.reasons[0].startswith("the data is of 2026-01-01 00:00 UTC: postgresql://")
        finding = await renewals.refresh.check()
        assert (finding.fine, bool(finding.remedy)) == (False, True)
        assert PASSWORD not in unquote(f"{health} {notice} {finding}")
        assert await rent(runtime) == 140_010
        await source.owner.execute("ALTER SCHEMA moved RENAME TO rop")
        await renewals.refresh.refresh()
        assert (await renewals.refresh.health()).status == "ok"
        assert await attention(renewals, "-") == []


async def test_a_failed_refresh_is_tried_again_and_kept_in_the_history(
    tmp_path: Path, source: Platform, clock: ManualClock
) -> None:
    async with running(file_of(tmp_path, source), clock) as runtime:
        await runtime.scheduler.declare()
        await source.owner.execute("ALTER SCHEMA rop RENAME TO moved")
        await clock.advance(15 * 60)
        assert await runtime.scheduler.turn() == 1
        found = await runtime.store.tenant("-").get(Schedule, SCHEDULE)
        assert found is not None
        assert found.doc.last_status == "retrying"
        await source.owner.execute("ALTER SCHEMA moved RENAME TO rop")
        await clock.advance(10)
        assert await runtime.scheduler.turn() == 1
        assert await rent(runtime) == 140_010
        run = await runtime.store.tenant("-").get(SlotRun, found.doc.last_run_id)
        assert run is not None
        assert (run.doc.status, run.doc.attempts) == ("done", 2)


async def test_everything_is_compared_once_a_day_whatever_the_digests_say(
    tmp_path: Path, source: Platform, clock: ManualClock
) -> None:
    async with running(file_of(tmp_path, source), clock) as runtime:
        refreshing = inside(runtime).refresh
        await refreshing.refresh()
        first = await refreshing.state()
        await clock.advance(3_600)
        await refreshing.refresh()
        second = await refreshing.state()
        await clock.advance(24 * 3_600)
        await refreshing.refresh()
        third = await refreshing.state()
        moments = [(one.read_at, one.compared_at) for one in (first, second, third) if one is not None]
        assert [compared for _, compared in moments] == [moments[0][0], moments[0][0], moments[2][0]]
        assert len({read for read, _ in moments}) == 3


async def test_figures_and_metrics_tell_of_refreshes(
    tmp_path: Path, source: Platform, clock: ManualClock
) -> None:
    async with running(file_of(tmp_path, source), clock) as runtime:
        renewals = inside(runtime)
        await renewals.refresh.refresh()
        await source.owner.execute("DROP TABLE rop.renewal_offers")
        with pytest.raises(ConfigError):
            await renewals.refresh.refresh()
        (family,) = [
            one
            for one in runtime.parts["renewals"].metrics.collect()
            if one.name == "holdfast_renewals_refreshes"
        ]
        assert {sample.labels["outcome"]: sample.value for sample in family.samples} == {
            "done": 1,
            "failed": 1,
        }


async def test_a_process_that_starts_waits_for_a_source_that_is_away(
    tmp_path: Path, source: Platform
) -> None:
    await source.owner.execute("ALTER SCHEMA rop RENAME TO moved")
    async with running(file_of(tmp_path, source), SystemClock()) as runtime, working(runtime):
        refreshing = inside(runtime).refresh

        async def failed() -> bool:
            return refreshing.failed > 0

        await until_found(failed)
        await source.owner.execute("ALTER SCHEMA moved RENAME TO rop")

        async def read() -> SourceState | None:
            state = await refreshing.state()
            return state if state is not None and state.read_at is not None else None

        await until_found(read)


async def test_where_no_process_stays_up_a_drain_waits_for_the_first_refresh(
    tmp_path: Path, source: Platform
) -> None:
    async with running(file_of(tmp_path, source), SystemClock()) as runtime:
        assert await runtime.drain(30)
        assert await rent(runtime) == 140_010


async def test_without_a_source_nothing_is_read_and_nothing_is_wrong(
    tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "holdfast.toml").write_text(f'home = "{tmp_path}"')
    async with running(tmp_path / "holdfast.toml", clock) as runtime:
        parts = runtime.parts["renewals"]
        assert (list(parts.jobs), "source" in parts.loops) == ([], False)
        assert (await inside(runtime).refresh.check()).fine
        assert (await inside(runtime).refresh.health()).status == "ok"


async def test_callers_are_told_how_old_the_data_is(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    write(folder, "properties", "id name", [["p-1", "Mill House"], ["p-2", ""]])
    async with serving(tmp_path, working=False) as server:
        status, body = await server.ask("GET", "/source")
        assert (status, body["error"]["message"]) == (404, "nothing was imported into this portfolio yet")
        await server.renewals.import_tables(server.by, Folder(folder))
        told = await server.get("/source")
        assert (told["source"], told["rows"], told["bad"]) == ("export", {"properties": 2}, 1)
        assert told["badRows"] == [
            {"table": "properties", "row": 3, "field": "name", "reason": told["badRows"][0]["reason"]}
        ]
        assert 0 <= told["ageS"] < 60


async def test_an_import_says_that_another_is_under_way(tmp_path: Path, source: Platform) -> None:
    async with running(file_of(tmp_path, source), SystemClock()) as runtime:
        renewals = inside(runtime)
        made = Import(renewals.store("-"), renewals.refresh.source())
        async with made._leases.hold("renewals-import", owner="another"):
            with pytest.raises(InProgressError, match="another import of this portfolio is under way"):
                await made.run(wait_s=0)
