"""Sending to the RMS from the pages of renewals, whatever the RMS, the network and other tabs do."""

from __future__ import annotations

import asyncio
import re
from datetime import date
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from holdfast.simulators.rms import Behave
from tests.browser import renewals_fixtures as scene
from tests.browser.renewals_page import (
    HOUSE,
    PROPERTY,
    come_in,
    confirm,
    not_reloaded,
    open_page,
    picture,
    renewals,
    rms_cells,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_rms_is_told_of_one_and_of_many_after_saying_how_many(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.calculate(harness.runtime)
        await come_in(page, harness, HOUSE)
        await expect(rms_cells(page).first).to_have_text("not sent")
        await page.get_by_label("Send to").fill(rms.webhook_url(PROPERTY))
        await page.get_by_role("button", name="Set").click()
        # The field is there, empty, before the dialog opens.
        await expect(page.get_by_role("dialog")).to_contain_text("It is shown once.")
        secret = await page.get_by_label("What to keep").input_value()
        await confirm(page, "Close", says="It is shown once.")
        rms.run(Behave(secret=secret))

        await rms_cells(page).nth(1).get_by_role("button", name="Send to RMS").click()
        await confirm(page, "Send", says="Sends one event:")
        await expect(page.locator("#toast")).to_have_text("The event is created.")
        await expect(rms_cells(page).nth(1).locator(".state")).to_have_text("delivered")
        assert rms.state.counts()["accepted"] == 1

        many = page.locator("[data-picked]")
        await expect(many).to_be_disabled()
        for row in (4, 5, 6):
            await page.locator("#rows input[name=resident]").nth(row).check()
        await expect(many).to_have_text("Send 3 chosen to RMS")
        await many.click()
        await confirm(page, "Cancel", says="each of the 3 residents you chose")
        await many.click()
        await confirm(page, "Send 3", says="each of the 3 residents you chose")
        await expect(page.locator("#toast")).to_have_text("3 new events are in flight.")
        await expect(page.locator("#rows tbody .sent .state", has_text="delivered")).to_have_count(4)
        await expect(many).to_be_disabled()

        run = await scene.renewals_of(harness.runtime).portfolio("-").runs.latest(PROPERTY)
        assert run is not None
        await page.get_by_role("button", name=f"Send all {run.high} high to RMS").click()
        await confirm(page, f"Send {run.high}", says=f"each of {run.high} residents at high risk")
        await expect(page.locator("#rows tbody .sent .state", has_text="delivered")).to_have_count(
            3 + run.high
        )
        await not_reloaded(page)
        counts = rms.state.counts()
        assert (counts["accepted"], counts["repeated"]) == (3 + run.high, 0)


async def test_what_is_typed_and_a_secret_shown_once_outlast_refreshes_and_the_session(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path, work=False) as (harness, rms):
        await scene.settle(harness.runtime, per_property=20)
        await come_in(page, harness, HOUSE)
        await page.get_by_label("Send to").fill(rms.webhook_url(PROPERTY))
        jobs = scene.renewals_of(harness.runtime).jobs(scene.TENANT)
        await jobs.start(PROPERTY, as_of=date(2026, 3, 1), by="scene")
        await expect(page.get_by_text("Waiting for a worker to calculate as of 2026-03-01.")).to_be_visible()
        await expect(page.get_by_label("Send to")).to_have_value(rms.webhook_url(PROPERTY))
        await page.get_by_role("button", name="Set").click()
        secret = page.get_by_label("What to keep")
        await expect(secret).to_be_visible()
        await expect(page.get_by_text("No RMS is set")).to_have_count(0)
        await page.context.clear_cookies()
        # The second refresh begins when the first is over.
        for property_id in scene.PROPERTIES[1:3]:
            async with page.expect_response("**/sign-in*"):
                await jobs.start(property_id, as_of=date(2026, 3, 1), by="scene")
        await not_reloaded(page)
        await expect(secret).to_have_value(re.compile("^whsec_"))
        await confirm(page, "Close", says="It is shown once.")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_a_tier_of_a_great_many_is_told_of_while_the_page_shows_how_far_it_is(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.services.renewals.operations.AT_ONCE_MAX", 1)
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.connect(harness.runtime, rms)
        await scene.calculate(harness.runtime)
        run = await scene.renewals_of(harness.runtime).portfolio("-").runs.latest(PROPERTY)
        assert run is not None
        assert run.high > 1
    # Nobody works now, so that the job stands still where the page can be looked at.
    async with renewals(tmp_path, work=False) as (harness, rms):
        await come_in(page, harness, HOUSE)
        await page.get_by_role("button", name=f"Send all {run.high} high to RMS").click()
        await confirm(page, f"Send {run.high}", says=f"each of {run.high} residents at high risk")
        begun = f"Sending {run.high} residents to the RMS; 0 done."
        await expect(page.locator("#toast")).to_have_text(begun)
        said = f"Sending {run.high} residents at high risk to the RMS: 0 done."
        await expect(page.locator("#standing")).to_contain_text(said)
        await picture(page, "sending-many")
        stop = asyncio.Event()
        working = asyncio.create_task(harness.runtime.runner.run(stop))
        await expect(page.locator("#rows tbody .sent .state", has_text="pending")).to_have_count(run.high)
        await expect(page.locator("progress")).to_have_count(0)
        await not_reloaded(page)
        stop.set()
        await working


async def test_a_broken_rms_shows_live_as_retries_and_dead_letters_and_replays_arrive(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.connect(harness.runtime, rms, waits_s=(600.0,))
        await scene.calculate(harness.runtime)
        rms.run(Behave(failure_rate=1.0, failure_status=503))
        await come_in(page, harness, HOUSE)
        for row in range(3):
            await page.locator("#rows input[name=resident]").nth(row).check()
        await page.locator("[data-picked]").click()
        await confirm(page, "Send 3", says="3 residents")
        await expect(page.locator("#rows tbody .sent .state", has_text="failed")).to_have_count(3)
        await picture(page, "retrying")
        other = await page.context.new_page()
        await open_page(other, harness, f"/console/deliveries?outbox=renewals&endpoint={PROPERTY}")
        await expect(other.locator("#rows tbody tr")).to_have_count(3)
        await other.close()
        await scene.hurry(harness.runtime)
        await expect(page.locator("#rows tbody .sent .state", has_text="dead")).to_have_count(3)
        await expect(page.locator("#ways .count.bad")).to_have_text("3")
        await not_reloaded(page)

        await page.get_by_label("Pages of this property").get_by_role("link", name="Dead letters").click()
        rows = page.locator("#rows tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.first).to_contain_text("2 attempts failed; the last: HTTP 503")
        await expect(page.locator("#live-state")).to_have_text("live")
        await picture(page, "dead-letters")
        rms.run(Behave())
        await rows.first.get_by_role("button", name="Replay").click()
        await confirm(page, "Replay", says="under the same event id with the same body")
        await expect(rows).to_have_count(2)
        await rows.first.locator(".main a").click()
        await page.get_by_label("Resolved otherwise").fill("told them by telephone")
        await page.get_by_role("button", name="Resolve").click()
        await expect(page.get_by_text(": told them by telephone")).to_be_visible()
        await page.goto(f"{harness.address}/console/dead-letters?outbox=renewals")
        await page.get_by_role("button", name="Replay all").click()
        await confirm(page, "Replay 1", says="Sends 1 dead letters again")
        await expect(page.locator("#toast")).to_have_text("1 are in flight again.")
        await expect(page.get_by_text("No dead letters.")).to_be_visible()
        counts = rms.state.counts()
        assert (counts["accepted"], counts["repeated"]) == (2, 0)

        await page.goto(f"{harness.address}/console/deliveries?outbox=renewals&status=delivered")
        await page.locator("#rows tbody a").first.click()
        await expect(page.locator("#delivery tbody tr")).to_have_count(3)
        await expect(page.locator("#delivery tbody .state")).to_have_text(["200", "503", "503"])
        await expect(page.locator(".payload").last).to_contain_text('"event": "renewal.risk_flagged"')


async def test_what_was_chosen_outlives_a_lost_server_and_two_tabs_tell_of_each_once(
    page: Page, tmp_path: Path
) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.connect(harness.runtime, rms)
        await scene.calculate(harness.runtime)
        await come_in(page, harness, HOUSE)
        rows = page.locator("#rows tbody tr")
        await rows.first.locator("summary").click()
        for row in (0, 1):
            await rows.nth(row).get_by_role("checkbox").check()
        await page.get_by_label("Find").fill("half typed")
        await page.context.set_offline(True)
        await page.locator("[data-picked]").click()
        await confirm(page, "Send 2", says="each of the 2 residents you chose")
        await expect(page.locator("#toast")).to_contain_text("The server can't be reached.")
        await page.context.set_offline(False)
        await expect(page.locator("[data-picked]")).to_have_text("Send 2 chosen to RMS")
        await expect(rows.first.locator(".reasons")).to_be_visible()
        await expect(page.get_by_label("Find")).to_have_value("half typed")
        await not_reloaded(page)

        # The dialogs of both tabs are open before either is answered.
        await page.locator("[data-picked]").click()
        other = await page.context.new_page()
        await open_page(other, harness, HOUSE)
        await rms_cells(other).first.get_by_role("button", name="Send to RMS").click()
        await confirm(other, "Send", says="Sends one event:")
        await page.bring_to_front()
        await confirm(page, "Send 2", says="each of the 2 residents you chose")
        await expect(other.locator("#toast")).to_have_text("The event is created.")
        await expect(page.locator("#toast")).to_have_text(
            re.compile("1 new event is in flight; 1 was (in flight already|delivered before).")
        )
        for tab in (page, other):
            await expect(tab.locator("#rows tbody .sent .state", has_text="delivered")).to_have_count(2)
        counts = rms.state.counts()
        assert (counts["accepted"], counts["repeated"]) == (2, 0)
        await other.close()


async def test_a_gone_rms_is_told_as_disabled_and_enabled_again(page: Page, tmp_path: Path) -> None:
    async with renewals(tmp_path) as (harness, rms):
        await scene.settle(harness.runtime)
        await scene.connect(harness.runtime, rms)
        await scene.calculate(harness.runtime)
        rms.run(Behave(failure_rate=1.0, failure_status=410))
        await come_in(page, harness, HOUSE)
        await rms_cells(page).first.get_by_role("button", name="Send to RMS").click()
        await confirm(page, "Send", says="Sends one event:")
        standing = page.locator("#standing .notice")
        await expect(standing).to_contain_text("disabled")
        await expect(standing).to_contain_text("410")
        await expect(rms_cells(page).first.locator(".state")).to_have_text("dead")
        rms.run(Behave())
        await standing.get_by_role("button", name="Enable").click()
        await confirm(page, "Send again", says="Waiting events are sent at once")
        await expect(standing).to_have_count(0)
        await rms_cells(page).first.get_by_role("button", name="Send again").click()
        await confirm(page, "Send", says="under the same event id")
        await expect(page.locator("#toast")).to_have_text("The event is re-queued.")
        await expect(rms_cells(page).first.locator(".state")).to_have_text("delivered")
        await not_reloaded(page)
