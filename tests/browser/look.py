"""What a test asks of a page: that it stays free of errors, fits its width, and how it looks."""

from __future__ import annotations

import shutil
from typing import Any, Final

from playwright.async_api import ConsoleMessage, Page

LOOKS: Final[dict[str, dict[str, Any]]] = {
    "1280-light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "1280-dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "390-light": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


class Watched:
    """Collects what the browser complains about: script errors, refused by the policy, failed requests."""

    def __init__(self, page: Page) -> None:
        self.faults: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        # A refusal that a test asks for is told by the page, and by the browser as a failed load.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.faults.append(message.text)


async def sideways(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    wide: int = await page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return wide


async def cut_off(page: Page) -> list[str]:
    """Tables that are wider than what they stand in."""
    found: list[str] = await page.locator("main table").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.parentElement.clientWidth + 1)"
        ".map(one => one.closest('[id]').id)"
    )
    return found


async def crowded(page: Page) -> list[str]:
    """What reaches out of its place in a table, over what stands beside it."""
    found: list[str] = await page.locator("main .rows td").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText)"
    )
    return found


def chromium() -> str | None:
    """The path of the machine's Chromium; the one without windows takes a third of the processor time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = (shutil.which(name) for name in names)
    return next((path for path in found if path), None)
