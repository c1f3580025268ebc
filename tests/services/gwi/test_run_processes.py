"""Runs on real processes, one of which is killed inside a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.simulators.github import GithubSimulator, InjectedFault
from holdfast.testing import ManualClock
from tests.faults.controlled_process import run_processes
from tests.kit.eventually import until, until_found
from tests.services.gwi.git_repository import GitRepository, show_to, shown
from tests.services.gwi.run_harness import TENANT, a_request, run_harness

WORKER = "tests.services.gwi.run_process"
# Who stands still within a commit holds the database's locks, so the old one makes none by itself.
OLD = {"me": "old", "intervals": {"lease_s": 1.0, "renew_s": 600.0, "poll_s": 600.0}}
NEW = {"me": "new", "intervals": {"lease_s": 60.0, "poll_s": 0.5}}


async def test_the_run_of_a_killed_process_is_finished_by_another(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    async with GithubSimulator(clock=SystemClock()) as github:
        installation = show_to(github, GitRepository(tmp_path / "repository"))
        app: dict[str, Any] = {
            "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
        }  # fmt: skip
        order = {"url": sqlite_url, "home": str(tmp_path), "settings": app}
        found = {"installation_id": installation, "mode": "comment_only"}
        async with run_harness(sqlite_url, SystemClock(), tmp_path, found=found, **app) as harness:
            github.inject(InjectedFault(method="GET", path="/issues/1", hang=True))
            run = await harness.gwi.runs.start_run(harness.by(), a_request("review", number=1))

            async def stored() -> AgentRun:
                return await harness.gwi.runs.get(TENANT, run.id)

            async with run_processes(WORKER, "work", order | OLD) as (old,):
                await until_found(lambda: _running(stored, "old"))
                # The call that hangs has come in.
                await until(lambda: not github.faults._pending)
                await old.kill()
            async with run_processes(WORKER, "work", order | NEW) as (new,):
                await until_found(lambda: _ended(stored))
                new.say("stop")
                assert (await new.end())[-1] == "lost 0 faults 0"
            done = await stored()
            assert (done.status, [one.attempts for one in done.steps]) == ("completed", [2, 1, 1])
            assert len(shown(github)["comments"]) == 1
            stats = await harness.gwi.runs.stats(TENANT)
            assert (stats.active, stats.completed) == (0, 1)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_paused_process_that_lost_its_run_writes_nothing_more(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url: str = request.getfixturevalue(f"{engine}_url")
    (tmp_path / "repository").mkdir()
    clock = ManualClock(SystemClock().now())
    async with GithubSimulator(clock=clock) as github:
        installation = show_to(github, GitRepository(tmp_path / "repository"))
        app: dict[str, Any] = {
            "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
        }  # fmt: skip
        order = {"url": url, "home": str(tmp_path), "settings": app}
        found = {"installation_id": installation, "mode": "comment_only"}
        async with run_harness(url, SystemClock(), tmp_path, found=found, **app) as harness:
            github.inject(InjectedFault(method="GET", path="/issues/1", delay_s=60.0))
            run = await harness.gwi.runs.start_run(harness.by(), a_request("review", number=1))

            async def stored() -> AgentRun:
                return await harness.gwi.runs.get(TENANT, run.id)

            async with run_processes(WORKER, "work", order | OLD) as (old,):
                await until_found(lambda: _running(stored, "old"))
                await until(lambda: not github.faults._pending)
                old.pause()
                await until(lambda: old.paused)
                async with run_processes(WORKER, "work", order | NEW) as (new,):
                    await until_found(lambda: _ended(stored))
                    new.say("stop")
                    assert (await new.end())[-1] == "lost 0 faults 0"
                done, events = await stored(), (await harness.gwi.runs.events(TENANT, run.id)).docs
                old.say("stop once a run is lost")
                old.resume()
                await clock.advance(60)
                assert (await old.end())[-1] == "lost 1 faults 0"
            assert await stored() == done
            assert (await harness.gwi.runs.events(TENANT, run.id)).docs == events
            assert [one.attempts for one in done.steps] == [2, 1, 1]
            assert len(shown(github)["comments"]) == 1


async def _running(stored: Any, owner: str) -> bool:
    run = await stored()
    return bool(run.held_by == owner and run.steps[0].status == "running")


async def _ended(stored: Any) -> bool:
    return (await stored()).completed_at is not None
