"""An endpoint is created, paused, tested and deleted in the browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.entering import sign_in
from tests.console.console_harness import console
from tests.kit.receiver import OK, answering, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_endpoint_lives_from_its_creation_to_its_deletion(page: Page, tmp_path: Path) -> None:
    async with serving(answering(OK)) as receiver, console(tmp_path, work=True) as harness:
        await sign_in(page, harness)
        await page.goto(f"{harness.address}/console/endpoints")
        await expect(page.get_by_text("No endpoints like this.")).to_be_visible()
        form = page.get_by_role("region", name="New endpoint")
        await form.get_by_label("Id").fill("crm")
        await form.get_by_label("URL").fill(receiver.url())
        await form.get_by_label("Event types").fill("lease.* invoice.paid")
        await form.get_by_label("In order").check()
        await form.get_by_role("button", name="Create").click()
        dialog = page.get_by_role("dialog", name="Keep this now")
        assert (await dialog.get_by_role("textbox").input_value()).startswith("whsec_")
        await dialog.get_by_role("button", name="Close").click()

        await page.get_by_role("link", name="crm", exact=True).click()
        facts = page.get_by_role("region", name="Endpoint")
        await expect(facts).to_contain_text("lease.* invoice.paid")
        await expect(facts).to_contain_text("10 at once, in order")
        await page.get_by_label("Pause: deliveries wait").fill("maintenance")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("region", name="Notices")).to_contain_text("maintenance")
        await page.get_by_role("button", name="Resume").click()
        await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        await page.get_by_role("button", name="Send a test").click()
        await page.get_by_role("dialog").get_by_role("button", name="Send").click()
        await receiver.received(1)

        settings = page.get_by_role("region", name="Settings")
        await settings.get_by_label("Event types").fill("")
        await settings.get_by_label("A second").fill("2.5")
        await settings.get_by_role("button", name="Change").click()
        await expect(facts).to_contain_text("2.50 a second")
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No endpoints like this.")).to_be_visible()
