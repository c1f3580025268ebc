"""Every operation of the platform and of the installed services commits its changes with its audit event."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.kit.access import ApiToken
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.runtime import Runtime, find_services
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.store import Query
from tests.console.desk import PUBLIC_URL, desk
from tests.console.workshop import Workshop
from tests.operations.commit_log import CommitLog, LoggedCommit
from tests.operations.discovery import Function, operations_of, reads_of
from tests.operations.scenarios import ISSUER, SCENARIOS, Scenario, World
from tests.providers.provider_fixture import a_setting

for _file in sorted(Path(__file__).parent.glob("*_scenarios.py")):
    importlib.import_module(f"tests.operations.{_file.stem}")
# An argument for each parameter of a read, by its name; what it finds does not matter.
SAMPLES: dict[str, Any] = {
    "tenant_id": "-", "outbox": "holdfast", "caller": SERVICE, "collection": "holdfast_runs",
    "status": "parked", "month": "2026-11", "address": "203.0.113.7", "name": "ann", "code": "x" * 43,
    "ids": ["run-1"], "standing": "ok", "query": Query(ApiToken).order_by("-created_at"),
    "selection": StoriesQuery(), "story_ids": [8_863], "accounts": [],
}  # fmt: skip


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    workshop = Workshop()
    async with a_setting() as setting:
        services = [desk(setting), workshop.service(works=False), *find_services()]
        settings = {"home": tmp_path, "allow": "127.0.0.1", "oidc": [ISSUER], "public_url": PUBLIC_URL}
        config = load_config(settings, environ={})
        runtime = await Runtime.open(config, services=services, clock=SystemClock())
        try:
            yield World(runtime, CommitLog(runtime.store), setting, workshop)
        finally:
            await runtime.close()


async def test_every_operation_has_a_scenario_here(world: World) -> None:
    operations = operations_of(world.runtime)
    assert len(operations) > 25
    assert operations.keys() - SCENARIOS.keys() == set(), "add a scenario in tests/operations"
    assert SCENARIOS.keys() - operations.keys() == set(), "the operation of this scenario is gone"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_an_operation_commits_its_changes_with_its_audit_event(world: World, name: str) -> None:
    scenario = SCENARIOS[name]
    await scenario.play(world)
    commits = world.log.commits
    assert any(commit.events for commit in commits), "the act is not on record"
    assert any(commit.changed for commit in commits) == scenario.changes
    assert [str(commit) for commit in commits if _unrecorded(commit, scenario)] == []


def _unrecorded(commit: LoggedCommit, scenario: Scenario) -> bool:
    return not commit.events and not commit.changed <= scenario.follow_up


async def test_a_function_that_is_no_operation_commits_nothing(world: World) -> None:
    reads = reads_of(world.runtime)
    assert len(reads) > 15
    for name, function in reads.items():
        world.log.clear()
        await _call(world, function)
        assert [str(commit) for commit in world.log.commits if commit.changed or commit.events] == [], name


async def _call(world: World, function: Function) -> None:
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "runtime":
            given[name] = world.runtime
        elif name == "by":
            given[name] = world.by
        elif name in SAMPLES and parameter.default in (parameter.empty, None):
            given[name] = SAMPLES[name]
        elif parameter.default is parameter.empty:
            given[name] = f"no-{name}"
    try:
        result = function(**given)
        if inspect.isasyncgen(result):
            _ = [line async for line in result]
        else:
            await result
    except HoldfastError:
        # Nothing is stored under the sample: reading it was tried all the same.
        pass


async def test_an_act_that_is_refused_or_fails_is_on_record_and_changes_nothing(world: World) -> None:
    from holdfast.errors import ForbiddenError, NotFoundError
    from holdfast.model import Caller
    from holdfast.operations import schedules

    viewer = world.runtime.operator(Caller(user_id="user:vic", roles={"-": "viewer"}), "-")
    for by, expected, outcome in ((viewer, ForbiddenError, "refused"), (world.by, NotFoundError, "failed")):
        world.log.clear()
        with pytest.raises(expected):
            await schedules.run(world.runtime, by, "none")
        (commit,) = world.log.commits
        (event,) = commit.events
        assert (commit.changed, event["outcome"], event["subject"]) == (frozenset(), outcome, "none")
        assert event["actor"] == by.actor


def test_the_log_sees_a_change_without_its_event() -> None:
    bare = LoggedCommit(frozenset({"User"}), ())
    assert _unrecorded(bare, Scenario(_nothing))
    assert not _unrecorded(bare, Scenario(_nothing, frozenset({"User"})))


async def _nothing(world: World) -> Operator | None:
    return None
