"""Runs whose process dies before or after any write and any call: each is finished once by another."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.kit.audit import AUDIT_KEY, Audit
from holdfast.kit.metering import Meter
from holdfast.kit.runs import Runner
from holdfast.services.gwi import service
from holdfast.services.gwi.agents.interface import AgentResult, AgentTask
from holdfast.services.gwi.models.records import AUDIT
from holdfast.services.gwi.models.runs import RUNS, AgentRun
from holdfast.services.gwi.parts import build
from holdfast.services.gwi.run_starts import AT_ONCE
from holdfast.services.gwi.workflow import AgentWorkflows
from holdfast.simulators.github import GithubSimulator, OpenIssue
from holdfast.simulators.language_model import LanguageModelSimulator, SetAnswer
from holdfast.testing import ManualClock
from tests.kit.fake_channel_provider import CrashError, Fuse, fused
from tests.services.gwi.git_repository import REPO_NAME, GitRepository, show_to, shown
from tests.services.gwi.run_harness import TENANT, RunHarness, a_request, limits, run_harness
from tests.services.gwi.test_runs import ISSUE, WRITTEN

# Every point where a process can die is tried with 1; by default every so many.
STRIDE = int(os.environ.get("HOLDFAST_TEST_GWI_CRASH_STRIDE", "3"))
TURNS_MAX = 50


class FusedSession:
    """An HTTP client whose process may be gone before or after any call."""

    def __init__(self, session: Any, fuse: Fuse) -> None:
        self._session, self._fuse = session, fuse

    @contextlib.asynccontextmanager
    async def request(self, *words: Any, **named: Any) -> AsyncIterator[Any]:
        self._fuse.burn()
        async with self._session.request(*words, **named) as response:
            self._fuse.burn()
            yield response


def crashing_runner(harness: RunHarness, fuse: Fuse) -> Runner:
    """The service as another process on the harness's store, with a fuse burning."""
    context = harness.runtime._context(service)
    store, keys = fused(harness.runtime.store, fuse), tuple(context.vault.secrets(AUDIT_KEY).values())
    parts = build(msgspec.structs.replace(
        context, store=store, audit=lru_cache(partial(Audit, store, keys=keys)),
        meter=lambda tenant_id, models: Meter(store, tenant_id=tenant_id, models=models),
        http_session=FusedSession(context.http_session, fuse),
    ))  # fmt: skip
    (part,) = parts.runs
    return Runner(store.privileged(), part.workflows, models=RUNS, joins=part.joins)


async def _work(harness: RunHarness, clock: ManualClock, run_id: str) -> AgentRun:
    """Let the harness's own process work until the run has ended."""
    for _ in range(TURNS_MAX):
        await harness.runtime.runner.turn()
        run = await harness.gwi.runs.get(TENANT, run_id)
        if run.completed_at is not None:
            return run
        await clock.advance(61)
    raise AssertionError(f"the run did not end: {run}")


async def test_a_run_survives_a_crash_at_every_point_with_no_step_and_no_effect_twice(
    sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    (tmp_path / "repository").mkdir()
    async with GithubSimulator(clock=clock) as github, LanguageModelSimulator(clock=clock) as model:
        model.run(SetAnswer(content=WRITTEN, schema="CodeAnswer"))
        installation = show_to(github, GitRepository(tmp_path / "repository"))
        settings = {
            "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
            "model_url": model.base_url, "model_name": model.model, "model_key": model.key,
        }  # fmt: skip
        found = {"mode": "auto_patch", "installation_id": installation, "limits": limits(monthly=10_000)}
        async with run_harness(sqlite_url, clock, tmp_path, found=found, **settings) as harness:
            crashes = 0
            for left in range(0, 1_000_000, STRIDE):
                issue: Any = github.run(OpenIssue(repo=REPO_NAME, **ISSUE))
                number, fuse = issue["number"], Fuse(left)
                run = await harness.gwi.runs.start_run(harness.by(), a_request("autopilot", number=number))
                runner = crashing_runner(harness, fuse)
                try:
                    while await runner.turn():
                        pass
                except CrashError:
                    pass
                crashes += fuse.blown
                run = await _work(harness, clock, run.id)
                await _assert_once(harness, github, run, number)
                if not fuse.blown:
                    break
            assert crashes > 5
            assert await harness.meter.used(AT_ONCE) == 0
            assert await harness.meter.this_month("runs") == crashes + 1
            assert (await harness.gwi.usage.rebuild(harness.by("adam"))).drifts == []


async def _assert_once(harness: RunHarness, github: GithubSimulator, run: AgentRun, number: int) -> None:
    assert run.status == "completed", run.error
    seen = shown(github)
    pulls = [one for one in seen["issues"] if one.get("head", {}).get("ref") == f"gwi/{run.id}"]
    comments = [one for one in seen["comments"] if run.id in one["body"]]
    assert (len(pulls), len(comments)) == (1, 1)
    events = list(reversed((await harness.gwi.runs.events(TENANT, run.id)).docs))
    counts = Counter(one.action for one in events)
    assert (counts["run_completed"], counts["pr_created"], counts["step_completed"]) == (1, 1, 5)
    done: set[str] = set()
    for event in events:
        agent = event.details.get("agent", "")
        if event.action == "step_completed":
            done.add(agent)
        assert event.action != "step_started" or agent not in done, f"{agent} began again"


async def no_host(tenant_id: str, repo_id: str) -> Any:
    """For agents that need no repository."""
    return None


class GatedAgent:
    """A triage that stands still until it is let go on."""

    name = "triage"

    def __init__(self) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def work(self, task: AgentTask) -> AgentResult:
        self.begun.set()
        await self.gate.wait()
        return AgentResult(output={"by": "the old one"}, summary="too late")


async def test_a_holder_that_stood_still_writes_nothing_once_another_has_the_run(
    sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with GithubSimulator(clock=clock) as github:
        app: dict[str, Any] = {
            "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
        }  # fmt: skip
        async with run_harness(sqlite_url, clock, tmp_path, found={}, **app) as harness:
            agent, runtime = GatedAgent(), harness.runtime
            (part,) = runtime.parts["gwi"].runs
            slow = AgentWorkflows(runtime.store, {agent.name: agent}, hosts=no_host, audits=runtime.audit)
            old = Runner(
                runtime.store.privileged(),
                [slow.by_type["triage"]],
                models=RUNS,
                joins=part.joins,
                owner="old",
            )
            run = await harness.gwi.runs.start_run(harness.by(), a_request("triage", title="Look"))
            working = asyncio.create_task(old.turn())
            await asyncio.wait_for(agent.begun.wait(), 30)
            await clock.advance(61)
            done = await _work(harness, clock, run.id)
            before = (done, (await harness.gwi.runs.events(TENANT, run.id)).docs)
            agent.gate.set()
            await asyncio.wait_for(working, 30)
            assert (old.status().lost, old.status().faults) == (1, 0)
            after = await harness.gwi.runs.get(TENANT, run.id)
            assert (after, (await harness.gwi.runs.events(TENANT, run.id)).docs) == before
            assert [(one.status, one.attempts) for one in done.steps] == [("completed", 2), ("completed", 1)]


async def test_a_step_over_its_time_fails_and_a_cancel_stops_the_run_between_steps(
    sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with run_harness(sqlite_url, clock, tmp_path, found={}) as harness:
        agent, runtime = GatedAgent(), harness.runtime
        (part,) = runtime.parts["gwi"].runs
        slow = AgentWorkflows(runtime.store, {agent.name: agent}, hosts=no_host, audits=runtime.audit)
        runner = Runner(runtime.store.privileged(), [slow.by_type["triage"]], models=RUNS, joins=part.joins)
        run = await harness.gwi.runs.start_run(harness.by(), a_request("triage", title="Look"))
        working = asyncio.create_task(runner.turn())
        await asyncio.wait_for(agent.begun.wait(), 30)
        await clock.advance(300)
        await asyncio.wait_for(working, 30)
        late = await harness.gwi.runs.get(TENANT, run.id)
        assert late.steps[0].error == "triage took longer than 300 s"
        agent.begun.clear()
        await clock.advance(60)
        working = asyncio.create_task(runner.turn())
        await asyncio.wait_for(agent.begun.wait(), 30)
        asked = await harness.gwi.runs.cancel(harness.by(), run.id, reason="enough")
        assert asked.status == "running"
        agent.gate.set()
        await asyncio.wait_for(working, 30)
        ended = await harness.gwi.runs.get(TENANT, run.id)
        assert (ended.status, [one.status for one in ended.steps]) == ("cancelled", ["completed", "skipped"])
        assert await harness.meter.used(AT_ONCE) == 0


async def test_two_hundred_runs_at_once_finish(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> None:
    async with GithubSimulator(clock=clock) as github:
        app: dict[str, Any] = {
            "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
        }  # fmt: skip
        async with run_harness(sqlite_url, clock, tmp_path, **app) as harness:
            started: list[tuple[str, str]] = []
            for org in range(1, 11):
                tenant_id = f"gh-org-{org}"
                await harness.found(tenant_id, limits=limits(at_once=20))
                for _ in range(20):
                    run = await harness.gwi.runs.start_run(
                        harness.by(tenant_id=tenant_id), a_request("triage", title="Look")
                    )
                    started.append((tenant_id, run.id))
            await harness.runtime.runner.work_off()
            for tenant_id, run_id in started:
                assert (await harness.gwi.runs.get(tenant_id, run_id)).status == "completed"
            for org in range(1, 11):
                tenant_id = f"gh-org-{org}"
                stats = await harness.gwi.runs.stats(tenant_id)
                assert (stats.active, stats.completed) == (0, 20)
                verdict = await harness.runtime.audit(tenant_id, models=AUDIT).verify()
                assert verdict.intact
                assert (await harness.gwi.usage.rebuild(harness.by("adam", tenant_id))).drifts == []
