"""Approved candidates become pull requests at GitHub, once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConflictError, ForbiddenError, InvalidError
from holdfast.services.gwi.candidate_revision import PatchRequest
from holdfast.services.gwi.domain.patches import FileChange
from holdfast.services.gwi.models.records import AUDIT, AuditRecord
from holdfast.services.gwi.models.tenants import Member, Tenant, TenantPolicy
from holdfast.services.gwi.models.work import Candidate
from holdfast.simulators.github import (
    AddRepository,
    GithubSimulator,
    InjectedFault,
    Install,
    OpenIssue,
    ShowRepository,
)
from holdfast.store import Query, patch
from holdfast.testing import ManualClock
from tests.services.gwi.harness import TENANT, Harness, opened, while_time_passes
from tests.services.gwi.test_candidates import a_patch

FILES = {"src/cart.py": "print('lost')\n", "README.md": "A shop\n"}


class Shop:
    """The service and the simulated GitHub with one repository and one issue."""

    def __init__(self, harness: Harness, github: GithubSimulator, number: int) -> None:
        self.harness, self.github, self.number = harness, github, number

    async def candidate(self, *paths: str) -> Candidate:
        """A candidate for the issue, approved by dean."""
        await self.harness.signal("d1", resource_number=self.number, resource_url="https://gh/1")
        report = await self.harness.gwi.signals.process(self.harness.system)
        item_id = report.results[0].work_item_id
        made = await self.harness.gwi.candidates.create(
            self.harness.by("dora"), item_id, patch=a_patch(*paths)
        )
        return await self.vote(made, "dean")

    async def vote(self, candidate: Candidate, name: str) -> Candidate:
        return await self.harness.gwi.candidates.vote(
            self.harness.by(name), candidate.id, decision="approved"
        )

    async def apply(self, candidate: Candidate) -> Candidate:
        """Apply it, and work until the run has ended."""
        await self.harness.gwi.candidates.apply(self.harness.by("adam"), candidate.id)
        await while_time_passes(self.harness.clock, self._work(candidate.id))
        return await self.harness.gwi.candidates.get(TENANT, candidate.id)

    async def _work(self, candidate_id: str) -> None:
        while (await self.harness.gwi.candidates.get(TENANT, candidate_id)).applying:
            await self.harness.runtime.runner.turn()
            await self.harness.clock.sleep(0.1)

    @property
    def pulls(self) -> list[Any]:
        repo = self.github.state.repository("acme/shop")
        return [issue for issue in repo.issues.values() if issue.is_pull]


@pytest.fixture
async def shop(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Shop]:
    async with _shop(sqlite_url, clock, tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def _shop(url: str, clock: ManualClock, home: Path) -> AsyncIterator[Shop]:
    async with GithubSimulator(clock=clock) as github:
        github.run(AddRepository(name="acme/shop", files=FILES))
        installation: Any = github.run(Install(account="acme"))
        issue: Any = github.run(OpenIssue(repo="acme/shop", title="It fails"))
        app = {"app_id": github.app_id, "app_key": github.private_key, "github_url": github.url}
        async with opened(url, clock, home, config={"allow": "127.0.0.1"}, **app) as harness:
            await harness.found(installation_id=installation["id"])
            yield Shop(harness, github, issue["number"])


async def test_an_approved_candidate_becomes_a_pull_request_with_its_files_and_receipt(shop: Shop) -> None:
    candidate = await shop.candidate()
    applied = await shop.apply(candidate)
    assert (applied.status, applied.failure_reason, applied.applying) == ("applied", None, False)
    (pull,) = shop.pulls
    assert (pull.head, pull.base) == (f"gwi/{candidate.id}", "main")
    repository: Any = shop.github.run(ShowRepository(repo="acme/shop"))
    assert repository["branches"][pull.head] == FILES | {"src/cart.py": "print('sold')\n"}
    assert applied.resulting_pr_url is not None
    assert applied.resulting_pr_url.endswith(f"/pull/{pull.number}")
    for line in (f"Closes #{shop.number}", candidate.id, "It fails", "dora", "1 of 1 approvals by dean"):
        assert line in pull.body
    item = await shop.harness.gwi.queue.get(TENANT, candidate.work_item_id)
    assert (item.status, item.close_reason) == ("completed", "its candidate was applied")
    query = Query(AuditRecord).where("subject", "==", candidate.id).order_by("-sequence")
    events = (await shop.harness.store.query(query)).docs
    assert [one.action for one in reversed(events)] == [
        "candidate.created", "candidate.voted", "candidate.application_started", "candidate.applied",
    ]  # fmt: skip
    assert events[0].run_id == applied.run_id
    assert (await shop.harness.runtime.audit(TENANT, models=AUDIT).verify()).intact


async def test_a_patch_is_compared_with_the_repository_before_people_vote(shop: Shop) -> None:
    candidate = await shop.candidate()
    assert candidate.patchset is not None
    (change,) = candidate.patchset.changes
    assert change.diff is not None
    assert change.diff.splitlines()[-2:] == ["-print('lost')", "+print('sold')"]
    assert len(candidate.patchset.base_commit) == 40
    by, candidates = shop.harness.by("dora"), shop.harness.gwi.candidates
    lie = FileChange(file="README.md", action="create", content="A shop\nMore\n", diff="+nothing")
    changed = await candidates.revise(by, candidate.id, patch=PatchRequest(changes=[lie], commit_message="x"))
    assert changed.patchset is not None
    assert [(one.action, "+More" in (one.diff or "")) for one in changed.patchset.changes] == [
        ("modify", True)
    ]
    wrong = {"is the same": FileChange(file="README.md", action="modify", content="A shop\n"),
             "does not exist": FileChange(file="none.py", action="delete")}  # fmt: skip
    for reason, one in wrong.items():
        with pytest.raises(InvalidError, match=reason):
            await candidates.revise(by, candidate.id, patch=PatchRequest(changes=[one], commit_message="x"))
    # Where GitHub can't be asked, the patch stands without a diff.
    shop.github.inject(InjectedFault(path="/git/", status=500, count=50))
    revising = candidates.revise(by, candidate.id, patch=a_patch("b.py"))
    bare = await while_time_passes(shop.harness.clock, revising)
    assert bare.patchset is not None
    assert (bare.patchset.changes[0].diff, bare.patchset.base_commit) == (None, "")


async def test_applying_at_once_in_several_processes_starts_one_run(
    shop: Shop, sqlite_url: str, tmp_path: Path
) -> None:
    candidate = await shop.candidate()
    async with opened(sqlite_url, shop.harness.clock, tmp_path) as other:
        results = await asyncio.gather(*(
            one.gwi.candidates.apply(one.by("adam"), candidate.id) for one in (shop.harness, other) * 4
        ))  # fmt: skip
    assert len({one.run_id for one in results}) == 1
    assert (await shop.harness.gwi.runs.stats(TENANT)).started == 1
    applied = await shop.apply(candidate)
    again = await shop.harness.gwi.candidates.apply(shop.harness.by("adam"), candidate.id)
    assert (again.status, again.run_id, len(shop.pulls)) == ("applied", applied.run_id, 1)


async def test_what_is_being_applied_can_not_be_changed(shop: Shop) -> None:
    candidate = await shop.candidate()
    started = await shop.harness.gwi.candidates.apply(shop.harness.by("adam"), candidate.id)
    with pytest.raises(ConflictError, match=f"being applied by {started.run_id}"):
        await shop.harness.gwi.candidates.revise(shop.harness.by("dora"), candidate.id, patch=a_patch("b.py"))


async def test_a_failure_leaves_its_reason_and_the_next_attempt_makes_one_pull_request(shop: Shop) -> None:
    candidate = await shop.candidate()
    # The branch is made, the pull request is not.
    shop.github.inject(InjectedFault(method="POST", path="/repos/acme/shop/pulls", status=500, count=50))
    failed = await shop.apply(candidate)
    assert (failed.status, failed.resulting_pr_url) == ("failed", None)
    assert failed.failure_reason
    assert (await shop.harness.gwi.queue.get(TENANT, candidate.work_item_id)).status == "approved"
    shop.github.faults.clear()
    applied = await shop.apply(candidate)
    assert (applied.status, applied.failure_reason) == ("applied", None)
    assert applied.run_id != failed.run_id
    assert [pull.head for pull in shop.pulls] == [f"gwi/{candidate.id}"]


async def test_a_cancelled_run_fails_the_candidate(shop: Shop) -> None:
    candidate = await shop.candidate()
    started = await shop.harness.gwi.candidates.apply(shop.harness.by("adam"), candidate.id)
    await shop.harness.gwi.runs.cancel(shop.harness.by("dora"), started.run_id or "", reason="not today")
    failed = await shop.harness.gwi.candidates.get(TENANT, candidate.id)
    assert (failed.status, failed.failure_reason, failed.applying) == ("failed", "not today", False)


async def test_approvals_are_counted_again_when_it_is_applied(shop: Shop) -> None:
    harness, candidates = shop.harness, shop.harness.gwi.candidates
    candidate = await shop.candidate()
    await harness.store.commit(patch(Member, f"dean_{TENANT}", changes={"status": "suspended"}))
    with pytest.raises(ForbiddenError, match="0 of 1 approvals"):
        await candidates.apply(harness.by("adam"), candidate.id)
    assert (await harness.gwi.runs.stats(TENANT)).started == 0
    await harness.store.commit(patch(Member, f"dean_{TENANT}", changes={"status": "active"}))
    assert (await candidates.apply(harness.by("adam"), candidate.id)).applying


async def test_the_policy_of_the_moment_decides(shop: Shop) -> None:
    harness, candidates = shop.harness, shop.harness.gwi.candidates
    candidate = await shop.candidate()
    rule = {"name": "no carts", "effect": "deny", "paths": ["src/*"]}
    await _set_policy(harness, rule)
    with pytest.raises(ForbiddenError, match="the rule 'no carts' denies it"):
        await candidates.apply(harness.by("adam"), candidate.id)
    await _set_policy(harness, rule | {"effect": "require_approval", "approvals": 2})
    with pytest.raises(ForbiddenError, match="1 missing"):
        await candidates.apply(harness.by("adam"), candidate.id)


async def _set_policy(harness: Harness, rule: dict[str, Any]) -> None:
    policy = TenantPolicy(
        document={"rules": [rule]}, version=1, updated_at=harness.clock.now(), updated_by="olga", valid=True
    )
    await harness.store.commit(patch(Tenant, TENANT, changes={"policy": policy}))


async def test_only_an_approved_candidate_is_applied_and_only_by_admins(shop: Shop) -> None:
    harness, candidates = shop.harness, shop.harness.gwi.candidates
    candidate = await shop.candidate("deploy.yaml")
    assert candidate.status == "ready"
    with pytest.raises(ConflictError, match="the candidate is ready"):
        await candidates.apply(harness.by("adam"), candidate.id)
    await shop.vote(candidate, "adam")
    with pytest.raises(ForbiddenError):
        await candidates.apply(harness.by("dora"), candidate.id)
    await harness.store.commit(patch(Tenant, TENANT, changes={"status": "suspended"}))
    with pytest.raises(ForbiddenError, match="suspended"):
        await candidates.apply(harness.by("adam"), candidate.id)
