"""Pictures of every page of the console, light, dark and as wide as a phone: `make screenshots`."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

from holdfast.kit.outbox import Deliveries
from tests.browser import renewals_fixtures
from tests.browser.look import LOOKS, chromium, sideways
from tests.browser.scene import fill
from tests.console.console_harness import PASSWORD, ConsoleHarness, console
from tests.examples import lanterns

PAGES: Final = (
    "", "/deliveries", "/deliveries/holdfast/evt_0003~{endpoint}", "/dead-letters", "/endpoints",
    "/endpoints/holdfast/crm-webhooks", "/inbox", "/channels",
    "/connections", "/connections/00000000000000000000000000000001", "/runs",
    "/runs/holdfast_runs/run-003", "/schedules", "/schedules/-_prune", "/audit", "/documents",
    "/documents/holdfast_deliveries", "/documents/holdfast_runs/document?id.id=run-003", "/usage", "/users",
    "/lanterns", "/nowhere",
)  # fmt: skip


@asynccontextmanager
async def shell(home: Path) -> AsyncIterator[tuple[ConsoleHarness, Mapping[str, str]]]:
    """The console's own pages, and those of an example."""
    async with console(home, services=[lanterns.service]) as harness:
        await fill(harness.runtime)
        (found,) = await Deliveries(harness.runtime.store.tenant("-")).of_event("evt_0003")
        paths = [path.replace("{endpoint}", found.endpoint_id) for path in PAGES]
        yield (
            harness,
            {re.split("[~?]", path)[0].strip("/").replace("/", "-") or "overview": path for path in paths},
        )


SCENES: Final = (shell, renewals_fixtures.played)


async def take(folder: Path) -> int:
    """All pictures into the folder; says how many."""
    folder.mkdir(parents=True, exist_ok=True)
    path = chromium()
    if path is None:
        sys.exit("no Chromium on PATH; install it, as in: apt install chromium")
    taken: set[Path] = set()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scene in SCENES:
            with tempfile.TemporaryDirectory() as home:
                async with scene(Path(home)) as (harness, pages):
                    await harness.signed_in("ann")
                    for name in LOOKS:
                        # Every scene begins at the same door: that picture is taken again, not once more.
                        taken |= await _take(browser, harness, pages, name, folder)
        await browser.close()
    return len(taken)


async def _take(
    browser: Browser, harness: ConsoleHarness, pages: Mapping[str, str], name: str, folder: Path
) -> set[Path]:
    context = await browser.new_context(**LOOKS[name])
    page = await context.new_page()
    await page.goto(f"{harness.address}/sign-in")
    taken = {folder / f"{name}-{shown}.png" for shown in ("sign-in", *pages)}
    await page.screenshot(path=folder / f"{name}-sign-in.png")
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/console")
    for shown, path in pages.items():
        await page.goto(f"{harness.address}/console{path}")
        await page.screenshot(path=folder / f"{name}-{shown}.png", full_page=True)
        if await sideways(page):
            sys.exit(f"{path} is wider than {LOOKS[name]['viewport']['width']} pixels")
    await context.close()
    return taken


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(f"{asyncio.run(take(target))} pictures in {target}")
