"""A demo in a real Chromium: in by the printed link, break the RMS and restore it, talk to the bot."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.look import sideways
from tests.demo.demo_process import start_demo

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_person_breaks_the_rms_mends_it_and_talks_to_the_bot(page: Page, tmp_path: Path) -> None:
    with start_demo(tmp_path) as demo:
        link = re.search(r"http://\S+/demo/sign-in\?code=\S+", demo.output)
        assert link is not None
        await page.goto(link[0])
        await page.wait_for_url("**/console/demo")
        webhooks = page.get_by_role("region", name="Webhooks")
        await expect(webhooks).to_contain_text("200 to everything")
        await webhooks.get_by_role("button", name="Break the RMS").click()
        await expect(page.locator("#toast")).to_contain_text("retried, then become dead letters")
        await expect(webhooks).to_contain_text("503 to 100%")
        await webhooks.get_by_role("button", name="Restore the RMS").click()
        await expect(webhooks).to_contain_text("200 to everything")
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await sideways(page) <= 0
        await _talk_to_the_bot(page, demo.url)
        await asyncio.to_thread(demo.interrupt)


async def _say(page: Page, text: str) -> None:
    # One message at a time: what is typed while another is being sent stays in the field.
    await expect(page.locator("form[data-form]")).not_to_have_attribute("aria-busy", "true")
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def _talk_to_the_bot(page: Page, url: str) -> None:
    """As two people in a group, on a phone, by keyboard; buttons of the bot's messages can be pressed."""
    await page.goto(f"{url}/console/demo/telegram")
    messages = page.locator("#messages li")
    await _say(page, "#cal tea party tomorrow 5pm")
    await expect(messages.filter(has_text="Event created").filter(has_text="tea party")).to_contain_text(
        "2/2 accounts"
    )
    await _say(page, "#cal tea time tomorrow 4pm")
    await expect(messages.filter(has_text="tea time").filter(has_text="2/2 accounts")).to_have_count(1)
    await _say(page, "#del tea")
    choice = messages.filter(has_text="Which one?")
    await choice.get_by_role("button", name="tea party").press("Enter")
    await expect(messages.filter(has_text="Event deleted")).to_contain_text("tea party")
    await expect(choice).to_have_count(0)

    await page.get_by_role("link", name="Family").press("Enter")
    await page.get_by_role("link", name="Write as Mum").press("Enter")
    await _say(page, "<b>hello</b> #aut")
    await expect(messages.filter(has_text="Only administrators of this group")).to_have_count(1)
    await expect(messages.filter(has_text="<b>hello</b> #aut").first).to_contain_text("Mum")
    await page.get_by_role("link", name="Write as You").press("Enter")
    await _say(page, "#aut")
    await expect(messages.get_by_role("link", name="Connect a Google account")).to_have_count(1)
    assert await sideways(page) <= 0
    await messages.get_by_role("link", name="Connect a Google account").press("Enter")
    await expect(page.get_by_role("heading", name="Connected")).to_be_visible()
    await page.go_back()
    await expect(messages.filter(has_text="Connected:")).to_have_count(1)
