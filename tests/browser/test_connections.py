"""Connections in a real browser: a grant that ends elsewhere is found out, another is revoked."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from holdfast.simulators.google import RevokeGrant
from tests.browser.entering import live, not_reloaded, sign_in
from tests.browser.look import sideways
from tests.console.console_harness import console
from tests.console.desk import connect, desk
from tests.providers.provider_fixture import ALICE, BOB, a_setting

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_grant_is_found_ended_and_another_is_revoked(page: Page, tmp_path: Path) -> None:
    async with a_setting() as setting, console(tmp_path, services=[desk(setting)]) as harness:
        await sign_in(page, harness)
        await page.get_by_role("link", name="Connections", exact=True).click()
        await live(page)
        await expect(page.get_by_text("Nothing is connected here.")).to_be_visible()
        await connect(harness, setting, ALICE)
        await connect(harness, setting, BOB)
        await expect(page.locator("#rows .state")).to_have_text(["connected", "connected"])
        await not_reloaded(page)

        setting.google.run(RevokeGrant(email=BOB))
        await page.get_by_role("link", name=BOB).click()
        await live(page)
        await page.get_by_role("button", name="Check").click()
        await page.get_by_role("dialog").get_by_role("button", name="Check").click()
        await expect(page.locator("#toast")).to_have_text("It was asked.")
        await expect(page.locator("#connection .facts .state")).to_have_text("needs reauth")
        await expect(page.get_by_text("Its owner must connect the account again")).to_be_visible()
        await not_reloaded(page)

        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(f"{harness.address}/console/connections?status=connected")
        assert await sideways(page) == 0
        await page.get_by_role("link", name=ALICE).press("Enter")
        await page.get_by_role("button", name="Revoke").press("Enter")
        dialog = page.get_by_role("dialog", name="End this connection?")
        await expect(dialog).to_contain_text(f"What needs {ALICE} stops working")
        await dialog.get_by_role("button", name="Revoke").press("Enter")
        await expect(page.locator("#connection .facts .state")).to_have_text("revoked")
        await expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
        assert await sideways(page) == 0
