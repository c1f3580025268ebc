"""Tenants, members, repositories, connectors and the policy over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.services.gwi.models.records import AuditRecord
from holdfast.services.gwi.models.tenants import ConnectorConfig, Tenant
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.services.gwi.api import ORG, TENANT, Api, T, gwi_api, user_id


@pytest.fixture
async def api(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Api]:
    async with gwi_api(tmp_path, clock) as made:
        yield made


async def test_whoever_creates_a_tenant_owns_it_and_creating_it_again_gives_the_same(api: Api) -> None:
    made = await api.done("olga", "POST", "/gwi/tenants", ORG)
    assert (made["id"], made["plan"], made["planLimits"]["runsPerMonth"]) == (TENANT, "free", 50)
    assert await api.done("olga", "POST", "/gwi/tenants", ORG) == made
    status, refused = await api.ask("mallory", "POST", "/gwi/tenants", ORG)
    assert (status, refused["error"]) == (409, "already_exists")
    me = await api.done("olga", "GET", "/gwi/me")
    assert me["user"]["email"] == "olga@people.example"
    assert [(one["tenant"]["id"], one["role"]) for one in me["tenants"]] == [(TENANT, "owner")]
    assert (await api.done("mallory", "GET", "/gwi/tenants"))["tenants"] == []
    assert await api.events() == ["tenant.created"]


async def test_a_profile_is_changed_by_its_person(api: Api) -> None:
    await api.done("vera", "PUT", "/gwi/me", {"theme": "dark", "displayName": "Vera"})
    changed = await api.done("vera", "PUT", "/gwi/me", {"notificationsEnabled": False})
    assert changed["displayName"] == "Vera"
    assert changed["preferences"] == {
        "defaultTenantId": None, "notificationsEnabled": False, "theme": "dark",
    }  # fmt: skip


async def test_settings_that_are_not_named_stay(api: Api) -> None:
    await api.found(adam="admin", dora="developer")
    await api.done("adam", "PUT", f"{T}/settings", {"defaultRiskMode": "auto_patch"})
    await api.done("adam", "PUT", f"{T}/settings", {"autoRunOnPrOpen": True})
    settings = await api.done("dora", "GET", f"{T}/settings")
    assert (settings["defaultRiskMode"], settings["autoRunOnPrOpen"]) == ("auto_patch", True)
    status, refused = await api.ask("dora", "PUT", f"{T}/settings", {"autoRunOnPrOpen": False})
    assert (status, refused["error"]) == (403, "forbidden")
    assert refused["details"] == {
        "requiredAction": "update of gwi", "requiredRoles": ["admin", "service"], "userRole": "developer",
    }  # fmt: skip
    assert (await api.ask("adam", "PUT", f"{T}/settings", {"complexityThreshold": 6}))[0] == 422


async def test_a_tenant_is_paused_suspended_and_taken_into_use_again(api: Api) -> None:
    await api.found(adam="admin")
    paused = await api.done("adam", "POST", f"{T}/pause", {"reason": "release week"})
    assert (paused["pausedAt"] is not None, paused["pausedReason"]) == (True, "release week")
    assert (await api.done("adam", "POST", f"{T}/resume"))["pausedAt"] is None
    assert (await api.ask("adam", "POST", f"{T}/suspend"))[0] == 403
    assert (await api.done("olga", "POST", f"{T}/suspend"))["status"] == "suspended"
    assert (await api.done("olga", "POST", f"{T}/deactivate"))["status"] == "deactivated"
    status, refused = await api.ask("olga", "POST", f"{T}/suspend")
    assert (status, refused["error"]) == (422, "illegal_move")
    assert (await api.done("olga", "POST", f"{T}/activate"))["status"] == "active"


async def test_a_deleted_tenant_has_no_members_and_keeps_its_trail(api: Api) -> None:
    await api.found(adam="admin")
    repos = {"repos": [{"githubRepoId": 42, "githubFullName": "acme/shop"}]}
    await api.done("adam", "POST", f"{T}/repos:connect", repos)
    await api.done("adam", "PUT", f"{T}/connectors/jira/config", {"secrets": {"token": "s3cret"}})
    await api.done("adam", "POST", f"{T}/invites", {"email": "new@people.example"})
    status, refused = await api.ask("olga", "DELETE", f"{T}?confirm=other")
    assert (status, refused["error"]) == (422, "invalid")
    assert (await api.done("olga", "DELETE", f"{T}?confirm=acme"))["status"] == "deactivated"
    for name in ("olga", "adam"):
        assert (await api.ask(name, "GET", T))[0] == 403
    store = api.harness.runtime.store.tenant(TENANT)
    assert await store.get(ConnectorConfig, TENANT, "jira") is None
    assert (await api.events())[-1] == "tenant.deleted"
    stored = await store.get(Tenant, TENANT)
    assert stored is not None
    assert stored.doc.deleted_at is not None


async def test_an_invitation_is_for_one_address_one_use_and_seven_days(api: Api, clock: ManualClock) -> None:
    await api.found()
    sent = await api.done("olga", "POST", f"{T}/invites", {"email": "Ann@People.example", "role": "viewer"})
    accept = f"/gwi/invites/{sent['token']}/accept"
    assert (await api.ask("bob", "POST", accept))[0] == 403
    assert (await api.ask("ann", "POST", "/gwi/invites/another/accept"))[0] == 403
    joined = await api.done("ann", "POST", accept)
    assert (joined["userId"], joined["role"]) == (user_id("ann"), "viewer")
    assert await api.done("ann", "POST", accept) == joined
    late = await api.done("olga", "POST", f"{T}/invites", {"email": "bob@people.example"})
    status, refused = await api.ask("olga", "POST", f"{T}/invites", {"email": "bob@people.example"})
    assert (status, refused["error"]) == (409, "already_exists")
    await clock.advance(7 * 86_400)
    status, refused = await api.ask("bob", "POST", f"/gwi/invites/{late['token']}/accept")
    assert (status, "expired" in refused["message"]) == (409, True)
    again = await api.done("olga", "POST", f"{T}/invites", {"email": "bob@people.example"})
    await api.done("olga", "DELETE", f"{T}/invites/{again['invite']['id']}")
    assert (await api.ask("bob", "POST", f"/gwi/invites/{again['token']}/accept"))[0] == 409
    listed = (await api.done("olga", "GET", f"{T}/invites"))["invites"]
    assert sent["token"] not in str(listed)
    assert (await api.events())[-1] == "member.invite_cancelled"


async def test_an_invitation_of_another_tenant_can_not_be_cancelled(api: Api) -> None:
    await api.found()
    sent = await api.done("olga", "POST", f"{T}/invites", {"email": "ann@people.example"})
    await api.done("mallory", "POST", "/gwi/tenants", {"githubOrgId": 8, "githubOrgLogin": "evil"})
    status, _ = await api.ask("mallory", "DELETE", f"/gwi/tenants/gh-org-8/invites/{sent['invite']['id']}")
    assert status == 404
    await api.done("ann", "POST", f"/gwi/invites/{sent['token']}/accept")


async def test_invitations_at_once_never_pass_the_seats_of_the_plan(api: Api) -> None:
    await api.found(plan="free")
    invited = [{"email": f"p{number}@people.example"} for number in range(8)]
    answers = await asyncio.gather(*(api.ask("olga", "POST", f"{T}/invites", one) for one in invited))
    assert Counter(status for status, _ in answers) == {201: 2, 429: 6}
    refused = next(body for status, body in answers if status == 429)
    assert refused["details"] == {"usage": 3, "limit": 3, "plan": "free"}


async def test_roles_are_given_by_owners_and_one_owner_stays(api: Api) -> None:
    await api.found(adam="admin", dora="developer")
    dora, olga = f"{T}/members/{user_id('dora')}", f"{T}/members/{user_id('olga')}"
    assert (await api.ask("adam", "PUT", dora, {"role": "admin"}))[0] == 403
    assert (await api.ask("adam", "POST", f"{T}/invites", {"email": "x@y.example", "role": "owner"}))[
        0
    ] == 403
    assert (await api.ask("adam", "DELETE", olga))[0] == 403
    for method, body in (("DELETE", None), ("PUT", {"role": "admin"}), ("PUT", {"status": "suspended"})):
        status, refused = await api.ask("olga", method, olga, body)
        assert (status, "last owner" in refused["message"]) == (409, True)
    await api.done("olga", "PUT", dora, {"role": "owner"})
    await api.done("dora", "PUT", olga, {"role": "viewer"})
    assert (await api.ask("olga", "GET", f"{T}/members"))[0] == 403
    await api.done("dora", "PUT", olga, {"status": "suspended"})
    assert (await api.ask("olga", "GET", T))[0] == 403
    await api.done("adam", "DELETE", olga)
    members = (await api.done("adam", "GET", f"{T}/members"))["members"]
    assert [one["userId"] for one in members] == [user_id("adam"), user_id("dora")]


async def test_two_owners_who_leave_at_once_leave_one(api: Api) -> None:
    await api.found(omar="owner")
    answers = await asyncio.gather(
        *(api.ask(name, "DELETE", f"{T}/members/{user_id(name)}") for name in ("olga", "omar"))
    )
    assert sorted(status for status, _ in answers) == [200, 409]


async def test_repositories_at_once_never_pass_the_limit_of_the_plan(api: Api) -> None:
    await api.found(plan="free")

    async def connect(*numbers: int) -> int:
        repos = [{"githubRepoId": number, "githubFullName": f"acme/r{number}"} for number in numbers]
        return (await api.ask("olga", "POST", f"{T}/repos:connect", {"repos": repos}))[0]

    answers = await asyncio.gather(*(connect(number) for number in range(1, 7)))
    assert Counter(answers) == {200: 3, 429: 3}
    listed = (await api.done("olga", "GET", f"{T}/repos"))["repos"]
    assert await connect(listed[0]["githubRepoId"]) == 200
    await api.done("olga", "DELETE", f"{T}/repos/{listed[0]['id']}")
    assert await connect(90, 91) == 429
    assert await connect(90) == 200


async def test_developers_change_the_settings_of_a_repository(api: Api) -> None:
    await api.found(dora="developer", vera="viewer")
    repos = {"repos": [{"githubRepoId": 42, "githubFullName": "acme/shop"}]}
    assert (await api.ask("dora", "POST", f"{T}/repos:connect", repos))[0] == 403
    (repo,) = (await api.done("olga", "POST", f"{T}/repos:connect", repos))["repos"]
    assert (repo["id"], repo["displayName"], repo["enabled"]) == ("gh-repo-42", "shop", True)
    change: dict[str, Any] = {"riskModeOverride": "auto_push", "autoTriage": True}
    await api.done("dora", "PUT", f"{T}/repos/gh-repo-42", change)
    changed = await api.done("dora", "PUT", f"{T}/repos/gh-repo-42", {"inheritRiskMode": True})
    assert (changed["settings"]["riskModeOverride"], changed["settings"]["autoTriage"]) == (None, True)
    assert (await api.ask("vera", "PUT", f"{T}/repos/gh-repo-42", change))[0] == 403
    assert (await api.ask("dora", "PUT", f"{T}/repos/gh-repo-43", change))[0] == 404


async def test_secrets_of_a_connector_are_sealed_and_in_no_answer(api: Api) -> None:
    await api.found(adam="admin", dora="developer")
    path = f"{T}/connectors/jira/config"
    sent = {"settings": {"project": "SHOP"}, "secrets": {"token": "s3cret-value"}, "version": 0}
    made = await api.done("adam", "PUT", path, sent, key="k1")
    assert (made["secretNames"], made["version"]) == (["token"], 1)
    changed = await api.done("adam", "PUT", path, {"settings": {"project": "OPS"}, "version": 1})
    shown = [
        made,
        changed,
        await api.done("adam", "GET", path),
        await api.done("adam", "GET", f"{T}/connectors"),
    ]
    assert "s3cret-value" not in str(shown)
    stored = await api.harness.runtime.store.tenant(TENANT).get(ConnectorConfig, TENANT, "jira")
    assert stored is not None
    assert "s3cret" not in stored.doc.secrets
    gwi = api.harness.runtime.parts["gwi"].operations
    assert await gwi.connectors.secrets(TENANT, "jira") == {"token": "s3cret-value"}
    assert (await api.ask("adam", "PUT", path, {"version": 1}))[0] == 409
    assert (await api.ask("dora", "GET", path))[0] == 403
    await api.done("adam", "DELETE", path)
    assert (await api.ask("adam", "GET", path))[0] == 404


async def test_a_policy_is_saved_as_the_next_version_and_only_a_valid_one_applies(api: Api) -> None:
    await api.found(adam="admin", vera="viewer")
    assert (await api.done("vera", "GET", f"{T}/policy"))["version"] == 0
    good = {"rules": [{"name": "no workflows", "effect": "deny", "paths": [".github/*"]}]}
    saved = await api.done("adam", "PUT", f"{T}/policy", {"document": good, "version": 0})
    assert (saved["version"], saved["valid"]) == (1, True)
    assert (await api.ask("adam", "PUT", f"{T}/policy", {"document": good, "version": 0}))[0] == 409
    bad = await api.done("adam", "PUT", f"{T}/policy", {"document": {"rules": [{"name": "x"}]}})
    assert (bad["version"], bad["valid"], len(bad["validationErrors"])) == (2, False, 1)
    change = {"actionClass": "WRITE_NON_DESTRUCTIVE", "paths": [".github/workflows/ci.yml"], "approvals": 2}
    checked = await api.done("vera", "POST", f"{T}/policy/validate", {"document": good, "change": change})
    assert (checked["valid"], checked["decision"]["allowed"]) == (True, False)
    assert checked["decision"]["rule"] == "no workflows"
    checked = await api.done("vera", "POST", f"{T}/policy/validate", {"document": {"rules": 1}})
    assert (checked["valid"], "decision" in checked) == (False, False)


async def test_a_repeated_request_is_answered_from_its_record(api: Api) -> None:
    await api.found()
    body = {"email": "ann@people.example"}
    _, first, _ = await api.request("olga", "POST", f"{T}/invites", body, key="k1")
    status, again, headers = await api.request("olga", "POST", f"{T}/invites", body, key="k1")
    assert (status, again, headers["idempotency-replayed"]) == (201, first, "true")
    status, refused = await api.ask("olga", "POST", f"{T}/invites", {"email": "b@people.example"}, key="k1")
    assert (status, refused["error"]) == (422, "key_reused")
    for method, path, sent in (
        ("PUT", f"{T}/settings", {"autoRunOnPrOpen": True}),
        ("DELETE", f"{T}?confirm=acme", {}),
    ):
        made = await api.request("olga", method, path, sent, key=method)
        if method == "PUT":
            repeated = await api.request("olga", method, path, sent, key=method)
            assert (repeated[1], repeated[2]["idempotency-replayed"]) == (made[1], "true")
    assert (await api.events()).count("tenant.settings_changed") == 1


async def test_the_trail_has_each_act_once_with_its_receipt_and_nothing_else(api: Api) -> None:
    await api.found(adam="admin", dora="developer")
    repos = {"repos": [{"githubRepoId": 42, "githubFullName": "acme/shop"}]}
    acts: list[tuple[str, str, str, Any, str]] = [
        ("adam", "PUT", "/settings", {"autoRunOnConflict": True}, "tenant.settings_changed"),
        ("adam", "POST", "/pause", {}, "tenant.paused"),
        ("adam", "GET", "/members", None, ""),
        ("adam", "POST", "/resume", {}, "tenant.resumed"),
        ("dora", "POST", "/pause", {}, ""),
        ("adam", "POST", "/repos:connect", repos, "repo.connected"),
        ("dora", "PUT", "/repos/gh-repo-42", {"autoReview": True}, "repo.configured"),
        ("dora", "PUT", "/repos/gh-repo-43", {"autoReview": True}, ""),
        ("adam", "PUT", "/connectors/jira/config", {"secrets": {"token": "x"}}, "connector.configured"),
        ("adam", "PUT", "/policy", {"document": {}}, "policy.saved"),
        ("adam", "POST", "/policy/validate", {"document": {}}, ""),
        ("olga", "PUT", f"/members/{user_id('dora')}", {"role": "viewer"}, "member.changed"),
        ("adam", "DELETE", f"/members/{user_id('dora')}", {}, "member.removed"),
        ("adam", "DELETE", "/repos/gh-repo-42", {}, "repo.disconnected"),
        ("olga", "POST", "/suspend", {"reason": "a test"}, "tenant.suspended"),
    ]  # fmt: skip
    before = await api.events()
    assert before == ["tenant.created", "tenant.plan_changed", *["member.invited", "member.joined"] * 2]
    for number, (name, method, path, body, _) in enumerate(acts):
        for _ in range(2):
            await api.ask(name, method, f"{T}{path}", body, key=f"act-{number}")
    assert await api.events() == [*before, *(action for *_, action in acts if action)]
    store = api.harness.runtime.store.tenant(TENANT)
    events = (await store.query(Query(AuditRecord).order_by("sequence").limit(500))).docs
    assert all(one.intent and one.scope == TENANT for one in events if one.outcome == "done")
