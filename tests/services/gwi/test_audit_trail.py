"""The audit trail over the life of a tenant: each act has its events, and nothing else is on record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.errors import HoldfastError
from holdfast.kit import NO_TENANT
from holdfast.model import Caller
from holdfast.operation import Operator
from holdfast.services.gwi.models.records import AUDIT, AuditRecord
from holdfast.services.gwi.models.runs import RunTrigger
from holdfast.services.gwi.models.tenants import MemberRole
from holdfast.services.gwi.models.work import Candidate, SignalContext, SourceRepo
from holdfast.services.gwi.operations.connectors import ConnectorChange
from holdfast.services.gwi.operations.members import MemberChange, NewInvite
from holdfast.services.gwi.operations.policies import PolicyChange
from holdfast.services.gwi.operations.queue import ItemChange
from holdfast.services.gwi.operations.repos import RepoChange
from holdfast.services.gwi.operations.tenants import SettingsChange
from holdfast.services.gwi.run_starts import RunRequest
from holdfast.simulators.github import OpenIssue, WriteComment
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.services.gwi.github_harness import REPO, GithubHarness, github_harness
from tests.services.gwi.test_candidates import a_patch
from tests.services.gwi.test_runs import a_coder

T = TypeVar("T")
PEOPLE: dict[str, MemberRole] = {
    "olivia": "owner",
    "adam": "admin",
    "dora": "developer",
    "dean": "developer",
    "vera": "viewer",
}


def steps_of(number: int) -> list[str]:
    """The events of so many steps of a run."""
    return ["system step_started", "system step_completed"] * number


PUBLISHED = [
    "system branch_created", "system commit_pushed", "system pr_created", "system github_comment_posted",
    "system run_completed",
]  # fmt: skip
TRIAGE = [*steps_of(2), "system github_comment_posted", "system run_completed"]


class Scenario:
    """A tenant, and the events on its trail so far, each as "actor action"."""

    def __init__(self, harness: GithubHarness, tenant_id: str) -> None:
        self.harness, self.gwi, self.tenant_id = harness, harness.gwi, tenant_id
        self.ids = {name: f"github:{harness.github.state.account(name).id}" for name in PEOPLE}
        self.trail: list[str] = []

    def by(self, name: str) -> Operator:
        roles = {self.tenant_id: PEOPLE[name]}
        caller = Caller(user_id=self.ids[name], roles=roles, email=f"{name}@people.example")
        return self.harness.runtime.operator(caller, self.tenant_id)

    async def events(self) -> list[str]:
        names = {id: name for name, id in self.ids.items()}
        query = Query(AuditRecord).order_by("sequence").limit(500)
        page = await self.harness.runtime.store.tenant(self.tenant_id).query(query)
        words = ((names.get(one.actor, one.actor), one.action, one.outcome) for one in page.docs)
        return [" ".join(one).removesuffix(" done") for one in words]

    async def act(self, doing: Awaitable[T], *events: str) -> T:
        """Do something that leaves these events and no other."""
        result = await doing
        before, self.trail = self.trail, await self.events()
        # Workers run side by side, so the order of what they write is theirs.
        assert sorted(self.trail[len(before) :]) == sorted(events)
        return result

    async def refused(self, doing: Awaitable[Any], *events: str) -> None:
        with pytest.raises(HoldfastError):
            await doing
        await self.act(self.harness.work(), *events)

    async def join(self, name: str) -> None:
        invited = NewInvite(email=f"{name}@people.example", role=PEOPLE[name])
        sent = await self.act(self.gwi.members.invite(self.by("olivia"), invited), "olivia member.invited")
        await self.act(self.gwi.members.accept(self.by(name), sent.token), f"{name} member.joined")
        await self.act(self.gwi.members.accept(self.by(name), sent.token))


@pytest.fixture
async def scenario(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Scenario]:
    async with a_coder() as (_, model), github_harness(sqlite_url, clock, tmp_path, **model) as harness:
        tenant_id, _ = await harness.install()
        yield Scenario(harness, tenant_id)


async def test_the_life_of_a_tenant_is_on_record_act_by_act_and_nothing_else_is(scenario: Scenario) -> None:
    await scenario.act(scenario.harness.work(), "olivia installation.created")
    await _set_up(scenario)
    candidate = await _propose(scenario)
    await _vote_and_apply(scenario, candidate)
    await _command(scenario)
    await _decide_about_a_run(scenario)
    await _administer(scenario)
    audit, tenant_id = scenario.harness.runtime.audit, scenario.tenant_id
    verified = await audit(tenant_id, models=AUDIT).verify()
    assert (verified.intact, verified.events) == (True, len(scenario.trail))
    assert len(scenario.trail) > 80
    for other in (audit(NO_TENANT, models=AUDIT), audit(NO_TENANT), audit(tenant_id)):
        assert (await other.verify()).events == 0


async def _set_up(scenario: Scenario) -> None:
    gwi, tenant_id = scenario.gwi, scenario.tenant_id
    await scenario.act(gwi.tenants.change_plan(scenario.by("olivia"), "team"), "olivia tenant.plan_changed")
    for name in list(PEOPLE)[1:]:
        await scenario.join(name)
    mode = SettingsChange(default_risk_mode="suggest_patch")
    await scenario.act(gwi.tenants.change_settings(scenario.by("adam"), mode), "adam tenant.settings_changed")
    (repo,) = (await gwi.repos.page(tenant_id)).docs
    change = RepoChange(auto_review=True)
    await scenario.act(gwi.repos.configure(scenario.by("dora"), repo.id, change), "dora repo.configured")
    await scenario.refused(
        gwi.repos.disconnect(scenario.by("dora"), repo.id), "dora repo.disconnected refused"
    )


async def _propose(scenario: Scenario) -> Candidate:
    """From an issue and a signal by hand to a candidate."""
    gwi, tenant_id, by = scenario.gwi, scenario.tenant_id, scenario.by
    issue: Any = scenario.harness.github.run(OpenIssue(repo=REPO, title="It breaks", by="dora"))
    await scenario.act(scenario.harness.work(), "system signal.processed")
    (item,) = (await gwi.queue.page(tenant_id)).docs
    about = SignalContext(
        repo=SourceRepo(owner="acme", name="api", full_name=REPO, id=1), resource_type="issue",
        resource_number=issue["number"] + 1, title="By hand",
    )  # fmt: skip
    recorded = gwi.signals.record(by("dora"), source="manual", external_id="m-1", context=about)
    await scenario.act(recorded, "dora signal.recorded")
    await scenario.act(gwi.signals.process(by("dora")), "dora signal.processed")
    (other,) = [one for one in (await gwi.queue.page(tenant_id)).docs if one.id != item.id]
    change = ItemChange(assigned_to=scenario.ids["dora"])
    await scenario.act(gwi.queue.change(by("dora"), [item.id, other.id], change), "dora items.changed")
    await scenario.act(gwi.queue.dismiss(by("dora"), other.id, reason="no"), "dora item.dismissed")
    draft = await scenario.act(gwi.candidates.create(by("dora"), item.id), "dora candidate.created")
    revised = gwi.candidates.revise(by("dora"), draft.id, patch=a_patch("src/main.py"))
    return await scenario.act(revised, "dora candidate.revised")


async def _vote_and_apply(scenario: Scenario, candidate: Candidate) -> None:
    votes, by, id = scenario.gwi.candidates, scenario.by, candidate.id
    own = votes.vote(by("dora"), id, decision="approved")
    await scenario.refused(own, "dora candidate.voted refused")
    await scenario.act(votes.vote(by("dean"), id, decision="approved"), "dean candidate.voted")
    await scenario.act(votes.revoke_vote(by("dean"), id), "dean candidate.vote_revoked")
    await scenario.act(votes.vote(by("dean"), id, decision="approved"), "dean candidate.voted")
    await scenario.act(votes.apply(by("adam"), id), "adam run_started", "adam candidate.application_started")
    published = [*steps_of(5), *PUBLISHED, "system candidate.applied"]
    await scenario.act(scenario.harness.work(), *published)


async def _command(scenario: Scenario) -> None:
    """Commands in comments: one followed, one refused."""
    for name, events in (("dora", ["dora run_started", *TRIAGE]), ("vera", [])):
        scenario.harness.github.run(WriteComment(repo=REPO, number=1, body="/gwi triage", by=name))
        await scenario.act(scenario.harness.work(), "system signal.processed", *events)


async def _decide_about_a_run(scenario: Scenario) -> None:
    gwi, by = scenario.gwi, scenario.by
    (repo,) = (await gwi.repos.page(scenario.tenant_id)).docs
    trigger = RunTrigger(source="api", user_id="dora")
    wanted = RunRequest(type="autopilot", repo_id=repo.id, trigger=trigger, number=1)
    decisions: tuple[tuple[Any, str, list[str], list[str]], ...] = (
        (gwi.runs.approve, "approval_granted", [], [*steps_of(1), *PUBLISHED]),
        (gwi.runs.reject, "approval_rejected", ["system run_cancelled"], []),
    )
    for decide, action, at_once, later in decisions:
        run = await scenario.act(gwi.runs.start_run(by("dora"), wanted), "dora run_started")
        await scenario.act(scenario.harness.work(), *steps_of(4), "system approval_requested")
        await scenario.refused(decide(by("dora"), run.id), f"dora {action} refused")
        await scenario.act(decide(by("adam"), run.id), f"adam {action}", *at_once)
        await scenario.act(scenario.harness.work(), *later)


async def _administer(scenario: Scenario) -> None:
    gwi, by = scenario.gwi, scenario.by
    olivia, adam = by("olivia"), by("adam")
    policy = PolicyChange(document={"rules": []})
    await scenario.act(gwi.policies.save(adam, policy), "adam policy.saved")
    await scenario.act(gwi.tenants.pause(adam, reason="release"), "adam tenant.paused")
    (repo,) = (await gwi.repos.page(scenario.tenant_id)).docs
    wanted = RunRequest(
        type="triage", repo_id=repo.id, trigger=RunTrigger(source="api", user_id="dora"), number=1
    )
    await scenario.refused(gwi.runs.start_run(by("dora"), wanted), "dora run_started failed")
    await scenario.act(gwi.tenants.resume(adam), "adam tenant.resumed")
    run = await scenario.act(gwi.runs.start_run(by("dora"), wanted), "dora run_started")
    await scenario.act(
        gwi.runs.cancel(by("dora"), run.id), "system run_cancelled", "dora run_cancel_requested"
    )
    planned = gwi.automation.create_instance(by("dora"), "tmpl-plan", name="Nightly", repo_id=repo.id)
    instance = await scenario.act(planned, "dora instance.created")
    schedule = await scenario.act(
        gwi.automation.create_schedule(by("dora"), instance.id, cron="0 3 * * *"), "dora schedule.created"
    )
    stopped = gwi.automation.enable_schedule(by("dora"), schedule.id, enabled=False)
    await scenario.act(stopped, "dora schedule.changed")
    secret = ConnectorChange(secrets={"token": "x"})
    await scenario.act(gwi.connectors.configure(adam, "jira", secret), "adam connector.configured")
    await scenario.act(gwi.connectors.remove(adam, "jira"), "adam connector.removed")
    sent = await scenario.act(
        gwi.members.invite(adam, NewInvite(email="x@people.example")), "adam member.invited"
    )
    await scenario.act(gwi.members.cancel_invite(adam, sent.invite.id), "adam member.invite_cancelled")
    viewer = MemberChange(role="viewer")
    await scenario.act(gwi.members.change(olivia, scenario.ids["dean"], viewer), "olivia member.changed")
    await scenario.act(gwi.members.remove(adam, scenario.ids["dean"]), "adam member.removed")
    await scenario.act(gwi.usage.rebuild(adam, mend=True))
    await scenario.act(gwi.repos.disconnect(adam, repo.id), "adam repo.disconnected")
    await scenario.act(gwi.tenants.suspend(olivia), "olivia tenant.suspended")
    await scenario.act(gwi.tenants.activate(olivia), "olivia tenant.activated")
    await scenario.act(gwi.tenants.deactivate(olivia), "olivia tenant.deactivated")
    await scenario.act(gwi.tenants.delete(olivia, confirm="acme"), "olivia tenant.deleted")
