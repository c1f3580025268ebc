"""The pages of renewals in a real browser: choosing, comparing, going back, judging."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from holdfast.services.renewals.models import CalculationJob
from holdfast.store import Query
from tests.browser import renewals_fixtures as scene
from tests.browser.renewals_page import (
    HOUSE,
    PROPERTY,
    come_in,
    open_page,
    picture,
    renewals,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_residents_are_filtered_sorted_and_found_and_say_why(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path) as (harness, _):
        await scene.settle(harness.runtime, residents=120)
        for months_back in (2, 1, 0):
            await scene.calculate(harness.runtime, months_back=months_back)
        run = await scene.renewals_of(harness.runtime).portfolio("-").runs.latest(PROPERTY)
        assert run is not None
        await come_in(page, harness, "/console/renewals")
        await expect(page.locator("#rows")).to_contain_text(f"{run.high} high")
        await picture(page, "portfolio")
        await page.get_by_role("link", name="Mill Gardens 1").click()

        rows = page.locator("#rows tbody tr")
        await expect(rows).to_have_count(30)
        await expect(page.locator("#notices .state", has_text="notice given").first).to_be_visible()
        scores = [int(text) for text in await rows.locator(".score").all_inner_texts()]
        assert scores == sorted(scores, reverse=True)
        await expect(rows.first.locator("svg.spark")).to_have_attribute(
            "aria-label", re.compile("Scores of the last 3 runs: ")
        )

        await picture(page, "dashboard")

        await rows.first.locator("summary").click()
        await expect(rows.first.locator(".reasons li")).to_have_count(4)
        points = await rows.first.locator(".reasons .points").all_inner_texts()
        assert sum(int(text) for text in points if text != "no data") == scores[0]
        await expect(rows.first.locator(".sentence").first).to_be_visible()
        await picture(page, "reasons")

        await page.get_by_role("link", name=f"{run.high} high risk").click()
        await expect(rows).to_have_count(min(30, run.high))
        assert {*await rows.locator(".risk .state:first-of-type").all_inner_texts()} == {"high"}
        await page.get_by_label("Sort by").select_option("lease end")
        await expect(page).to_have_url(f"{harness.address}{HOUSE}?tier=high&sort=days")

        await page.get_by_role("link", name=f"{run.total_residents} residents").click()
        await page.get_by_role("link", name="More").click()
        await expect(page.get_by_role("link", name="First")).to_be_visible()
        await page.get_by_label("Find").fill("ada gar")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("link", name="Clear")).to_be_visible()
        assert {*await rows.locator(".main a").all_inner_texts()} == {"Ada García"}
        await page.get_by_label("Find").fill("109")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("Unit 109")
        await page.get_by_label("Find").fill("<b>nobody")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nobody here is called that.")).to_be_visible()


async def test_an_earlier_run_is_chosen_compared_shared_and_taken_away_as_a_file(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.connect(harness.runtime, rms)
        for months_back in (3, 0):
            await scene.calculate(harness.runtime, months_back=months_back)
        portfolio = scene.renewals_of(harness.runtime).portfolio("-")
        (latest, older), _ = await portfolio.runs.all(PROPERTY)
        await come_in(page, harness, HOUSE)
        await expect(page.locator("[data-picked]")).to_have_count(1)
        await page.locator("select[name=run]").select_option(older.job_id)
        await expect(page.locator("#standing .notice")).to_contain_text(f"as of {older.as_of_date}")
        await expect(page).to_have_url(re.compile(f"run={older.job_id}"))
        rows = page.locator("#rows tbody tr")
        await expect(rows).to_have_count(min(30, older.total_residents))
        # Only the latest run is acted on.
        await expect(page.locator("main [data-act], main .pick")).to_have_count(0)
        name = await rows.first.locator(".main a").inner_text()
        (then,) = (await portfolio.risk(older, PROPERTY, limit=1)).docs
        (now,) = await portfolio.scores_of([then.resident_id], latest)
        assert name == then.name
        await expect(rows.first.locator(".risk .score")).to_have_text(str(then.risk_score))
        await expect(rows.first.locator(".now .score")).to_have_text(str(now.risk_score))
        await picture(page, "earlier-run")

        await page.get_by_role("link", name=re.compile("high risk, now")).click()
        await expect(page.locator("#standing .notice")).to_contain_text("An earlier run")
        async with page.expect_download() as coming:
            await page.get_by_role("link", name="CSV").click()
        taken = list(csv.DictReader((await (await coming.value).path()).read_text().splitlines()))
        assert {row["as_of_date"] for row in taken} == {str(older.as_of_date)}
        assert len(taken) == older.high

        shared = await page.context.new_page()
        await shared.goto(page.url)
        assert await shared.locator("#rows").inner_text() == await page.locator("#rows").inner_text()
        await shared.get_by_role("link", name="See the latest").click()
        await expect(shared.locator("#standing .notice")).to_have_count(0)
        await expect(shared).to_have_url(f"{harness.address}{HOUSE}?tier=high")
        await shared.get_by_label("Pages of this property").get_by_role("link", name="Runs").click()
        await expect(shared.locator("#rows tbody tr")).to_have_count(2)
        await picture(shared, "runs")
        await shared.get_by_role("link", name=re.compile(r"\d\d:\d\d")).nth(1).click()
        await expect(shared.locator("#standing .notice")).to_contain_text("An earlier run")
        await shared.goto(f"{harness.address}{HOUSE}?run=run-lost")
        await expect(shared.get_by_text("choose one of its runs")).to_be_visible()
        await shared.close()


async def test_going_back_shows_the_filters_of_the_page_it_goes_back_to(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path) as (harness, _):
        await scene.settle(harness.runtime)
        for months_back in (2, 1, 0):
            await scene.calculate(harness.runtime, months_back=months_back)
        await come_in(page, harness, f"{HOUSE}?sort=days")
        runs = page.locator("select[name=run]")
        # By keyboard, one choice after the other: each is shown at once, and none loses the place.
        await runs.focus()
        await page.keyboard.press("ArrowDown")
        await expect(page).to_have_url(re.compile("run="))
        await expect(runs).to_be_focused()
        first = page.url
        await page.keyboard.press("ArrowDown")
        await expect(page).not_to_have_url(first)
        await expect(runs).to_be_focused()
        second = await runs.input_value()
        await page.get_by_label("Find").fill("kim")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="Clear").click()
        await expect(page).to_have_url(f"{harness.address}{HOUSE}?sort=days&run={second}")
        for _ in range(4):
            await page.go_back()
        await expect(page).to_have_url(f"{harness.address}{HOUSE}?sort=days")
        await expect(page.locator("#standing .notice", has_text="An earlier run")).to_have_count(0)
        await expect(runs).to_have_value("")
        await expect(page.get_by_label("Find")).to_have_value("")


async def test_history_calibration_and_what_if_are_drawn_and_nothing_is_stored(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.fill(harness.runtime, rms)
        shown = await scene.paths(harness.runtime)
        await come_in(page, harness, f"/console{shown['renewals-resident']}")
        await expect(page.locator("#resident svg.plot polyline.level")).to_have_count(2)
        drawn = page.get_by_role("img", name="Score over 6 runs, from 0 to 100")
        await expect(drawn).to_be_visible()
        await expect(page.locator("#resident tbody").first.locator("tr")).to_have_count(6)
        await expect(page.get_by_role("heading", name="Events to the RMS")).to_be_visible()
        await picture(page, "history")
        await page.get_by_title("Everybody in this run").last.click()
        await expect(page.locator("#standing .notice")).to_contain_text("An earlier run")

        await open_page(page, harness, "/console/renewals/calibration")
        await expect(page.locator(".tall svg rect.tone-accent").first).to_be_visible()
        found = await scene.renewals_of(harness.runtime).outcomes("-").calibration()
        assert found.auc is not None
        await expect(page.locator(".figures")).to_contain_text(f"{found.auc:.2f}")
        await picture(page, "calibration")
        await page.get_by_label("Property").select_option("Park Lofts 3")
        await expect(page.get_by_text("No outcomes yet.")).to_be_visible()

        await open_page(page, harness, f"{HOUSE}/what-if")
        await expect(page.get_by_text("0 of 60 residents would change their tier.")).to_be_visible()
        await page.get_by_label("Lease ends soon").fill("70")
        await expect(page.locator("[data-sum]")).to_have_text("The weights add up to 130")
        await page.get_by_role("button", name="Try").click()
        await expect(page.get_by_role("alert")).to_have_text("The weights add up to 130, not 100.")
        for label, points in (("No renewal offer", "0"), ("Market rent above rent", "5")):
            await page.get_by_label(label).fill(points)
        before = await harness.runtime.store.privileged().count(Query(CalculationJob))
        await page.get_by_role("button", name="Try").click()
        await expect(page.get_by_role("heading", name="Who would move")).to_be_visible()
        await picture(page, "what-if")
        after = await harness.runtime.store.privileged().count(Query(CalculationJob))
        assert before == after
