"""A demo in a real Chromium: in by the printed link, break the RMS by a button, see it, restore it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.look import sideways
from tests.demo.demo_process import start_demo

pytestmark = pytest.mark.asyncio(loop_scope="session")

_PASSWORD = "a horse in a harbour"


async def test_a_person_breaks_the_rms_and_mends_it(page: Page, tmp_path: Path) -> None:
    with start_demo(tmp_path) as demo:
        link = re.search(r"http://\S+/sign-in/first\?code=\S+", demo.output)
        assert link is not None
        await page.goto(link[0])
        await page.fill("[name=name]", "ann")
        await page.fill("[name=password]", _PASSWORD)
        await page.fill("[name=again]", _PASSWORD)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console")
        await page.get_by_role("link", name="Try it").click()
        webhooks = page.get_by_role("region", name="Webhooks")
        await expect(webhooks).to_contain_text("200 to everything")
        await webhooks.get_by_role("button", name="Break the RMS").click()
        await expect(page.locator("#toast")).to_contain_text("retried, then become dead letters")
        await expect(webhooks).to_contain_text("503 to 100%")
        await webhooks.get_by_role("button", name="Restore the RMS").click()
        await expect(webhooks).to_contain_text("200 to everything")
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await sideways(page) <= 0
        await asyncio.to_thread(demo.interrupt)
