"""The console in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.console.bed import PASSWORD, console


async def test_the_first_person_comes_in_by_the_link(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path) as bed:
        await page.goto(await bed.first_link())
        await page.get_by_label("Name").fill("ann")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_label("The same again").fill(PASSWORD)
        await page.get_by_role("button", name="Begin").click()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await expect(page.locator("#live-state")).to_have_text("live")
