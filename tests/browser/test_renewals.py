"""The pages of renewals in a real browser: calculating; by keyboard and on a phone."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect

from holdfast.services.renewals.models import CalculationJob, PropertyState
from tests.browser import renewals_fixtures as scene
from tests.browser.look import cut_off, sideways
from tests.browser.renewals_page import (
    HOUSE,
    PROPERTY,
    come_in,
    not_reloaded,
    picture,
    renewals,
)
from tests.console.console_harness import ConsoleHarness
from tests.services.renewals.calculation_fixtures import runner_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE: Final = "<img src=x onerror=alert(1)>\"'&amp;<script>alert(2)</script>"
# A run that reads so few at once can be stopped between.
MANY: Final = 600
PAGE: Final = 20


async def test_a_calculation_is_watched_through_a_stop_half_way(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path, work=False) as (harness, _):
        await scene.settle(harness.runtime, residents=MANY)
        await come_in(page, harness, HOUSE)
        await expect(page.get_by_text("This property was not calculated yet.")).to_be_visible()

        await page.get_by_label("As of").fill("2026-03-01")
        await page.get_by_role("button", name="Calculate").click()
        await expect(page.locator("#toast")).to_have_text("The calculation has begun.")
        await expect(page.get_by_text("Waiting for a worker to calculate as of 2026-03-01.")).to_be_visible()

        job = await _work_until_half_way(harness)
        await expect(page.get_by_text(f"{job.scored} of {MANY} residents")).to_be_visible()
        assert await page.locator("progress").get_attribute("value") == str(job.scored)
        await picture(page, "progress")

        working = asyncio.create_task(harness.runtime.runner.run(asyncio.Event()))
        await expect(page.locator("#rows tbody tr")).to_have_count(30)
        await expect(page.locator("#standing .figure").first).to_contain_text(str(MANY))
        await expect(page.locator("progress")).to_have_count(0)
        await expect(page.get_by_text("as of 2026-03-01")).to_be_visible()
        await not_reloaded(page)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _work_until_half_way(harness: ConsoleHarness) -> CalculationJob:
    """A worker that is gone once it has kept a part; one that was done before that begins another run."""
    jobs = scene.renewals_of(harness.runtime).jobs(scene.TENANT)
    store = harness.runtime.store.tenant(scene.TENANT)
    async with asyncio.timeout(60):
        while True:
            await _work_until_some(harness)
            state = await store.get(PropertyState, PROPERTY)
            assert state is not None
            job = await jobs.get(state.doc.job_id)
            if job.completed_at is None and 0 < job.scored < MANY:
                return job
            if job.completed_at is not None:
                await jobs.start(PROPERTY, as_of=job.as_of_date)


async def _work_until_some(harness: ConsoleHarness) -> None:
    store = harness.runtime.store.tenant(scene.TENANT)
    subscription = store.watch(CalculationJob)
    state = await store.get(PropertyState, PROPERTY)
    assert state is not None
    working = asyncio.create_task(runner_of(harness.runtime.store, page=PAGE).run(asyncio.Event()))
    while True:
        job = await store.get(CalculationJob, state.doc.job_id)
        assert job is not None
        if job.doc.scored or job.doc.completed_at is not None:
            break
        await subscription.wait(0.2)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    subscription.close()


async def test_everything_is_done_by_keyboard_alone(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.connect(harness.runtime, rms)
        await come_in(page, harness, "/console/renewals")
        await _tab_to(page, "Mill Gardens 1")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Mill Gardens 1")).to_be_visible()
        await _tab_to(page, "Calculate")
        await page.keyboard.press("Enter")
        await expect(page.locator("#rows tbody tr")).to_have_count(30)

        await _tab_to(page, "Choose all on this page")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Space")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#rows .reasons").first).to_be_visible()
        await _tab_to(page, "Send 1 chosen to RMS", back=True)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert await _focused(page) == "Send 1 chosen to RMS"
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await _tab_to(page, "Send 1")
        await page.keyboard.press("Enter")
        await expect(page.locator("#rows tbody .sent .state")).to_have_text(["delivered"])
        assert rms.state.counts()["accepted"] == 1


async def _focused(page: Page) -> str:
    said: str = await page.evaluate(
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim()"
    )
    return said


async def _tab_to(page: Page, name: str, *, back: bool = False) -> None:
    for _ in range(80):
        if await _focused(page) == name:
            return
        await page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"{name!r} can't be reached by the keyboard; at {await _focused(page)!r}")


async def _narrow_bars(page: Page) -> int:
    """How many bars that stand for a whole property leave room beside them."""
    bars = "all => all.filter(one => one.clientWidth < one.parentElement.clientWidth - 1).length"
    found: int = await page.locator("main .tiers").evaluate_all(bars)
    return found


async def test_a_viewer_with_a_phone_sees_everything_as_text_and_has_nothing_to_press(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.fill(harness.runtime, rms)
        await scene.rename(harness.runtime, HOSTILE)
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.emulate_media(color_scheme="dark")
        await come_in(page, harness, "/console/renewals", role="viewer")
        for name, path in (await scene.paths(harness.runtime)).items():
            await page.goto(f"{harness.address}/console{path}")
            await expect(page.locator("h1")).to_be_visible()
            assert await sideways(page) == 0, name
            assert await page.locator("main [data-act], main [data-form], main .pick").count() == 0, name
            assert await page.locator("img[src=x], main script").count() == 0, name
            assert await cut_off(page) == [], name
            assert await _narrow_bars(page) == 0, name
        await page.goto(f"{harness.address}{HOUSE}?tier=high")
        await expect(page.locator("#rows .main a").first).to_have_text(HOSTILE)
        await picture(page, "phone")
        async with page.expect_download() as coming:
            await page.get_by_role("link", name="CSV").click()
        rows = list(csv.DictReader((await (await coming.value).path()).read_text().splitlines()))
        assert [row["name"] for row in rows] == [HOSTILE] * 4
        assert {row["risk_tier"] for row in rows} == {"high"}
