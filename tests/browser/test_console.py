"""The console in a real browser: coming in, seeing things happen, acting on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast.clock import SystemClock
from holdfast.kit.audit import AuditEntry, AuditEvent
from holdfast.kit.schedules import Schedule
from holdfast.simulators.rms import Behave, RmsSimulator
from holdfast.store import Query
from tests.browser.entering import live, not_reloaded, sign_in
from tests.browser.look import Watched
from tests.browser.scene import fill
from tests.console.console_harness import PASSWORD, ConsoleHarness, console
from tests.http.server_harness import echo_service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _come_in(page: Page, harness: ConsoleHarness, name: str = "ann") -> None:
    """By the link that the first start prints."""
    await page.goto(await harness.first_link())
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_label("Repeat password").fill(PASSWORD)
    await page.get_by_role("button", name="Begin").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_a_failing_receiver_shows_as_retries_and_dead_letters_and_a_replay_arrives(
    page: Page, tmp_path: Path
) -> None:
    async with RmsSimulator(clock=SystemClock()) as rms, console(tmp_path, work=True) as harness:
        rms.run(Behave(failure_rate=1.0, failure_status=503))
        endpoint = await harness.endpoint(rms.webhook_url("property-7"), waits_s=(1.5,))
        await _come_in(page, harness)

        await page.get_by_role("link", name="Deliveries", exact=True).click()
        await live(page)
        await expect(page.get_by_text("Every event has arrived.")).to_be_visible()
        await harness.send(endpoint, '{"unit": "4B"}', '{"unit": "5A"}')
        states = page.locator("#rows .state")
        await expect(states).to_have_text(["failed", "failed"])
        await expect(states).to_have_text(["dead", "dead"])
        await not_reloaded(page)

        await page.get_by_role("link", name="Dead letters", exact=True).click()
        await live(page)
        await expect(page.locator("#rows tbody tr")).to_have_count(2)
        rms.run(Behave())
        await page.locator("#rows tbody tr").first.get_by_role("button", name="Replay").click()
        dialog = page.get_by_role("dialog", name="Replay this delivery?")
        await expect(dialog).to_contain_text("again, under the same event id")
        await dialog.get_by_role("button", name="Replay").click()
        await expect(page.locator("#toast")).to_have_text("It is in flight again.")
        await expect(page.locator("#rows tbody tr")).to_have_count(1)
        await not_reloaded(page)

        await page.goto(f"{harness.address}/console/deliveries?status=delivered")
        await expect(page.locator("#rows .state")).to_have_text(["delivered"])
        await page.locator("#rows a").first.click()
        await expect(page.get_by_role("heading", name="lease.renewed")).to_be_visible()
        await expect(page.locator("#delivery tbody tr")).to_have_count(3)
        await expect(page.locator(".payload")).to_contain_text('"unit": "5A"')
        assert rms.state.counts()["accepted"] == 1
        actions = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
        assert [event.action for event in actions.docs] == [
            "user.link_made", "session.began", "dead_letter.replayed",
        ]  # fmt: skip


async def test_all_dead_letters_are_replayed_after_saying_how_many(page: Page, tmp_path: Path) -> None:
    async with RmsSimulator(clock=SystemClock()) as rms, console(tmp_path, work=True) as harness:
        rms.run(Behave(failure_rate=1.0, failure_status=400))
        endpoint = await harness.endpoint(rms.webhook_url("property-7"))
        await _come_in(page, harness)
        await page.goto(f"{harness.address}/console/dead-letters")
        await harness.send(endpoint, "{}", "{}", "{}")
        await expect(page.locator("#rows tbody tr")).to_have_count(3)
        rms.run(Behave())
        await page.get_by_role("button", name="Replay all").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Sends 3 dead letters again")
        await dialog.get_by_role("button", name="Cancel").click()
        assert rms.state.counts()["accepted"] == 0
        await page.get_by_role("button", name="Replay all").click()
        await dialog.get_by_role("button", name="Replay 3").click()
        await expect(page.locator("#toast")).to_have_text("3 are in flight again.")
        await expect(page.get_by_text("No dead letters.")).to_be_visible()


async def test_a_viewer_has_nothing_to_press_and_is_refused_when_trying(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        await fill(harness.runtime)
        await sign_in(page, harness, "vic", role="viewer")
        await page.goto(f"{harness.address}/console/dead-letters")
        await expect(page.locator("#rows tbody tr").first).to_be_visible()
        await expect(page.get_by_role("button", name="Replay")).to_have_count(0)
        status = await page.evaluate(
            """async () => (await fetch("/api/v1/dead-letters/holdfast/replay", {
                 method: "POST", body: JSON.stringify({dryRun: false}),
                 headers: {"content-type": "application/json",
                           "x-csrf-token": document.querySelector("meta[name=csrf]").content},
               })).status"""
        )
        assert status == 403
        await page.goto(f"{harness.address}/console/audit?tenant=-")
        await expect(page.get_by_role("heading", name="Forbidden")).to_be_visible()
        await expect(page.get_by_role("link", name="Deliveries", exact=True)).to_be_visible()


async def test_without_a_connection_the_page_says_so_and_finds_back(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        await _come_in(page, harness)
        await page.goto(f"{harness.address}/console/audit?tenant=-")
        await live(page)
        await page.context.set_offline(True)
        harness.surface.changes.close()
        await expect(page.locator("#live-state")).to_have_text("offline, retrying")
        harness.renew_changes()
        await harness.runtime.audit("-").append(AuditEntry(action="seen.later", actor="cli:me"))
        await page.context.set_offline(False)
        await expect(page.locator("#live-state")).to_have_text("live")
        await expect(page.get_by_role("cell", name="seen.later")).to_be_visible()
        await not_reloaded(page)


async def test_what_changes_leaves_focus_and_open_details_alone(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        trail = harness.runtime.audit("-")
        await trail.append(AuditEntry(action="first", actor="cli:me", details={"colour": "green"}))
        await _come_in(page, harness)
        await page.goto(f"{harness.address}/console/audit?tenant=-")
        await live(page)
        await page.locator("#details-1 summary").click()
        await expect(page.locator("#details-1 pre")).to_contain_text("green")
        await trail.append(AuditEntry(action="second", actor="cli:me"))
        await expect(page.get_by_role("cell", name="second")).to_be_visible()
        await expect(page.locator("#details-1 pre")).to_be_visible()
        assert await page.evaluate("document.activeElement.closest('details').id") == "details-1"
        await page.get_by_role("button", name="Verify the chain").click()
        await expect(page.locator("#toast")).to_have_text("The chain holds: 4 events.")


async def test_a_schedule_is_run_and_switched(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path, services=[echo_service()], work=True) as harness:
        await _come_in(page, harness)
        await page.goto(f"{harness.address}/console/schedules")
        await page.get_by_role("button", name="Run now").click()
        await page.get_by_role("dialog").get_by_role("button", name="Run now").click()
        await expect(page.locator("#rows .state").first).to_have_text("done")
        await page.get_by_role("button", name="Switch off").click()
        await page.get_by_role("dialog").get_by_role("button", name="Switch off").click()
        await expect(page.get_by_role("button", name="Switch on")).to_be_visible()
        kept = await harness.runtime.store.tenant("-").query(Query(Schedule).order_by("name"))
        assert [one.enabled for one in kept.docs] == [False]


async def test_somebody_is_added_and_comes_in_by_a_link(page: Page, browser: Browser, tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        await _come_in(page, harness)
        await page.goto(f"{harness.address}/console/users")
        await page.get_by_label("Name", exact=True).fill("ben@acme.example")
        await page.get_by_label("Role").select_option("viewer")
        await page.get_by_role("button", name="Add").click()
        await expect(page.get_by_role("dialog", name="Keep this now")).to_be_visible()
        await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        row = page.locator("#rows tbody tr", has_text="ben@acme.example")
        await row.get_by_role("button", name="Link").click()
        await page.get_by_role("dialog").get_by_role("button", name="Make the link").click()
        await expect(page.get_by_role("dialog", name="Keep this now")).to_be_visible()
        link = await page.get_by_label("What to keep").input_value()
        await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        elsewhere = await browser.new_context()
        other = await elsewhere.new_page()
        watched = Watched(other)
        await other.goto(link)
        await other.get_by_label("Password", exact=True).fill(PASSWORD)
        await other.get_by_label("Repeat password").fill(PASSWORD)
        await other.get_by_role("button", name="Set password").click()
        await expect(other.locator(".person")).to_contain_text("ben@acme.example")
        await row.get_by_role("button", name="Disable").click()
        await page.get_by_role("dialog").get_by_role("button", name="Disable").click()
        await expect(row.locator(".state")).to_have_text("disabled")
        await other.reload()
        await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
        assert watched.faults == []
        await elsewhere.close()


async def test_who_signs_out_is_out(page: Page, tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        await _come_in(page, harness)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.goto(f"{harness.address}/console")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
