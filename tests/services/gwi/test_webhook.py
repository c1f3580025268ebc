"""GitHub's events through the webhook: taken once, and what each changes or why it changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.inbox.source import BODY_BYTES_MAX
from holdfast.model import Caller
from holdfast.providers.github import GithubApp
from holdfast.services.gwi.checks import check_settings
from holdfast.services.gwi.domain.github_events import (
    context_fields,
    ignored_reason,
    occurred_at,
    parse_event,
    payload_fields,
)
from holdfast.services.gwi.installation_sync import InstallationSync
from holdfast.services.gwi.installations import InstallationEvents
from holdfast.services.gwi.models.tenants import Installation, Invite, Member, Repo, Tenant
from holdfast.services.gwi.models.work import WorkItem, WorkSignal
from holdfast.services.gwi.operations.queue import STATUSES, QueueFilter
from holdfast.services.gwi.operations.tenants import NewTenant, new_owner, new_tenant
from holdfast.services.gwi.settings import GwiSettings
from holdfast.simulators.github import (
    AddLabel,
    AddRepository,
    ChangeInstallation,
    CloseIssue,
    DisturbDeliveries,
    InjectedFault,
    Install,
    OpenIssue,
    OpenPull,
    PushFiles,
)
from holdfast.store import Query, put
from holdfast.testing import ManualClock
from tests.services.gwi.github_harness import REPO, GithubHarness, examples, github_harness


@pytest.fixture
async def harness(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[GithubHarness]:
    async with github_harness(sqlite_url, clock, tmp_path) as made:
        yield made


@pytest.fixture
async def any_harness(any_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[GithubHarness]:
    """On every engine."""
    async with github_harness(any_url, clock, tmp_path) as made:
        yield made


async def _repos(harness: GithubHarness, tenant_id: str) -> dict[str, bool]:
    query = Query(Repo).under(tenant_id).order_by("github_full_name")
    page = await harness.runtime.store.tenant(tenant_id).query(query)
    return {one.github_full_name: one.enabled for one in page.docs}


async def _signals(harness: GithubHarness, tenant_id: str) -> list[WorkSignal]:
    query = Query(WorkSignal).under(tenant_id).order_by("-received_at")
    return [one.doc async for one in harness.runtime.store.tenant(tenant_id).scan(query)]


async def _tenant(harness: GithubHarness, tenant_id: str) -> Tenant:
    stored = await harness.store.get(Tenant, tenant_id)
    assert stored is not None
    return stored.doc


async def test_an_event_is_taken_once_and_only_with_a_delivery_id_and_the_signature(
    harness: GithubHarness,
) -> None:
    assert (await harness.send("ping", {"zen": "x"}, delivery=""))[0] == 400
    status, refused = await harness.send("ping", {"zen": "x"}, secret="another")
    assert (status, refused["error"]) == (401, "unverified")
    assert await harness.send("ping", {"zen": "x"}) == (202, {"status": "kept"})
    assert await harness.send("ping", {"zen": "x"}) == (200, {"status": "duplicate"})
    assert (await harness.send("ping", b"payload=%7B%7D", delivery="d-2"))[0] == 202
    assert (await harness.send("ping", b"[1, 2]", delivery="d-3"))[0] == 202
    await harness.work()
    reasons = {item.message_id: item.reason for item in await harness.items()}
    assert reasons["d-1"] == "ping: it only checks the webhook"
    assert reasons["d-2"] == reasons["d-3"]
    assert "application/json" in reasons["d-2"]


async def test_the_signature_is_over_the_raw_bytes(harness: GithubHarness) -> None:
    body = '{"zen":  "Übermut \\u00fc",\r\n "a": 1e3}'.encode()
    assert (await harness.send("ping", body))[0] == 202
    (stored,) = await harness.items("pending")
    assert stored.body == body


async def test_a_body_up_to_the_cap_is_taken_and_a_larger_one_is_refused(
    sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with github_harness(sqlite_url, clock, tmp_path, webhook_bytes_max=2_000_000) as harness:
        payload = {"zen": "x" * 1_900_000}
        assert (await harness.send("ping", payload))[0] == 202
        status, refused = await harness.send("ping", {"zen": "x" * 2_000_001}, delivery="d-2")
        assert (status, refused["error"]) == (413, "too_large")
        await harness.work()
        assert [item.reason for item in await harness.items()] == ["ping: it only checks the webhook"]
    assert BODY_BYTES_MAX == 25 * 1024 * 1024, "the default, as GitHub sends"


async def test_every_example_payload_is_handled_or_ignored_with_a_reason(
    harness: GithubHarness, request: pytest.FixtureRequest
) -> None:
    numbered = list(enumerate(examples(request)))
    room = asyncio.Semaphore(8)

    async def send(number: int, name: str, payload: Any) -> int:
        async with room:
            return (await harness.send(name, payload, delivery=f"d-{number}"))[0]

    statuses = await asyncio.gather(*(send(number, *one) for number, one in numbered))
    assert set(statuses) == {202}
    await harness.work()
    harness.clock.tick(timedelta(minutes=11).total_seconds())
    await harness.work()
    assert await harness.items("pending") == []
    assert await harness.items("parked") == []
    done, ignored = await harness.items("done"), await harness.items("ignored")
    assert len(done) + len(ignored) == len(numbered) > 300
    assert all(item.reason for item in ignored)
    handled = {numbered[int(item.message_id.removeprefix("d-"))][1][0] for item in done}
    assert {"installation", "installation_repositories"} <= handled


def test_every_example_of_enterprise_servers_is_read_too(request: pytest.FixtureRequest) -> None:
    numbered, now = examples(request, "ghes-*"), datetime(2026, 1, 1, tzinfo=UTC)
    assert len(numbered) > 300
    for name, payload in numbered:
        event = parse_event(name, json.dumps(payload).encode())
        if ignored_reason(event) is None:
            assert context_fields(event)["title"]
            assert payload_fields(event)["event"] == name
            assert occurred_at(event, now) <= now


async def test_doctor_says_whether_github_delivers(harness: GithubHarness) -> None:
    settings, app = harness.runtime.parts["gwi"].checks
    assert (await settings()).fine
    assert (await app()).message == "GitHub delivers the events of git-with-intent"
    await harness.install()
    harness.github.run(DisturbDeliveries(acts=["drop"]))
    harness.github.run(OpenIssue(repo=REPO, title="Lost"))
    assert "failed to deliver 1 event " in (await app()).message
    harness.github.inject(InjectedFault(status=401, count=4))
    assert "app_key" in (await app()).remedy
    half = await check_settings(GwiSettings(app_id="1"))
    weak = await check_settings(GwiSettings(app_id="1", app_key="a key", webhook_secret="short"))
    assert (half.message, weak.message) == ("half set up", "webhook_secret is short")
    assert (await check_settings(GwiSettings())).fine


async def test_every_example_of_a_connected_repository_becomes_a_signal_or_has_a_reason(
    harness: GithubHarness, request: pytest.FixtureRequest
) -> None:
    tenant_id, installation_id = await harness.install()
    repository = {"id": harness.github.state.repository(REPO).id, "full_name": REPO, "name": "api"}
    sent = 0
    for name, payload in examples(request):
        if "repository" not in payload or name in ("repository", "installation_repositories"):
            continue
        sent += 1
        changed = payload | {"repository": repository, "installation": {"id": installation_id}}
        assert (await harness.send(name, changed, delivery=f"s-{sent}"))[0] == 202
    await harness.work()
    assert await harness.items("parked") == []
    signals = await _signals(harness, tenant_id)
    ignored = [item for item in await harness.items("ignored") if item.message_id.startswith("s-")]
    assert len(signals) + len(ignored) == sent
    by_source = {source: sum(one.source == source for one in signals) for source in
                 ("github_issue", "github_pr", "github_comment", "webhook")}  # fmt: skip
    assert min(by_source.values()) > 10, by_source
    assert all(one.context.title and one.context.repo for one in signals)
    assert all(one.status in ("processed", "ignored") for one in signals)


async def test_an_installation_makes_a_tenant_with_its_repositories_and_an_owner(
    harness: GithubHarness,
) -> None:
    harness.github.run(AddRepository(name="acme/web", files={"a": "b"}))
    tenant_id, installation_id = await harness.install()
    tenant = await _tenant(harness, tenant_id)
    assert (tenant.installation_id, tenant.github_org_login, tenant.status) == (
        installation_id, "acme", "active"
    )  # fmt: skip
    assert await _repos(harness, tenant_id) == {"acme/api": True, "acme/web": True}
    (owner,) = await harness.find(Member, tenant_id, "created_at")
    assert (owner.user_id, owner.role) == (
        f"github:{harness.github.state.accounts['olivia'].id}", "owner"
    )  # fmt: skip
    assert await harness.events(tenant_id) == ["installation.created"]
    harness.github.run(ChangeInstallation(id=installation_id, act="select", repositories=["acme/web"]))
    await harness.work()
    assert await _repos(harness, tenant_id) == {"acme/api": False, "acme/web": True}
    assert (await harness.events(tenant_id))[1:] == ["installation_repositories.removed"]


async def test_a_tenant_that_a_person_created_and_its_installation_are_one(harness: GithubHarness) -> None:
    organisation, olivia = (harness.github.state.account(login) for login in ("acme", "olivia"))
    asked = NewTenant(github_org_id=organisation.id, github_org_login="acme")
    by = harness.runtime.operator(Caller(user_id=f"github:{olivia.id}", email="o@example.com"), "-")
    created = await harness.gwi.tenants.create(by, asked)
    tenant_id, installation_id = await harness.install(by="olivia")
    assert tenant_id == created.id
    assert (await _tenant(harness, tenant_id)).installation_id == installation_id
    assert [one.role for one in await harness.find(Member, tenant_id, "created_at")] == ["owner"]
    assert (await harness.gwi.tenants.create(by, asked)).installation_id == installation_id
    assert await harness.events(tenant_id) == ["tenant.created", "installation.created"]


async def test_repositories_beyond_the_plan_are_stored_but_not_enabled(harness: GithubHarness) -> None:
    for number in range(4):
        harness.github.run(AddRepository(name=f"acme/r{number}", files={"a": "b"}))
    tenant_id, _ = await harness.install()
    repos = await _repos(harness, tenant_id)
    assert (len(repos), sum(repos.values())) == (5, 3)


async def test_an_uninstalled_app_disables_the_repositories_and_a_new_installation_meets_the_same_tenant(
    any_harness: GithubHarness,
) -> None:
    harness = any_harness
    tenant_id, first = await harness.install()
    harness.github.run(ChangeInstallation(id=first, act="suspend"))
    await harness.work()
    assert (await _tenant(harness, tenant_id)).status == "suspended"
    harness.github.run(ChangeInstallation(id=first, act="unsuspend"))
    await harness.work()
    assert (await _tenant(harness, tenant_id)).status == "active"
    harness.github.run(ChangeInstallation(id=first, act="delete"))
    await harness.work()
    assert (await _tenant(harness, tenant_id)).installation_id == 0
    assert await _repos(harness, tenant_id) == {REPO: False}
    again, second = await harness.install(by="ben")
    assert again == tenant_id
    assert (await _tenant(harness, tenant_id)).installation_id == second
    assert await _repos(harness, tenant_id) == {REPO: True}
    members = await harness.find(Member, tenant_id, "created_at")
    assert [one.role for one in members] == ["owner", "owner"], "whoever installs the App owns the tenant"


async def test_who_took_the_tenant_before_the_installation_does_not_stay_in_it(
    any_harness: GithubHarness,
) -> None:
    harness = any_harness
    account = harness.github.state.account("acme")
    asked = NewTenant(github_org_id=account.id, github_org_login="acme")
    claims = {"github:666": "suspended", "oidc:staff@acme.example": "active"}
    for user_id in claims:
        now, tenant_id = harness.clock.now(), f"gh-org-{account.id}"
        tenant = new_tenant(asked, now=now, created_by=user_id)
        member = new_owner(tenant_id, user_id, now=now)
        invite = Invite(
            id=f"by-{user_id}", tenant_id=tenant_id, email="eve@people.example", role="admin",
            invited_by=user_id, created_at=now, expires_at=now + timedelta(days=7),
        )  # fmt: skip
        await harness.store.commit(put(tenant), put(member), put(invite))
    await harness.install(by="olivia")
    found = {one.user_id: one.status for one in await harness.find(Member, tenant_id, "created_at")}
    olivia = f"github:{harness.github.state.account('olivia').id}"
    assert found == claims | {olivia: "active"}
    invites = {one.invited_by: one.status for one in await harness.find(Invite, tenant_id, "-created_at")}
    assert invites == {"github:666": "cancelled", "oidc:staff@acme.example": "pending"}


async def test_events_that_come_late_or_twice_or_before_their_installation_change_nothing_more(
    any_harness: GithubHarness,
) -> None:
    harness = any_harness
    harness.github.run(DisturbDeliveries(acts=["hold", "double"]))
    made: Any = harness.github.run(Install(account="acme", by="olivia"))
    harness.github.run(OpenIssue(repo=REPO, title="It breaks"))
    await harness.github.wait_for_deliveries()
    for _ in range(3):
        await harness.runtime.inbox_worker.turn()
    harness.clock.tick(6)
    await harness.work()
    tenant_id = f"gh-org-{made['account']['id']}"
    (signal,) = await _signals(harness, tenant_id)
    assert (signal.context.title, signal.status) == ("It breaks", "processed")
    body: dict[str, Any] = {"action": "deleted", "installation": made, "sender": made["account"]}
    body["installation"]["id"] = 777
    assert (await harness.send("installation", body))[0] == 202
    await harness.work()
    late = body | {"action": "created", "repositories": []}
    assert (await harness.send("installation", late, delivery="d-2"))[0] == 202
    await harness.work()
    (ignored,) = await harness.items()
    assert ignored.reason == "installation created: the installation was deleted"
    stored = await harness.store.get(Installation, "777")
    assert stored is not None
    assert stored.doc.deleted_at is not None


async def test_an_event_of_an_unknown_installation_waits_and_is_then_ignored(harness: GithubHarness) -> None:
    payload = {"action": "opened", "issue": {"number": 1, "title": "x"}, "installation": {"id": 999},
               "repository": {"id": 5, "full_name": "a/b"}}  # fmt: skip
    assert (await harness.send("issues", payload))[0] == 202
    await harness.work()
    (waiting,) = await harness.items("pending")
    assert waiting.reason == "the installation is not known yet"
    harness.clock.tick(601)
    await harness.work()
    (item,) = await harness.items()
    assert item.reason == "installation 999 is not known; install the App again"


async def test_issues_and_pull_requests_become_signals_and_items_and_closing_ends_them(
    harness: GithubHarness,
) -> None:
    tenant_id, _ = await harness.install()
    run = harness.github.run
    run(OpenIssue(repo=REPO, title="It breaks", labels=["bug"]))
    run(PushFiles(repo=REPO, branch="one", files={"src/main.py": "one\nTWO\nthree\nfour\nfive\n"}))
    run(OpenPull(repo=REPO, title="Mend it", head="one"))
    run(PushFiles(repo=REPO, branch="main", files={"src/main.py": "one\nzwei\nthree\nfour\nfive\n"}))
    harness.clock.tick(1)
    run(AddLabel(repo=REPO, number=2, label="size"))
    await harness.work()
    items = await _items(harness, tenant_id)
    assert {(one.type, one.resource_number) for one in items} == {("issue_to_code", 1), ("pr_resolve", 2)}
    pushes = [item.reason for item in await harness.items() if item.reason.startswith("push")]
    assert len(pushes) == 2
    harness.clock.tick(1)
    run(CloseIssue(repo=REPO, number=1))
    await harness.work()
    closed = [one for one in await _items(harness, tenant_id) if one.resource_number == 1]
    assert [one.status for one in closed] == ["dismissed"]


async def _items(harness: GithubHarness, tenant_id: str) -> list[WorkItem]:
    return list((await harness.gwi.queue.page(tenant_id, QueueFilter(statuses=STATUSES))).docs)


async def test_a_repository_that_was_renamed_or_has_another_default_branch_is_followed(
    harness: GithubHarness,
) -> None:
    tenant_id, installation_id = await harness.install()
    repository = {"id": harness.github.state.repository(REPO).id, "full_name": "acme/core", "name": "core",
                  "default_branch": "trunk"}  # fmt: skip
    about = {"repository": repository, "installation": {"id": installation_id}, "sender": {"id": 5}}
    await harness.send("issues", about | {"action": "opened", "issue": {"number": 9, "title": "x"}})
    await harness.work()
    query = Query(Repo).under(tenant_id).order_by("github_full_name")
    (repo,) = (await harness.runtime.store.tenant(tenant_id).query(query)).docs
    assert (repo.github_full_name, repo.default_branch, repo.enabled) == ("acme/core", "trunk", True)
    await harness.send("repository", about | {"action": "archived"}, delivery="d-2")
    await harness.work()
    assert await _repos(harness, tenant_id) == {"acme/core": False}
    assert (await harness.events(tenant_id))[-1] == "repository.archived"
    await harness.send("issues", about | {"action": "opened", "issue": {"number": 10}}, delivery="d-3")
    await harness.work()
    (ignored,) = await harness.items()
    assert ignored.reason == "acme/core is not connected; connect it to have its events"


async def test_what_no_event_has_told_of_an_installation_is_found_by_comparison(
    harness: GithubHarness,
) -> None:
    tenant_id, id = await harness.install()
    events = InstallationEvents(harness.runtime.store, harness.runtime.audit)
    app = GithubApp(
        harness.session, harness.github.app_id, harness.github.private_key, clock=harness.clock,
        base_url=harness.github.url,
    )  # fmt: skip
    sync = InstallationSync(harness.runtime.store, app, events)
    assert await sync.sync() == {"installations": 1, "changes": 0, "failed": 0}
    run = harness.github.run
    run(DisturbDeliveries(acts=["drop"] * 5))
    run(AddRepository(name="acme/web", files={"a": "b"}))
    run(ChangeInstallation(id=id, act="select", repositories=["acme/web"]))
    assert (await sync.sync())["changes"] == 2
    assert await _repos(harness, tenant_id) == {REPO: False, "acme/web": True}
    acts: list[tuple[Any, str]] = [("suspend", "suspended"), ("unsuspend", "active")]
    for act, status in acts:
        run(ChangeInstallation(id=id, act=act))
        assert (await sync.sync())["changes"] == 1
        assert (await _tenant(harness, tenant_id)).status == status
    run(ChangeInstallation(id=id, act="delete"))
    assert (await sync.sync())["changes"] == 1
    assert (await _tenant(harness, tenant_id)).installation_id == 0
    assert await sync.sync() == {"installations": 0, "changes": 0, "failed": 0}
    assert (await harness.events(tenant_id))[1:] == [
        "installation_repositories.added", "installation_repositories.removed", "installation.suspend",
        "installation.unsuspend", "installation.deleted",
    ]  # fmt: skip


async def test_a_delivery_that_failed_is_asked_for_again(harness: GithubHarness) -> None:
    tenant_id, _ = await harness.install()
    harness.github.run(DisturbDeliveries(acts=["drop"]))
    harness.github.run(OpenIssue(repo=REPO, title="Lost"))
    await harness.work()
    assert await _signals(harness, tenant_id) == []
    source = harness.runtime.parts["gwi"].webhooks[0].source
    done = await harness.runtime.inbox.reconcile(source)
    await harness.work()
    assert done.redelivered == 1
    assert [one.context.title for one in await _signals(harness, tenant_id)] == ["Lost"]
