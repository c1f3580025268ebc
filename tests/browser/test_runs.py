"""Runs in a real browser: watched step by step, cancelled, let go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.entering import live, not_reloaded, sign_in
from tests.browser.look import sideways
from tests.console.console_harness import console
from tests.console.workshop import Order, Workshop, runs_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_run_is_watched_step_by_step_and_cancelled(page: Page, tmp_path: Path) -> None:
    workshop = Workshop()
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        await sign_in(page, harness)
        await page.get_by_role("link", name="Runs", exact=True).click()
        await live(page)
        await expect(page.get_by_text("No runs like this.")).to_be_visible()
        runs = runs_of(harness.runtime)
        run = await runs.start(workshop.chair, input={"wood": "oak"})
        row = page.locator("#rows tbody tr")
        await expect(row.locator(".state")).to_have_text("running")
        await expect(row).to_contain_text("1 of 3")
        await expect(row).to_contain_text("in the hands of")
        await not_reloaded(page)

        await row.get_by_role("link", name="chair").click()
        await live(page)
        states = page.locator("#run tbody .state")
        await expect(states).to_have_text(["completed", "running", "pending"])
        await expect(page.get_by_role("button", name="Go on now")).to_have_count(0)
        await page.get_by_role("button", name="Cancel", exact=True).first.click()
        dialog = page.get_by_role("dialog", name="Cancel this run?")
        await expect(dialog).to_contain_text("A cancelled run can't go on.")
        await dialog.get_by_role("button", name="Cancel the run").click()
        await expect(page.locator("#toast")).to_have_text("No further step begins; it is running.")
        await expect(page.get_by_text("To be cancelled since")).to_be_visible()
        workshop.saw.set()
        await expect(states).to_have_text(["completed", "completed", "skipped"])
        await expect(page.locator("#run .facts .state")).to_have_text("cancelled")
        await not_reloaded(page)
        found = await runs.get(run.id)
        assert found is not None
        assert found.status == "cancelled"


async def test_a_services_run_that_waits_goes_on_by_keyboard_on_a_phone(page: Page, tmp_path: Path) -> None:
    workshop = Workshop()
    workshop.saw.set()
    workshop.dry = False
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        run = await runs_of(harness.runtime, kind=Order).start(workshop.chair)
        await page.set_viewport_size({"width": 390, "height": 844})
        await sign_in(page, harness)
        await page.goto(f"{harness.address}/console/runs")
        await page.get_by_label("Kept in").select_option("orders")
        await expect(page.locator("#rows")).to_contain_text("waits for something to happen")
        assert await sideways(page) == 0
        await page.get_by_role("link", name="chair").press("Enter")
        await expect(page.get_by_text(run.id)).to_be_visible()
        await live(page)
        assert await sideways(page) == 0
        workshop.dry = True
        button = page.get_by_role("button", name="Go on now")
        await button.press("Enter")
        await page.get_by_role("dialog").get_by_role("button", name="Go on").press("Enter")
        await expect(page.locator("#run tbody .state")).to_have_text(["completed"] * 3)
        await expect(page.get_by_role("region", name="Result")).to_contain_text('"apiToken": "••••••"')
        await expect(button).to_have_count(0)
