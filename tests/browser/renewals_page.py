"""A page of renewals as a test has it open: signed in, live, an RMS behind it; and its pictures."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from playwright.async_api import Locator, Page, expect

from holdfast.clock import SystemClock
from holdfast.services.renewals import service
from holdfast.simulators.rms import RmsSimulator
from tests.browser import renewals_fixtures as scene
from tests.browser.look import LOOKS, cut_off, sideways
from tests.console.console_harness import ConsoleHarness, console

PICTURES: Final = Path(__file__).parents[2] / "build" / "screenshots" / "renewals"
PROPERTY: Final = scene.PROPERTIES[0]
HOUSE: Final = f"/console/renewals/properties/{PROPERTY}"


@contextlib.asynccontextmanager
async def renewals(home: Path, *, work: bool = True) -> AsyncIterator[tuple[ConsoleHarness, RmsSimulator]]:
    async with (
        RmsSimulator(clock=SystemClock()) as rms,
        console(home, services=[service], work=work) as harness,
    ):
        yield harness, rms


async def come_in(page: Page, harness: ConsoleHarness, path: str, *, role: str = "owner") -> None:
    """Signed in by the session's cookie: how people sign in is tried elsewhere."""
    visitor = await harness.signed_in(f"{role}-ann", role=role)
    (cookie,) = [one for one in visitor.session.cookie_jar if one.key == "holdfast_session"]
    await page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": harness.address}])
    await open_page(page, harness, path)


async def open_page(page: Page, harness: ConsoleHarness, path: str) -> None:
    await page.goto(f"{harness.address}{path}")
    if await page.locator("#live-state").is_visible():
        await expect(page.locator("#live-state")).to_have_text("live")
    await page.evaluate("window.loadedOnce = true")


async def not_reloaded(page: Page) -> None:
    assert await page.evaluate("window.loadedOnce") is True


async def picture(page: Page, name: str) -> None:
    """How the page looks at this moment: light, dark and as wide as a phone. Kept with every run."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    assert before is not None
    for look, more in LOOKS.items():
        await page.set_viewport_size(more["viewport"])
        await page.emulate_media(color_scheme=more["color_scheme"])
        assert await sideways(page) == 0, (name, look)
        assert await cut_off(page) == [], (name, look)
        await page.screenshot(path=PICTURES / f"{name}-{look}.png", full_page=True)
    await page.set_viewport_size(before)
    await page.emulate_media(color_scheme="light")


def rms_cells(page: Page) -> Locator:
    return page.locator("#rows tbody .sent")


async def confirm(page: Page, verb: str, *, says: str) -> None:
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(says)
    await dialog.get_by_role("button", name=verb, exact=True).click()
