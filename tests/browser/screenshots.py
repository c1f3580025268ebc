"""Pictures of every page of the console, light, dark and as wide as a phone: `make screenshots`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, async_playwright

from holdfast.kit.outbox import Ledger
from tests.browser.look import chromium, sideways
from tests.browser.scene import fill
from tests.console.bed import PASSWORD, Bed, console
from tests.examples import lanterns

LOOKS: Final[dict[str, dict[str, Any]]] = {
    "1280-light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "1280-dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "390-light": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
PAGES: Final = (
    "", "/deliveries", "/deliveries/evt_0003~{endpoint}", "/dead-letters", "/inbox", "/channels",
    "/schedules", "/schedules/-_prune", "/audit", "/usage", "/users", "/lanterns", "/nowhere",
)  # fmt: skip


async def take(folder: Path) -> int:
    """All pictures into the folder; says how many."""
    folder.mkdir(parents=True, exist_ok=True)
    path = chromium()
    if path is None:
        sys.exit("no Chromium on PATH; install it, as in: apt install chromium")
    with tempfile.TemporaryDirectory() as home:
        async with console(Path(home), services=[lanterns.service]) as bed, async_playwright() as playwright:
            await fill(bed.runtime)
            browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            await bed.signed_in("ann")
            taken = [await _take(browser, bed, name, look, folder) for name, look in LOOKS.items()]
            await browser.close()
    return sum(taken)


async def _take(browser: Browser, bed: Bed, name: str, look: dict[str, Any], folder: Path) -> int:
    context = await browser.new_context(**look)
    page = await context.new_page()
    await page.goto(f"{bed.address}/sign-in")
    await page.screenshot(path=folder / f"{name}-sign-in.png")
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/console")
    for path in PAGES:
        await page.goto(f"{bed.address}/console{await _path(bed, path)}")
        shown = path.split("~")[0].strip("/").replace("/", "-") or "overview"
        await page.screenshot(path=folder / f"{name}-{shown}.png", full_page=True)
        if await sideways(page):
            sys.exit(f"{path} is wider than {look['viewport']['width']} pixels")
    await context.close()
    return len(PAGES) + 1


async def _path(bed: Bed, path: str) -> str:
    if "{endpoint}" not in path:
        return path
    event = path.rpartition("/")[2].partition("~")[0]
    (found,) = await Ledger(bed.runtime.store.tenant("-")).of_event(event)
    return path.replace("{endpoint}", found.endpoint_id)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(f"{asyncio.run(take(target))} pictures in {target}")
