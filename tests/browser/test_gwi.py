"""gwi in a real browser: from an issue at GitHub to the pull request, by people with different roles."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast.clock import SystemClock
from holdfast.kit.access import Sessions
from holdfast.model import Caller
from holdfast.operation import Operator
from holdfast.services.gwi.models.runs import RunTrigger
from holdfast.services.gwi.models.tenants import Member, MemberRole
from holdfast.services.gwi.run_starts import RunRequest
from holdfast.simulators.github import OpenIssue, OpenPull, PushFiles, ShowRepository
from holdfast.store import put
from tests.browser.axe import serious_findings
from tests.browser.entering import live, not_reloaded
from tests.browser.look import Watched, crowded, cut_off, sideways
from tests.console.console_harness import ConsoleHarness
from tests.services.gwi.github_harness import FILES, REPO, GithubHarness, github_harness

pytestmark = pytest.mark.asyncio(loop_scope="session")
PEOPLE: dict[str, MemberRole] = {"dora": "developer", "dean": "developer", "adam": "admin", "vera": "viewer"}
PHONE = {"width": 390, "height": 844}


class Organisation:
    """An organisation with the App installed, and its people at the console."""

    def __init__(
        self, harness: GithubHarness, console: ConsoleHarness, browser: Browser, *, tenant_id: str
    ) -> None:
        self.harness, self.console, self.tenant_id = harness, console, tenant_id
        self._browser, self._cookies = browser, dict[str, str]()

    async def join(self) -> None:
        """Make everybody a member, and a user of the console."""
        now = self.harness.clock.now()
        for name, role in PEOPLE.items():
            user = await self.console.person(name, role=role, tenant_id=self.tenant_id)
            member = Member(
                user_id=f"user:{user.id}", tenant_id=self.tenant_id, role=role, created_at=now, updated_at=now
            )
            await self.harness.runtime.store.tenant(self.tenant_id).commit(put(member))
            self._cookies[name] = await Sessions(self.console.runtime.store).begin(user)

    @contextlib.asynccontextmanager
    async def person(self, name: str, path: str = "") -> AsyncIterator[Page]:
        """A page of somebody's own browser, which must stay free of errors."""
        context = await self._browser.new_context(viewport={"width": 1280, "height": 860})
        cookie: Any = {"name": "holdfast_session", "value": self._cookies[name], "url": self.console.address}
        await context.add_cookies([cookie])
        page = await context.new_page()
        watched = Watched(page)
        await page.goto(f"{self.console.address}/console/gwi{path}")
        yield page
        assert watched.faults == []
        await context.close()

    def owner(self) -> Operator:
        caller = Caller(user_id="olivia", roles={self.tenant_id: "owner"})
        return self.harness.runtime.operator(caller, self.tenant_id)

    async def waiting_run(self) -> str:
        """Start a run that merges a pull request with main and waits for an approval; return its id."""
        github, path = self.harness.github, "src/main.py"
        ours, theirs = FILES[path].replace("one", "ONE"), FILES[path].replace("five", "FIVE")
        github.run(PushFiles(repo=REPO, branch="capitals", files={path: ours}, by="dora"))
        pull: Any = github.run(OpenPull(repo=REPO, title="Capitals", head="capitals", by="dora"))
        github.run(PushFiles(repo=REPO, branch="main", files={path: theirs}, by="dora"))
        await self.harness.work()
        (repo,) = (await self.harness.gwi.repos.page(self.tenant_id)).docs
        request = RunRequest(
            type="resolve", repo_id=repo.id, number=pull["number"], title="Capitals",
            trigger=RunTrigger(source="api", user_id="olivia"),
        )  # fmt: skip
        run = await self.harness.gwi.runs.start_run(self.owner(), request)
        await self.harness.work()
        return run.id

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
            harness, ConsoleHarness(harness.runtime, harness.surface, address), browser, tenant_id=tenant_id
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


async def _check_on_a_phone(page: Page, request: pytest.FixtureRequest, path: str) -> None:
    """Open a page as wide as a phone: it fits, and is accessible."""
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await page.goto(path)
    assert (await sideways(page), await cut_off(page), await crowded(page)) == (0, [], []), path
    assert await serious_findings(page, request) == [], path


async def _invite(page: Page, email: str) -> str:
    """Invite somebody on the page of members, by keyboard; the token, which no later page shows."""
    await page.get_by_label("E-mail address").fill(email)
    await page.get_by_label("E-mail address").press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("It is shown once.")
    token = await page.get_by_label("What to keep").input_value()
    await page.get_by_role("dialog").get_by_role("button", name="Close").press("Enter")
    await expect(page.get_by_role("region", name="Invitations")).to_contain_text(email)
    return token


async def _edit_policy(page: Page) -> None:
    """Have a wrong policy checked, and save a right one, by keyboard."""
    rules = page.get_by_label("Rules, the first that matches decides")
    await rules.fill('{"rules": [{"name": "no effect"}]}')
    await page.get_by_role("button", name="Check").press("Enter")
    await expect(page.locator("#toast")).to_contain_text("missing required field `effect`")
    # Until the page is refreshed the form is sent to nobody else.
    await expect(page.locator("form[aria-busy]")).to_have_count(0)
    await rules.fill('{"rules": [{"name": "main", "effect": "require_approval", "branches": ["main"]}]}')
    await page.get_by_role("button", name="Check").press("Enter")
    await expect(page.locator("#toast")).to_have_text("The policy is valid.")
    await expect(page.locator("form[aria-busy]")).to_have_count(0)
    await page.get_by_role("button", name="Save").press("Enter")
    dialog = page.get_by_role("dialog", name="Save this policy?")
    await dialog.get_by_role("button", name="Save").press("Enter")
    await expect(page.get_by_role("region", name="Summary")).to_contain_text(re.compile(r"^\s*1\s*version"))


async def test_an_admin_invites_writes_the_policy_and_approves_a_run_that_goes_on_live(
    browser: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with organisation(browser, tmp_path) as acme:
        await acme.harness.gwi.tenants.change_plan(acme.owner(), "team")
        run_id = await acme.waiting_run()
        async with acme.person("adam", "/members") as adam:
            token = await _invite(adam, "new@people.example")
            await adam.reload()
            await expect(adam.get_by_text("new@people.example")).to_be_visible()
            assert len(token) > 20
            assert token not in await adam.content()

            await adam.goto(f"{acme.console.address}/console/gwi/policy")
            await _edit_policy(adam)
            assert (await acme.harness.gwi.policies.get(acme.tenant_id)).version == 1

            approvals = await adam.context.new_page()
            await approvals.goto(f"{acme.console.address}/console/gwi/approvals")
            await adam.goto(f"{acme.console.address}/console/gwi/runs/{run_id}")
            await live(adam)
            publisher = adam.get_by_role("region", name="Timeline").get_by_role("row", name="publisher")
            await expect(publisher).to_contain_text("pending")
            for path in ("members", "policy", "approvals", f"runs/{run_id}"):
                await _check_on_a_phone(approvals, request, f"{acme.console.address}/console/gwi/{path}")

            await approvals.goto(f"{acme.console.address}/console/gwi/approvals")
            await approvals.get_by_role("button", name="Approve").press("Enter")
            dialog = approvals.get_by_role("dialog", name="Approve these changes?")
            await dialog.get_by_role("button", name="Approve").press("Enter")
            await expect(approvals.get_by_text("No run waits for approval.")).to_be_visible()
            await acme.harness.work()
            await expect(publisher).to_contain_text("completed")
            await expect(adam.get_by_role("region", name="At GitHub")).to_contain_text("pr created")
            await not_reloaded(adam)


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
            for path in ("", "/signals", "/candidates", candidate, "/runs", "/usage"):
                await _check_on_a_phone(vera, request, f"{acme.console.address}/console/gwi{path}")

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

            await adam.goto(f"{acme.console.address}/console/gwi/usage")
            await expect(adam.get_by_text("1 of")).not_to_have_count(0)
            await expect(adam.locator("svg").first).to_be_visible()
            await adam.goto(f"{acme.console.address}/console/audit?trail=gwi")
            await expect(adam.get_by_text("pr_created").first).to_be_visible()
            await adam.get_by_role("button", name="Verify").press("Enter")
            await expect(adam.locator("#toast")).to_contain_text("The chain holds")
