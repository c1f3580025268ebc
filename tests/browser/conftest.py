"""A real Chromium; where there is none: skipped loudly, and failed where green must mean that it ran.

It starts once, which takes longer than most of what is tried in it, so all its tests share one loop; each has
a context of its own, as a person has who never was here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.look import Watched, chromium

# A page's own five seconds are too few where every core has other work.
expect.set_options(timeout=30_000)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _chromium() -> AsyncIterator[Browser | None]:
    path = chromium()
    if path is None:
        yield None
        return
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest, _chromium: Browser | None) -> Browser:
    if _chromium is None:
        reason = "no Chromium on PATH: the console was not tried in a browser"
        request.node.user_properties.append(("engine-missing", f"chromium: {reason}"))
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    request.node.user_properties.append(("engine", "chromium"))
    return _chromium


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that must stay free of errors, refused by the policy or thrown by scripts."""
    context = await browser.new_context(viewport={"width": 1280, "height": 860})
    opened = await context.new_page()
    watched = Watched(opened)
    yield opened
    assert watched.faults == []
    await context.close()
