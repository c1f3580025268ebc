"""Runs, usage and automation over HTTP: answers, refusals and their bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.services.gwi.models.records import METER
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.models.tenants import Tenant
from holdfast.services.gwi.run_starts import AT_ONCE
from holdfast.store import patch
from holdfast.testing import ManualClock
from tests.services.gwi.api import TENANT, Api, T, gwi_api
from tests.services.gwi.run_harness import limits

START = {"type": "triage", "repoId": "gh-repo-42"}


@pytest.fixture
async def api(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Api]:
    async with gwi_api(tmp_path, clock) as made:
        await made.found(plan="free", adam="admin", dora="developer")
        repos = {"repos": [{"githubRepoId": 42, "githubFullName": "acme/shop"}]}
        await made.done("olga", "POST", f"{T}/repos:connect", repos)
        yield made


async def _patch(api: Api, kind: Any, key: str, **changes: Any) -> None:
    await api.harness.runtime.store.tenant(TENANT).commit(patch(kind, key, changes=changes))


async def test_a_run_is_started_once_for_a_key_listed_and_cancelled(api: Api) -> None:
    status, run, headers = await api.request("dora", "POST", f"{T}/runs", START, key="k1")
    assert (status, run["status"], run["type"]) == (202, "pending", "triage")
    status, again, headers = await api.request("dora", "POST", f"{T}/runs", START, key="k1")
    assert (status, again["id"], headers["Idempotency-Replayed"]) == (202, run["id"], "true")
    listed = await api.done("dora", "GET", f"{T}/runs?status=pending&type=triage")
    assert [one["id"] for one in listed["runs"]] == [run["id"]]
    assert len((await api.done("dora", "GET", f"{T}/runs/{run['id']}/steps"))["steps"]) == 2
    assert (await api.ask("dora", "GET", f"{T}/runs/{run['id']}/audit"))[0] == 403
    ended = await api.done("dora", "POST", f"{T}/runs/{run['id']}/cancel", {"reason": "enough"})
    assert ended["status"] == "cancelled"
    assert (await api.ask("dora", "POST", f"{T}/runs/{run['id']}/cancel"))[0] == 409
    on_record = await api.done("adam", "GET", f"{T}/runs/{run['id']}/audit")
    assert [one["eventType"] for one in on_record["events"] if one["outcome"] == "done"] == [
        "run_cancel_requested", "run_cancelled", "run_started",
    ]  # fmt: skip
    assert (await api.done("dora", "GET", f"{T}/run-stats"))["cancelled"] == 1
    assert (await api.ask("dora", "GET", f"{T}/runs/run-none"))[0] == 404


async def test_limits_and_states_of_the_tenant_are_told_as_specified(api: Api) -> None:
    await api.done("dora", "POST", f"{T}/runs", START)
    status, body, headers = await api.request("dora", "POST", f"{T}/runs", START)
    assert (status, body["error"], headers["Retry-After"]) == (429, "limit_reached", "30")
    assert body["details"] == {"usage": 1, "limit": 1, "plan": "free"}
    check = await api.done("dora", "GET", f"{T}/usage/check")
    assert (check["allowed"], check["runs"]["used"]) == (False, 1)
    await _patch(api, Tenant, TENANT, plan_limits=limits(monthly=1, at_once=1))
    status, body, headers = await api.request("dora", "POST", f"{T}/runs", START)
    assert (status, body["details"]) == (429, {"usage": 1, "limit": 1, "plan": "free"})
    assert "Retry-After" not in headers
    await api.done("adam", "POST", f"{T}/pause")
    status, body, headers = await api.request("dora", "POST", f"{T}/runs", START)
    assert (status, body["error"], headers["Retry-After"]) == (503, "retry_later", "60")
    await api.done("olga", "POST", f"{T}/suspend")
    status, body, _ = await api.request("dora", "POST", f"{T}/runs", START)
    assert (status, body["error"]) == (403, "forbidden")
    usage = await api.done("dora", "GET", f"{T}/usage")
    assert usage["runs"] == {"used": 1, "limit": 1, "standing": "reached"}
    assert (await api.done("adam", "POST", f"{T}/usage/rebuild"))["drifts"] == []


async def test_an_admin_decides_about_proposed_changes(api: Api) -> None:
    run = await api.done("dora", "POST", f"{T}/runs", START)
    await _patch(api, AgentRun, run["id"], approval_status="pending")
    meter = api.harness.runtime.meter(TENANT, models=METER)
    await api.harness.runtime.store.tenant(TENANT).commit(*meter.writes_give_back(AT_ONCE))
    waiting = await api.done("dora", "GET", f"{T}/runs?approval=pending")
    assert [one["id"] for one in waiting["runs"]] == [run["id"]]
    assert (await api.ask("dora", "POST", f"{T}/runs/{run['id']}/approve"))[0] == 403
    approved = await api.done("adam", "POST", f"{T}/runs/{run['id']}/approve", {"reason": "fine"})
    assert approved["approvalStatus"] == "approved"
    assert (await api.ask("adam", "POST", f"{T}/runs/{run['id']}/reject"))[0] == 409


async def test_instances_are_run_and_scheduled_by_members_alone(api: Api) -> None:
    made = {"templateId": "tmpl-plan", "name": "Nightly", "repoId": "gh-repo-42"}
    instance = await api.done("dora", "POST", f"/gwi/v1/tenants/{TENANT}/instances", made)
    path = f"/gwi/v1/instances/{instance['id']}"
    status, refused = await api.ask("mallory", "POST", f"{path}/run")
    assert status == 404, refused
    assert (await api.ask("mallory", "GET", f"{path}/schedules"))[0] == 404
    status, run = await api.ask("dora", "POST", f"{path}/run")
    assert (status, run["instanceId"]) == (202, instance["id"])
    schedule = await api.done("dora", "POST", f"{path}/schedules", {"cron": "0 3 * * *"})
    assert (await api.ask("dora", "POST", f"{path}/schedules", {"cron": "x"}))[0] == 422
    listed = await api.done("dora", "GET", f"{path}/schedules")
    assert [one["id"] for one in listed["schedules"]] == [schedule["id"]]
    stopped = await api.done(
        "dora", "POST", f"/gwi/v1/tenants/{TENANT}/schedules/{schedule['id']}/enable", {"enabled": False}
    )
    assert stopped["dueAt"] is None
    assert len((await api.done("mallory", "GET", "/gwi/v1/templates"))["templates"]) == 5
