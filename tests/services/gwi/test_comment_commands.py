"""Commands in comments and labels: read, allowed by role, done once and answered; few start by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.model import Caller
from holdfast.services.gwi.domain.comment_commands import parse_commands
from holdfast.services.gwi.domain.github_events import (
    AutomaticSettings,
    GithubEvent,
    automatic_runs,
    parse_event,
)
from holdfast.services.gwi.domain.plans import PLANS
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.models.tenants import Member, Tenant
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.simulators.github import AddLabel, OpenIssue, WriteComment
from holdfast.store import patch, put
from holdfast.testing import ManualClock
from tests.services.gwi.github_harness import REPO, GithubHarness, github_harness
from tests.services.gwi.test_candidates import a_patch


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("/gwi triage", [("triage", "")]),
        ("Please:\n  /GWI Review\n/gwi generate\n", [("review", ""), ("generate", "")]),
        ("/gwi approve run-1 --scopes push,merge", [("approve", "run-1")]),
        ('/gwi deny cand-2 --reason "too risky"', [("deny", "cand-2")]),
        ("/gwi deny cand-2 --reason=no", [("deny", "cand-2")]),
        ("/gwi revoke cand-2", [("revoke", "cand-2")]),
        ("say /gwi triage", []),
        ("> /gwi triage\n    /gwi triage\n```\n/gwi triage\n```", []),
        ("/gwide open", []),
        ("", []),
    ],
)
def test_commands_are_read_one_a_line_outside_quotations_and_code(
    body: str, read: list[tuple[str, str]]
) -> None:
    commands = parse_commands(body)
    assert [(one.name, one.target) for one in commands] == read
    assert not any(one.fault for one in commands)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("/gwi", "there is no command ''"),
        ("/gwi dance", "there is no command 'dance'"),
        ("/gwi triage now", "takes no arguments"),
        ("/gwi approve", "takes one target"),
        ("/gwi approve a b", "takes one target"),
        ("/gwi approve a --reason x", "has no option --reason"),
        ("/gwi deny cand-2", "takes a reason"),
        ('/gwi deny cand-2 --reason "open', "not closed"),
    ],
)
def test_a_command_that_can_not_be_followed_says_why(body: str, fault: str) -> None:
    (command,) = parse_commands(body)
    assert fault in command.fault
    assert command.name is None


def test_reason_and_scopes_are_kept_whole() -> None:
    assert parse_commands('/gwi deny run-1 --reason "too risky; ask Ann"')[0].reason == "too risky; ask Ann"
    assert parse_commands("/gwi approve run-1 --scopes push, merge")[0].scopes == ("push", "merge")


def _event(name: str, action: str, *, bot: bool = False, **fields: Any) -> GithubEvent:
    sender = {"id": 1, "login": "ann", "type": "Bot" if bot else "User"}
    return parse_event(name, msgspec.json.encode({"action": action, "sender": sender, **fields}))


@pytest.mark.parametrize(
    ("event", "types"),
    [
        (_event("issues", "labeled", issue={}, label={"name": "gwi-auto-code"}), ["autopilot"]),
        (_event("issues", "labeled", issue={}, label={"name": "GWI:Autopilot"}), ["autopilot"]),
        (_event("pull_request", "labeled", pull_request={}, label={"name": "gwi:auto"}), ["autopilot"]),
        (_event("issues", "labeled", bot=True, issue={}, label={"name": "gwi:auto"}), []),
        (_event("issues", "unlabeled", issue={}, label={"name": "gwi:auto"}), []),
        (_event("issues", "labeled", issue={}, label={"name": "bug"}), []),
        (_event("issues", "opened", issue={}), []),
        (_event("pull_request", "opened", pull_request={}), ["triage", "review"]),
        (_event("pull_request", "opened", pull_request={"draft": True}), []),
        (_event("pull_request", "labeled", pull_request={}, label={"name": "conflict"}), ["resolve"]),
        (_event("pull_request", "synchronize", pull_request={"mergeable": False}), ["resolve"]),
        (_event("pull_request", "closed", pull_request={"mergeable": False}), []),
    ],
)
def test_labels_and_settings_say_what_starts_by_itself(event: GithubEvent, types: list[str]) -> None:
    on = AutomaticSettings(on_pull_open=True, on_conflict=True, triage=True)
    assert automatic_runs(event, on) == types
    if types != ["autopilot"]:
        assert automatic_runs(event, AutomaticSettings()) == []


@pytest.fixture
async def harness(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[GithubHarness]:
    async with github_harness(sqlite_url, clock, tmp_path) as made:
        await made.install()
        made.github.run(OpenIssue(repo=REPO, title="It breaks"))
        yield made


async def _runs(harness: GithubHarness) -> list[AgentRun]:
    return list((await harness.gwi.runs.page(_tenant_id(harness), RunFilter())).docs)


def _tenant_id(harness: GithubHarness) -> str:
    return f"gh-org-{harness.github.state.accounts['acme'].id}"


async def _add_member(harness: GithubHarness, login: str, role: Any) -> None:
    now, id = harness.clock.now(), harness.github.state.account(login).id
    member = Member(
        user_id=f"github:{id}", tenant_id=_tenant_id(harness), role=role, created_at=now, updated_at=now
    )
    await harness.store.commit(put(member))


async def test_a_command_starts_a_run_for_members_whose_role_allows_it_and_is_answered(
    harness: GithubHarness,
) -> None:
    await _add_member(harness, "dora", "developer")
    await _add_member(harness, "vera", "viewer")
    for login in ("dora", "vera", "stranger", "git-with-intent[bot]"):
        harness.github.run(WriteComment(repo=REPO, number=1, body="/gwi triage\n/gwi dance", by=login))
    harness.github.state.accounts["git-with-intent[bot]"] = harness.github.state.bot
    harness.github.run(WriteComment(repo=REPO, number=1, body="/gwi triage", by="git-with-intent[bot]"))
    await harness.work()
    (run,) = await _runs(harness)
    assert (run.type, run.trigger.source, run.trigger.command_text) == ("triage", "webhook", "/gwi triage")
    assert run.trigger.user_id == f"github:{harness.github.state.accounts['dora'].id}"
    replies = [body for body in harness.comments() if body.startswith("@")]
    assert any(reply.startswith("@dora\n- `/gwi triage`: started triage run-") for reply in replies)
    for login in ("vera has viewer", "stranger has none"):
        assert any(f"it takes the role developer, and @{login}" in reply for reply in replies)
    assert all("there is no command 'dance'" in reply for reply in replies)
    assert "run_started" in await harness.events(_tenant_id(harness))


async def test_candidates_are_approved_denied_and_revoked_by_comment(harness: GithubHarness) -> None:
    tenant_id = _tenant_id(harness)
    for login, role in {"dora": "developer", "dean": "developer", "vera": "viewer"}.items():
        await _add_member(harness, login, role)
    await harness.work()
    (item,) = (await harness.gwi.queue.page(tenant_id)).docs
    by = harness.runtime.operator(Caller(user_id="ann", roles={tenant_id: "admin"}), tenant_id)
    made = await harness.gwi.candidates.create(by, item.id, patch=a_patch())

    async def say(text: str, login: str) -> tuple[str, str]:
        harness.github.run(WriteComment(repo=REPO, number=1, body=text, by=login))
        await harness.work()
        return (await harness.gwi.candidates.get(tenant_id, made.id)).status, harness.comments()[-1]

    status, reply = await say(f"/gwi approve {made.id}", "vera")
    assert (status, "refused" in reply) == ("ready", True)
    status, reply = await say(f"/gwi approve {made.id} --scopes push", "dora")
    assert status == "approved"
    assert f"approved {made.id}, which is approved" in reply
    status, reply = await say(f"/gwi revoke {made.id}", "dora")
    assert (status, f"took the vote on {made.id} back" in reply) == ("ready", True)
    status, reply = await say(f"/gwi revoke {made.id}", "dean")
    assert (status, "has not voted" in reply) == ("ready", True)
    status, reply = await say(f'/gwi deny {made.id} --reason "too risky"', "dean")
    assert (status, f"denied {made.id}" in reply) == ("rejected", True)
    assert "neither a candidate nor a run" in (await say("/gwi approve issue-1", "dora"))[1]
    events = [one for one in await harness.events(tenant_id) if one.startswith("candidate.")]
    assert events[1:] == [
        "candidate.voted", "candidate.voted", "candidate.vote_revoked", "candidate.vote_revoked",
        "candidate.voted",
    ]  # fmt: skip


async def test_an_event_that_is_handled_twice_starts_one_run(harness: GithubHarness) -> None:
    await _add_member(harness, "dora", "developer")
    harness.github.run(WriteComment(repo=REPO, number=1, body="/gwi triage", by="dora"))
    await harness.work()
    done = [item.id for item in await harness.items("done")]
    assert len(await harness.runtime.inbox.replay(done)) == len(done)
    await harness.work()
    assert len(await _runs(harness)) == 1


async def test_ten_automatic_runs_start_in_a_repository_on_a_day(harness: GithubHarness) -> None:
    limits = PLANS["enterprise"]
    change = {"plan": "enterprise", "plan_limits": limits}
    await harness.store.commit(patch(Tenant, _tenant_id(harness), changes=change))
    for number in range(1, 13):
        if number > 1:
            harness.github.run(OpenIssue(repo=REPO, title=f"Issue {number}"))
        harness.github.run(AddLabel(repo=REPO, number=number, label="gwi:auto"))
    await harness.work()
    assert len(await _runs(harness)) == 10
    harness.clock.tick(86_400)
    harness.github.run(OpenIssue(repo=REPO, title="Tomorrow"))
    harness.github.run(AddLabel(repo=REPO, number=13, label="gwi-auto-code"))
    await harness.work()
    assert len(await _runs(harness)) == 11
