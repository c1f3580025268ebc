"""The console for every reader: hostile words, narrow screens, the keyboard alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect

from holdfast.kit.audit import AuditEntry
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Deliveries, Endpoint
from holdfast.store import create, put
from tests.browser.axe import serious_findings
from tests.browser.entering import sign_in
from tests.browser.look import sideways
from tests.browser.scene import fill
from tests.console.console_harness import PASSWORD, ConsoleHarness, console
from tests.examples import lanterns
from tests.examples.lanterns import Lantern

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE: Final = (
    "<script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "' onmouseover='document.title=1",
    "\u202etxt.exe\u202c \u0000-free \U0001f9ed",
    "long" * 400,
    "{{ 7 * 7 }} {% raw %} ${7*7}",
)
PAGES: Final = (
    "", "/deliveries", "/deliveries?status=all", "/dead-letters", "/endpoints", "/inbox", "/channels",
    "/connections", "/runs",
    "/runs?status=failed&type=autopilot", "/schedules", "/audit", "/documents",
    "/documents/holdfast_deliveries", "/usage", "/users", "/lanterns", "/nowhere",
    "/deliveries?q=none",
)  # fmt: skip


DOCUMENT: Final = "/documents/holdfast_runs/document?id.id=run-003"
CONNECTION: Final = "/connections/00000000000000000000000000000001"
_NAMELESS: Final = """() => {
  const wanted = "main a, main button, main input:not([type=hidden]), main select, svg[role=img]";
  const named = (one) => one.textContent.trim() || one.labels?.length || one.getAttribute("aria-label");
  return [...document.querySelectorAll(wanted)].filter((one) => !named(one)).map((one) => one.outerHTML);
}"""


async def _plant(harness: ConsoleHarness) -> list[str]:
    """Hostile words wherever outsiders can put them; gives the deliveries' ids."""
    store, now = harness.runtime.store.tenant("-"), harness.runtime.clock.now()
    ids = []
    for number, words in enumerate(HOSTILE):
        words = words.replace("\x00", "")
        local_dispatcher = Endpoint(id=words.replace("/", "")[:60], url="https://x.example", created_at=now)
        await store.commit(put(local_dispatcher), create(Lantern(id=f"l{number}", place=words)))
        ids += await harness.send(local_dispatcher, json.dumps({"said": words}), type=words[:200])
        await store.commit(create(InboxItem.received(
            tenant_id="-", source="echoes", message_id=f"m{number}", received_at=now, due_at=now,
            reason=words,
        )))  # fmt: skip
    trail = harness.runtime.audit("-")
    for words in HOSTILE:
        safe = words.replace("\x00", "")
        await trail.append(AuditEntry(action=safe[:100], actor=safe, subject=safe, details={safe: safe}))
    return ids


async def test_hostile_words_stay_words_on_every_page_also_when_swapped_in(
    page: Page, tmp_path: Path
) -> None:
    async with console(tmp_path, services=[lanterns.service]) as harness:
        await sign_in(page, harness)
        # Swapped in by the live stream first, then loaded.
        await page.goto(f"{harness.address}/console/deliveries")
        await expect(page.locator("#live-state")).to_have_text("live")
        ids = await _plant(harness)
        await expect(page.locator("#rows tbody tr")).to_have_count(len(HOSTILE))
        for path in (
            *PAGES,
            *(f"/deliveries/holdfast/{id.replace('/', '%2F')}" for id in ids if "/" not in id),
        ):
            await page.goto(f"{harness.address}/console{path}")
            assert (await page.title()).endswith(" · Holdfast"), path
            assert await page.locator("main script, main img").count() == 0, path
        await page.goto(f"{harness.address}/console/lanterns?state=dark")
        shown = await page.locator("#rows td.main").all_inner_texts()
        assert shown == [words.replace("\x00", "").strip() for words in HOSTILE[:2]]


async def test_no_page_is_wider_than_a_phone(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path, services=[lanterns.service]) as harness:
        await fill(harness.runtime)
        await _plant(harness)
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(f"{harness.address}/sign-in")
        assert await sideways(page) == 0
        await sign_in(page, harness)
        dead = (await Deliveries(harness.runtime.store.tenant("-")).dead_letters(limit=1)).docs[0].id
        for path in (
            *PAGES,
            f"/deliveries/holdfast/{dead}",
            "/endpoints/holdfast/crm-webhooks",
            "/schedules/-_prune",
            "/runs/holdfast_runs/run-003",
            CONNECTION,
            DOCUMENT,
        ):
            await page.goto(f"{harness.address}/console{path}")
            assert await sideways(page) == 0, path
        menu = page.get_by_role("button", name="Menu")
        await expect(page.get_by_role("link", name="Audit")).to_be_hidden()
        await menu.click()
        await expect(menu).to_have_attribute("aria-expanded", "true")
        await page.get_by_role("link", name="Audit").click()
        await expect(page.get_by_role("heading", name="Audit")).to_be_visible()


async def test_everything_can_be_done_with_the_keyboard_alone(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        await fill(harness.runtime)
        await harness.signed_in("ann")
        await page.goto(f"{harness.address}/console/dead-letters")
        await expect(page.get_by_role("textbox", name="Name")).to_be_focused()
        await page.keyboard.type("ann")
        await page.keyboard.press("Tab")
        await page.keyboard.type(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()

        await page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        await expect(skip).to_be_focused()
        await expect(skip).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(page.locator("#main")).to_be_focused()

        button = page.locator("#rows").get_by_role("button", name="Replay").first
        for _ in range(30):
            await page.keyboard.press("Tab")
            if await button.evaluate("(one) => one === document.activeElement"):
                break
        await expect(button).to_be_focused()
        assert await button.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(button).to_be_focused()
        await expect(button).not_to_have_attribute("aria-busy", "true")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await expect(dialog.get_by_role("button", name="Replay")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_have_text("It is in flight again.")


async def test_every_control_and_picture_has_a_name(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path, services=[lanterns.service]) as harness:
        await fill(harness.runtime)
        await sign_in(page, harness)
        for path in PAGES:
            await page.goto(f"{harness.address}/console{path}")
            assert await page.evaluate(_NAMELESS) == [], path
            assert await page.locator("h1").count() == 1, path


async def test_the_overviews_charts_are_accessible_and_their_links_reached_with_the_keyboard(
    page: Page, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with console(tmp_path) as harness:
        await fill(harness.runtime)
        await sign_in(page, harness)
        await page.goto(f"{harness.address}/console")
        await page.locator("#activity summary").focus()
        await page.keyboard.press("Enter")
        first = page.locator("#activity tbody a").first
        await expect(first).to_be_visible()
        assert await page.locator("svg.chart a").count() > 0
        assert await serious_findings(page, request) == []
        await page.keyboard.press("Tab")
        await expect(first).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Deliveries")).to_be_visible()
