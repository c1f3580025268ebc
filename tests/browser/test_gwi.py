"""gwi in a real browser: from an issue at GitHub to the pull request, by people with different roles."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast.clock import SystemClock
from holdfast.kit.access import Sessions
from holdfast.services.gwi.models.tenants import Member, MemberRole
from holdfast.simulators.github import OpenIssue, ShowRepository
from holdfast.store import put
from tests.browser.axe import serious_findings
from tests.browser.entering import live, not_reloaded
from tests.browser.look import Watched, crowded, cut_off, sideways
from tests.console.bed import Bed
from tests.services.gwi.github_harness import REPO, GithubHarness, github_harness

pytestmark = pytest.mark.asyncio(loop_scope="session")
PEOPLE: dict[str, MemberRole] = {"dora": "developer", "dean": "developer", "adam": "admin", "vera": "viewer"}
PHONE = {"width": 390, "height": 844}


class Organisation:
    """An organisation with the App installed, and its people at the console."""

    def __init__(self, harness: GithubHarness, bed: Bed, browser: Browser, *, tenant_id: str) -> None:
        self.harness, self.bed, self.tenant_id = harness, bed, tenant_id
        self._browser, self._cookies = browser, dict[str, str]()

    async def join(self) -> None:
        """Make everybody a member, and a user of the console."""
        now = self.harness.clock.now()
        for name, role in PEOPLE.items():
            user = await self.bed.person(name, role=role, tenant_id=self.tenant_id)
            member = Member(
                user_id=f"user:{user.id}", tenant_id=self.tenant_id, role=role, created_at=now, updated_at=now
            )
            await self.harness.runtime.store.tenant(self.tenant_id).commit(put(member))
            self._cookies[name] = await Sessions(self.bed.runtime.store).begin(user)

    @contextlib.asynccontextmanager
    async def person(self, name: str, path: str = "") -> AsyncIterator[Page]:
        """A page of somebody's own browser, which must stay free of errors."""
        context = await self._browser.new_context(viewport={"width": 1280, "height": 860})
        cookie: Any = {"name": "holdfast_session", "value": self._cookies[name], "url": self.bed.address}
        await context.add_cookies([cookie])
        page = await context.new_page()
        watched = Watched(page)
        await page.goto(f"{self.bed.address}/console/gwi{path}")
        yield page
        assert watched.faults == []
        await context.close()

    def pulls(self) -> list[dict[str, Any]]:
        shown: Any = self.harness.github.run(ShowRepository(repo=REPO))
        return [one for one in shown["issues"] if "head" in one]


@contextlib.asynccontextmanager
async def organisation(browser: Browser, home: Path) -> AsyncIterator[Organisation]:
    # Pages hear of changes in real time.
    clock: Any = SystemClock()
    async with github_harness(f"sqlite:///{home / 'gwi.db'}", clock, home) as harness:
        tenant_id, _ = await harness.install()
        address = harness.url.removesuffix("/gwi/webhook")
        made = Organisation(
            harness, Bed(harness.runtime, harness.surface, address), browser, tenant_id=tenant_id
        )
        await made.join()
        yield made


async def _propose(page: Page, file: str) -> str:
    """Propose a change on the page of a work item, by keyboard; the path of its candidate."""
    form = page.get_by_role("region", name="Propose a change")
    await form.get_by_label("File").first.fill(file)
    await form.get_by_label("What happens to it").first.select_option("create")
    await form.get_by_label("New content").first.fill("def check():\n    return True\n")
    await form.get_by_role("button", name="Propose").press("Enter")
    await expect(page.get_by_role("heading", name="Receipt")).to_be_visible()
    return page.url.partition("/console/gwi")[2]


async def test_an_issue_becomes_a_pull_request_that_two_people_approved(
    browser: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with organisation(browser, tmp_path) as acme:
        async with acme.person("dora") as dora:
            await expect(dora.get_by_text("No such work items.")).to_be_visible()
            await live(dora)
            acme.harness.github.run(OpenIssue(repo=REPO, title="Sign-in is slow", labels=["bug"], by="dora"))
            await acme.harness.work()
            await dora.get_by_role("link", name="Sign-in is slow").press("Enter")
            await expect(dora.get_by_text("+10 because it is labelled bug")).to_be_visible()
            candidate = await _propose(dora, "src/auth/check.py")
            await expect(dora.get_by_text("critical (100)")).to_be_visible()
            assert await dora.get_by_role("button", name="Approve").count() == 0, "nobody approves their own"

        async with acme.person("dean", candidate) as dean:
            await expect(dean.get_by_text("+def check():")).to_be_visible()
            await dean.get_by_role("button", name="Approve").press("Enter")
            await expect(dean.locator("#toast")).to_have_text("Your vote counts.")
            assert await dean.get_by_role("button", name="Apply").count() == 0

        async with acme.person("vera", candidate) as vera:
            await expect(vera.get_by_text("1 of 2", exact=True)).to_be_visible()
            assert await vera.get_by_role("main").get_by_role("button").count() == 0, "a viewer reads"
            await vera.set_viewport_size(PHONE)  # type: ignore[arg-type]
            for path in ("", "/signals", "/candidates", candidate, "/runs", "/usage"):
                await vera.goto(f"{acme.bed.address}/console/gwi{path}")
                assert (await sideways(vera), await cut_off(vera), await crowded(vera)) == (0, [], []), path
                assert await serious_findings(vera, request) == [], path

        async with acme.person("adam", candidate) as adam:
            await adam.get_by_role("button", name="Approve").press("Enter")
            await adam.get_by_role("button", name="Apply").press("Enter")
            dialog = adam.get_by_role("dialog", name="Make the pull request?")
            await dialog.get_by_role("button", name="Apply").press("Enter")
            await adam.get_by_role("link", name="run-").press("Enter")
            await expect(adam.get_by_role("heading", name="Timeline")).to_be_visible()
            await live(adam)
            await acme.harness.work()
            await expect(adam.get_by_role("region", name="At GitHub")).to_contain_text("pr created")
            await not_reloaded(adam)
            (pull,) = acme.pulls()
            assert "Sign-in is slow" in pull["body"]
            assert acme.harness.github.url in await adam.locator("#effects + ul").inner_html()

            await adam.goto(f"{acme.bed.address}/console/gwi/usage")
            await expect(adam.get_by_text("1 of")).not_to_have_count(0)
            await expect(adam.locator("svg").first).to_be_visible()
            await adam.goto(f"{acme.bed.address}/console/audit?trail=gwi")
            await expect(adam.get_by_text("pr_created").first).to_be_visible()
            await adam.get_by_role("button", name="Verify").press("Enter")
            await expect(adam.locator("#toast")).to_contain_text("The chain holds")
