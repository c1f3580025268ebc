"""Runs of every type on a real git repository, behind the simulated GitHub."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import LimitReachedError
from holdfast.providers.language_model import FormatName
from holdfast.services.gwi.models.runs import AgentRun, RunTrigger, RunType
from holdfast.services.gwi.models.tenants import Repo, TenantPolicy
from holdfast.services.gwi.run_records import frees_place
from holdfast.simulators.github import GithubSimulator, InjectedFault, OpenIssue
from holdfast.simulators.language_model import LanguageModelSimulator, SetAnswer
from tests.services.gwi.git_repository import GitRepository, show_to, shown
from tests.services.gwi.run_harness import REPO, TENANT, RunHarness, a_request, limits, run_harness

PULL = 1
ISSUE: dict[str, Any] = {"title": "Raise the price", "body": "See `src/price.py`: it is too low."}
WRITTEN = {
    "summary": "Raise the price",
    "files": [{"path": "src/price.py", "content": "PRICE = 9\n", "deleted": False}],
}


class Shop:
    """The service, the simulated GitHub and the real repository behind it."""

    def __init__(self, harness: RunHarness, github: GithubSimulator, repository: GitRepository) -> None:
        self.harness, self.github, self.repository = harness, github, repository

    async def run(self, type: RunType, **fields: Any) -> AgentRun:
        """Start a run and work until it has ended or waits."""
        run = await self.harness.gwi.runs.start_run(self.harness.by(), a_request(type, **fields))
        return await self.work(run.id)

    async def work(self, run_id: str) -> AgentRun:
        while await self.harness.runtime.runner.turn():
            pass
        return await self.harness.gwi.runs.get(TENANT, run_id)

    @property
    def seen(self) -> dict[str, Any]:
        return shown(self.github)

    def branch_files(self, branch: str) -> dict[str, str]:
        return dict(self.seen["branches"][branch])


@contextlib.asynccontextmanager
async def a_shop(
    url: str, home: Path, *, mode: Any = "auto_push", clash: bool = False, **settings: Any
) -> AsyncIterator[Shop]:
    clock = SystemClock()
    (home / "repository").mkdir()
    repository = GitRepository(home / "repository", clash=clash)
    async with GithubSimulator(clock=clock) as github:
        found = {"mode": mode, "installation_id": show_to(github, repository)}
        app = {"app_id": github.app_id, "app_key": github.private_key, "github_url": github.url}
        async with run_harness(url, clock, home, found=found, **app, **settings) as harness:
            yield Shop(harness, github, repository)


@contextlib.asynccontextmanager
async def a_coder(
    format: FormatName = "openai",
) -> AsyncIterator[tuple[LanguageModelSimulator, dict[str, Any]]]:
    async with LanguageModelSimulator(clock=SystemClock()) as model:
        model.run(SetAnswer(content=WRITTEN, schema="CodeAnswer"))
        yield model, {
            "model_url": model.base_url, "model_name": model.model, "model_key": model.key,
            "model_format": format,
        }  # fmt: skip


async def test_a_triage_judges_a_pull_request_and_says_so_there(sqlite_url: str, tmp_path: Path) -> None:
    async with a_shop(sqlite_url, tmp_path) as shop:
        run = await shop.run("triage", number=PULL)
        assert (run.status, run.error) == ("completed", None), [one.error for one in run.steps]
        assert [(one.name, one.status) for one in run.steps] == [
            ("triage", "completed"), ("publisher", "completed"),
        ]  # fmt: skip
        steps = await shop.harness.gwi.runs.steps(TENANT, run.id)
        assert steps[0].output["complexity"] == 1.0
        assert sorted(steps[0].output["files"]) == ["src/cart.py", "src/new.py"]
        (comment,) = shop.seen["comments"]
        assert "Complexity 1 of 10" in comment["body"]
        assert [one.kind for one in run.effects] == ["github_comment_posted"]
        assert await shop.harness.meter.this_month("runs") == 1
        stored = await shop.harness.store.get(Repo, TENANT, REPO)
        assert stored is not None
        assert (stored.doc.successful_runs, stored.doc.last_run_id) == (1, run.id)


async def test_a_plan_names_the_files_that_an_issue_is_about(sqlite_url: str, tmp_path: Path) -> None:
    async with a_shop(sqlite_url, tmp_path) as shop:
        issue: Any = shop.github.run(OpenIssue(repo="acme/shop", **ISSUE))
        run = await shop.run("plan", number=issue["number"])
        assert run.status == "completed", run.error
        plan = (await shop.harness.gwi.runs.steps(TENANT, run.id))[1].output
        assert plan["affectedFiles"] == ["src/price.py"]


async def test_a_review_finds_what_the_rules_find(sqlite_url: str, tmp_path: Path) -> None:
    async with a_shop(sqlite_url, tmp_path) as shop:
        run = await shop.run("review", number=PULL)
        assert run.status == "completed", run.error
        found = (await shop.harness.gwi.runs.steps(TENANT, run.id))[1].output
        assert [one["rule"] for one in found["findings"]] == ["no_test"]
        assert "1 finding" in shop.seen["comments"][0]["body"]


async def test_a_resolve_merges_as_git_does_and_pushes_to_the_pull_request(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with a_shop(sqlite_url, tmp_path) as shop:
        run = await shop.run("resolve", number=PULL)
        assert run.status == "completed", run.error
        assert shop.branch_files("feature") == shop.repository.merged()
        assert [one.kind for one in run.effects] == [
            "commit_pushed", "pr_updated", "github_comment_posted",
        ]  # fmt: skip


async def test_a_conflict_that_only_people_can_decide_is_left_to_them(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with a_shop(sqlite_url, tmp_path, clash=True) as shop:
        before = shop.branch_files("feature")
        run = await shop.run("resolve", number=PULL)
        assert run.status == "completed", run.error
        assert shop.branch_files("feature") == before
        output = (await shop.harness.gwi.runs.steps(TENANT, run.id))[1].output
        assert output["conflicts"] == ["src/price.py: 1 conflict that only people can decide"]


@pytest.mark.parametrize("format", ["openai", "anthropic"])
async def test_an_autopilot_opens_a_pull_request_by_a_language_model(
    sqlite_url: str, tmp_path: Path, format: FormatName
) -> None:
    async with a_coder(format) as (_, settings), a_shop(sqlite_url, tmp_path, **settings) as shop:
        issue: Any = shop.github.run(OpenIssue(repo="acme/shop", **ISSUE))
        run = await shop.run("autopilot", number=issue["number"])
        assert run.status == "completed", run.error
        (pull,) = [
            one for one in shop.seen["issues"] if one.get("head", {}).get("ref", "").startswith("gwi/")
        ]
        assert (pull["title"], pull["head"]["ref"]) == ("Raise the price", f"gwi/{run.id}")
        assert run.id in pull["body"]
        assert run.pr_url == pull["html_url"]
        assert shop.branch_files(f"gwi/{run.id}")["src/price.py"] == "PRICE = 9\n"
        assert run.tokens_used is not None
        assert run.tokens_used.total == run.tokens.input + run.tokens.output > 0
        assert await shop.harness.meter.this_month("inputTokens") == run.tokens.input
        assert await shop.harness.meter.rebuild(shop.harness.clock.now().strftime("%Y-%m")) == []


async def test_a_suggested_patch_waits_for_approval_and_goes_on_or_ends(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with (
        a_coder() as (_, settings),
        a_shop(sqlite_url, tmp_path, mode="suggest_patch", **settings) as shop,
    ):
        runs, adam = shop.harness.gwi.runs, shop.harness.by("adam")
        run = await shop.run("autopilot", title="Raise the price", instructions="in src/price.py")
        assert (run.status, run.approval_status) == ("running", "pending")
        assert [(one.file, one.action) for one in run.proposed_changes or []] == [("src/price.py", "modify")]
        assert list(shop.seen["branches"]) == ["main", "feature"]
        await runs.approve(adam, run.id, reason="fine")
        done = await shop.work(run.id)
        assert (done.status, done.approval_status) == ("completed", "approved")
        assert shop.branch_files(f"gwi/{run.id}")["src/price.py"] == "PRICE = 9\n"
        other = await shop.run("autopilot", title="Raise the price")
        rejected = await runs.reject(adam, other.id, reason="too much")
        assert (rejected.status, rejected.approval_status) == ("cancelled", "rejected")
        actions = [one.action for one in (await runs.events(TENANT, other.id)).docs]
        assert actions[:2] == ["approval_rejected", "run_cancelled"]
        assert [one.decision for one in await runs.approvals(TENANT, run.id)] == ["approved"]
        assert (await runs.stats(TENANT)).active == 0


async def test_a_run_that_waits_for_approval_has_no_place_until_it_is_approved(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with (
        a_coder() as (_, settings),
        a_shop(sqlite_url, tmp_path, mode="suggest_patch", **settings) as shop,
    ):
        harness, runs, adam = shop.harness, shop.harness.gwi.runs, shop.harness.by("adam")
        await harness.change_tenant(plan_limits=limits(at_once=1))
        waiting, cancelled, rejected = [
            await shop.run("autopilot", title="Raise the price", instructions="in src/price.py")
            for _ in range(3)
        ]
        assert (await runs.stats(TENANT)).active == 0
        other = await runs.start_run(harness.by(), a_request("triage", title="Look"))
        with pytest.raises(LimitReachedError, match="1 run is under way") as refused:
            await runs.approve(adam, waiting.id)
        assert (refused.value.after_s, refused.value.usage, refused.value.limit) == (30.0, 1, 1)
        assert await runs.approvals(TENANT, waiting.id) == []
        await runs.cancel(adam, cancelled.id)
        await runs.reject(adam, rejected.id)
        assert (await runs.stats(TENANT)).active == 1
        await shop.work(other.id)
        await runs.approve(adam, waiting.id)
        assert (await runs.stats(TENANT)).active == 1
        assert (await shop.work(waiting.id)).status == "completed"
        assert (await runs.stats(TENANT)).active == 0


@pytest.mark.parametrize(
    ("before", "after", "ended", "frees"),
    [
        ("none", "none", True, True),
        ("none", "none", False, False),
        ("none", "pending", False, True),
        ("none", "pending", True, True),
        ("pending", "pending", True, False),
        # A worker's copy may be older than the decision that is stored.
        ("approved", "pending", False, False),
        ("approved", "approved", True, True),
        ("rejected", "pending", True, False),
    ],
)
def test_a_run_gives_its_place_back_once(before: Any, after: Any, ended: bool, frees: bool) -> None:
    now = SystemClock().now()
    run = AgentRun(
        id="run-1", tenant_id=TENANT, type="triage", repo_id=REPO, trigger=RunTrigger(source="api"),
        risk_mode="auto_push", approval_status=before, created_at=now, updated_at=now,
    )  # fmt: skip
    changed = msgspec.structs.replace(run, approval_status=after, completed_at=now if ended else None)
    assert frees_place(changed, run) == frees


async def test_a_policy_asks_for_approval_or_refuses_the_change(sqlite_url: str, tmp_path: Path) -> None:
    async with a_coder() as (_, settings), a_shop(sqlite_url, tmp_path, **settings) as shop:
        for effect, status, approval in (
            ("require_approval", "running", "pending"),
            ("deny", "failed", "none"),
        ):
            now = shop.harness.clock.now()
            rule = {"name": "prices", "effect": effect, "paths": ["src/price.py"]}
            await shop.harness.change_tenant(policy=TenantPolicy(
                document={"rules": [rule]}, version=1, updated_at=now, updated_by="adam", valid=True,
            ))  # fmt: skip
            run = await shop.run("autopilot", title="Raise the price", instructions="in src/price.py")
            assert (run.status, run.approval_status) == (status, approval)
        assert "prices" in (run.error or "")
        assert list(shop.seen["branches"]) == ["main", "feature"]


async def test_a_run_stops_at_its_budget(sqlite_url: str, tmp_path: Path) -> None:
    async with (
        a_coder() as (_, settings),
        a_shop(sqlite_url, tmp_path, run_tokens_max=10, **settings) as shop,
    ):
        run = await shop.run("autopilot", title="Raise the price")
        assert run.status == "failed"
        assert run.error is not None
        assert "budget of 10 tokens" in run.error
        assert run.tokens.input > 10
        used = await shop.harness.meter.month_sums(shop.harness.clock.now().strftime("%Y-%m"))
        assert used["inputTokens"] == run.tokens.input


async def test_an_effect_whose_answer_was_lost_is_not_made_twice(sqlite_url: str, tmp_path: Path) -> None:
    async with a_coder() as (_, settings), a_shop(sqlite_url, tmp_path, **settings) as shop:
        issue: Any = shop.github.run(OpenIssue(repo="acme/shop", **ISSUE))
        for path in ("/pulls", "/comments"):
            shop.github.inject(InjectedFault(method="POST", path=path, cut=True, late=True))
        run = await shop.run("autopilot", number=issue["number"])
        for _ in range(100):
            if run.completed_at is not None:
                break
            run = await shop.work(run.id)
            await shop.harness.clock.sleep(0.1)
        assert run.status == "completed", run.error
        pulls = [one for one in shop.seen["issues"] if one.get("head", {}).get("ref", "").startswith("gwi/")]
        assert (len(pulls), len(shop.seen["comments"])) == (1, 1)
