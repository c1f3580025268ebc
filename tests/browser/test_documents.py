"""The browser of documents in a real browser: choose an index, give a value, page on, open one."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from holdfast.store import create
from tests.browser.entering import sign_in
from tests.browser.look import crowded, cut_off, sideways
from tests.browser.scene import fill
from tests.console import library
from tests.console.console_harness import console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_documents_are_found_by_an_index_and_opened(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path, services=[library.service]) as harness:
        await fill(harness.runtime)
        await sign_in(page, harness)
        await page.get_by_role("link", name="Documents", exact=True).click()
        await page.goto(f"{harness.address}/console/documents/holdfast_deliveries?tenant=-")
        rows = page.locator("#rows tbody tr")
        await expect(rows).to_have_count(50)
        assert await cut_off(page) == []
        await page.get_by_role("link", name="More").click()
        await expect(page.get_by_role("link", name="First")).to_be_visible()

        # Another way may be chosen also where this one has been told what to look for.
        await page.get_by_role("combobox", name="status", exact=True).select_option("dead")
        await page.get_by_role("button", name="Find").click()
        await expect(page.locator("#rows")).not_to_contain_text("delivered")
        await page.locator("select[name=by]").select_option("endpointId_status_createdAt_desc")
        await page.get_by_role("textbox", name="endpointId").fill("ledger")
        await page.keyboard.press("Enter")
        await expect(page.locator("#rows")).not_to_contain_text("rms-mill-lane")
        await expect(page.locator("#rows")).to_contain_text("ledger")
        await expect(page.locator("#rows")).not_to_contain_text("delivered")  # a field of both ways stays
        await rows.first.locator("td.main a").click()
        await expect(page.locator(".payload")).to_contain_text('"endpointId": "ledger"')
        await expect(page.locator(".payload")).to_contain_text(" bytes")


async def test_a_wrong_value_is_told_and_the_form_stays_on_a_phone_by_keyboard(
    page: Page, tmp_path: Path
) -> None:
    async with console(tmp_path, services=[library.service]) as harness:
        await fill(harness.runtime)
        await page.set_viewport_size({"width": 390, "height": 844})
        await sign_in(page, harness)
        await page.goto(f"{harness.address}/console/documents/books?tenant=-&by=boughtAt")
        await expect(page.get_by_text("No documents like this.")).to_be_visible()
        field = page.get_by_role("textbox", name="boughtAt")
        await field.fill("yesterday")
        await field.press("Enter")
        await expect(page.get_by_role("alert").first).to_contain_text("boughtAt takes a time as in")
        await expect(field).to_have_value("yesterday")
        assert await sideways(page) == 0
        now = harness.runtime.clock.now()
        book = library.Book(id="b-1", shelf="the-third-shelf-from-the-left", bought_at=now)
        await harness.runtime.store.tenant("-").commit(create(book))
        await page.goto(f"{harness.address}/console/documents/books?tenant=-")
        await expect(page.locator("#rows")).to_contain_text("the-third-shelf-from-the-left")
        assert await crowded(page) == []
        await page.goto(f"{harness.address}/console/documents/holdfast_connections")
        await page.locator("#rows a").first.press("Enter")
        await expect(page.locator(".payload")).to_contain_text('"accessToken": "••••••"')
        await expect(page.locator(".payload")).not_to_contain_text("never-shown")
        assert await sideways(page) == 0
