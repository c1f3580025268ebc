"""A property's rules in a real browser: tried, taken over, changed by keyboard alone, refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from holdfast.kit.audit import AuditEvent
from holdfast.services.renewals.domain.scoring import Thresholds, Weights
from holdfast.services.renewals.queries.rules import rules_of
from holdfast.store import Query
from tests.browser import renewals_fixtures as scene
from tests.browser.renewals_page import HOUSE, PROPERTY, come_in, confirm, open_page, picture, renewals

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_rules_are_changed_by_keyboard_alone_and_hold_for_the_next_run(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, _):
        await scene.settle(harness.runtime, residents=20)
        await come_in(page, harness, f"{HOUSE}/rules", role="admin")
        await expect(page.get_by_text("These are the rules that every property begins with.")).to_be_visible()
        await page.get_by_label("Lease ends soon").focus()
        for typed in ("50", "25", "20"):
            await page.keyboard.press("Control+A")
            await page.keyboard.type(typed)
            await page.keyboard.press("Tab")
        await expect(page.locator("[data-sum]")).to_have_text("The weights add up to 110")
        await page.keyboard.press("Enter")
        await confirm(page, "Change", says="A run under way keeps to the rules it began with")
        await expect(page.locator("#toast")).to_contain_text("the weights add up to 110, not 100")
        await picture(page, "rules-refused")
        await page.get_by_label("Market rent above rent").fill("5")
        await page.get_by_label("High from").fill("60")
        await page.get_by_label("A run sends to the RMS").select_option("those at high risk")
        await page.get_by_label("Market rent above rent").press("Enter")
        await page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).press("Enter")
        await expect(page.get_by_text("Changed")).to_be_visible()
        await expect(page.get_by_text("so its runs can send nothing")).to_be_visible()
        await picture(page, "rules")
        kept = await rules_of(harness.runtime.store.tenant("-"), PROPERTY)
        assert (kept.weights, kept.thresholds, kept.send) == (
            Weights(50, 25, 20, 5), Thresholds(60, 40), "high",
        )  # fmt: skip
        by = Query(AuditEvent).where("action", "==", "renewals.rules_set").order_by("-sequence")
        assert [one.actor for one in (await harness.runtime.store.tenant("-").query(by)).docs] == [
            "user:admin-ann"
        ]
        await page.get_by_role("button", name="Back to the first ones").click()
        await confirm(page, "Go back", says="The weights become 40, 25, 20 and 15")
        await expect(page.get_by_label("Lease ends soon")).to_have_value("40")


async def test_weights_that_were_tried_are_taken_over_for_the_runs_to_come(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, _):
        await scene.settle(harness.runtime, residents=20)
        await scene.calculate(harness.runtime)
        await come_in(page, harness, f"{HOUSE}/what-if", role="admin")
        await expect(page.get_by_role("button", name="Use these")).to_have_count(0)
        await page.get_by_label("Lease ends soon").fill("60")
        await page.get_by_label("Rent paid late or short").fill("5")
        await page.get_by_role("button", name="Try").click()
        await page.get_by_role("button", name="Use these").click()
        await confirm(page, "Use them", says="Scores and tiers that are kept stay as they are")
        await expect(page).to_have_url(f"{harness.address}{HOUSE}/rules")
        await expect(page.get_by_label("Lease ends soon")).to_have_value("60")


async def test_who_may_only_look_sees_the_rules_and_can_change_nothing(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path) as (harness, _):
        await scene.settle(harness.runtime, residents=5)
        await scene.calculate(harness.runtime)
        await come_in(page, harness, f"{HOUSE}/rules", role="developer")
        await expect(page.get_by_label("High from")).to_be_disabled()
        await expect(page.get_by_text("An administrator can change them.")).to_be_visible()
        await expect(page.locator("#main").get_by_role("button")).to_have_count(0)
        await open_page(page, harness, f"{HOUSE}/what-if?expiry=60&delinquency=5")
        await expect(page.get_by_role("button", name="Use these")).to_have_count(0)
