"""How a test comes into the console, and knows that a page stays fresh by itself."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.console.console_harness import PASSWORD, ConsoleHarness


async def sign_in(
    page: Page, harness: ConsoleHarness, name: str = "ann", *, role: str = "owner", tenant_id: str = "-"
) -> None:
    """As somebody with this role, by the sign-in page."""
    await harness.person(name, role=role, tenant_id=tenant_id)
    await page.goto(f"{harness.address}/console")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def live(page: Page) -> None:
    """Once the page hears of changes; from here on it must not be loaded anew."""
    await expect(page.locator("#live-state")).to_have_text("live")
    await page.evaluate("window.loadedOnce = true")


async def not_reloaded(page: Page) -> None:
    assert await page.evaluate("window.loadedOnce") is True
