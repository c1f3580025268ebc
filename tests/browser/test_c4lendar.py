"""The bot's pages in a real browser: chats, accounts, events in each account, and what failed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast.kit.access import Sessions
from holdfast.server import compose, settings
from holdfast.simulators.google import InjectedFault, RevokeGrant
from tests.browser.axe import serious_findings
from tests.browser.entering import sign_in
from tests.browser.look import crowded, cut_off, sideways
from tests.console.console_harness import ConsoleHarness
from tests.services.c4lendar.harness import ALICE, ANA, BOB, Harness, chat_harness
from tests.serving import served

pytestmark = pytest.mark.asyncio(loop_scope="session")


@contextlib.asynccontextmanager
async def chat_console(home: Path) -> AsyncIterator[tuple[Harness, ConsoleHarness]]:
    """The console over a chat with two accounts, one of which does not have its event."""
    async with chat_harness(f"sqlite:///{home / 'chats.db'}", home) as harness:
        await harness.connect(ALICE)
        await harness.connect(BOB)
        await harness.say("#cal dentist tomorrow 8am")
        harness.google.inject(InjectedFault(status=503, path="/events", method="POST"))
        assert "1/2 accounts" in await harness.say("#cal team <b>lunch</b> tomorrow noon")
        surface = compose(harness.runtime)
        surface.ready = True
        async with served(settings(surface)) as address:
            try:
                yield harness, ConsoleHarness(harness.runtime, surface, address)
            finally:
                surface.changes.close()


async def test_an_operator_finds_a_failed_account_and_retries_it_by_keyboard(
    page: Page, tmp_path: Path
) -> None:
    async with chat_console(tmp_path) as (harness, pages):
        await sign_in(page, pages)
        await page.get_by_role("link", name="Chats", exact=True).press("Enter")
        await page.get_by_role("link", name="Ana").press("Enter")
        accounts, events = page.get_by_label("Accounts"), page.get_by_role("region", name="Events")
        await expect(accounts.locator(".state")).to_have_text(["connected", "connected"])
        lunch = events.get_by_role("row").filter(has_text="team <b>lunch</b>")
        await expect(lunch).to_contain_text("Google is unavailable")
        for status in ("done", "failed"):
            await expect(lunch.locator(".state", has_text=status)).to_have_count(1)
        await expect(events.get_by_role("button", name="Retry")).to_have_count(1)
        await lunch.get_by_role("button", name="Retry").press("Enter")
        await expect(page.locator("#toast")).to_have_text("It is brought into its accounts again.")
        await harness.work()
        assert "2/2 accounts" in harness.last()["text"], "the message in the chat is edited"
        await page.reload()
        await expect(events.locator("summary")).to_have_text(["2/2", "2/2"])
        await expect(events.get_by_role("button", name="Retry")).to_have_count(0)

        await accounts.get_by_role("row").filter(has_text=BOB).get_by_role("button").press("Enter")
        dialog = page.get_by_role("dialog", name="Disconnect this account?")
        await dialog.get_by_role("button", name="Disconnect").press("Enter")
        await expect(accounts.locator(".state")).to_have_count(1)
        assert [one.google_email for one in await harness.operations.accounts(str(ANA))] == [ALICE]


async def test_the_pages_fit_a_phone_and_everybody(
    page: Page, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with chat_console(tmp_path) as (harness, pages):
        harness.google.run(RevokeGrant(email=BOB))
        harness.clock.tick(4_000)
        await harness.say("#cal choir tomorrow 6pm")
        await sign_in(page, pages)
        await page.set_viewport_size({"width": 390, "height": 844})
        for path in ("", f"/chats/{ANA}"):
            await page.goto(f"{pages.address}/console/c4lendar{path}")
            assert (await sideways(page), await cut_off(page), await crowded(page)) == (0, [], []), path
            assert await serious_findings(page, request) == []
        await expect(page.get_by_label("Accounts").locator(".state")).to_have_text(
            ["connected", "needs reauth"]
        )


async def test_without_scripts_everything_is_there_to_read(browser: Browser, tmp_path: Path) -> None:
    async with chat_console(tmp_path) as (_, pages):
        cookie = await Sessions(pages.runtime.store).begin(await pages.person("vic", role="viewer"))
        context = await browser.new_context(java_script_enabled=False)
        await context.add_cookies([{"name": "holdfast_session", "value": cookie, "url": pages.address}])
        page = await context.new_page()
        await page.goto(f"{pages.address}/console/c4lendar")
        await page.get_by_role("link", name="Ana").click()
        await expect(page.get_by_text("Google is unavailable")).to_be_visible()
        await expect(page.get_by_text("dentist")).to_be_visible()
        assert await page.get_by_role("main").get_by_role("button").count() == 0, "a viewer only reads"
        await context.close()
