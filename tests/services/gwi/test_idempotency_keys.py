"""Every mutating route answers a repeated key from its record, and refuses it for another request."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit import NO_TENANT
from holdfast.kit.access import ApiTokens
from holdfast.kit.idempotency.models import record_id
from holdfast.services.gwi.models.runs import AgentRun, RequestRecord
from holdfast.services.gwi.models.work import WorkSignal
from holdfast.services.gwi.routes import ROUTES
from holdfast.store import patch
from holdfast.testing import ManualClock
from tests.services.gwi.api import ORG, TENANT, Api, gwi_api, user_id
from tests.services.gwi.test_work_api import PATCH, REPO

PLATFORM = "platform"
T = "/tenants/{tenant:str}"
W = f"/v1{T}"
INSTANCE = "/v1/instances/{instance_id:str}"
CANDIDATE = "/v1/candidates/{candidate_id:str}"


class KeyedRequests:
    """Sends each request with a key of its own, four times."""

    def __init__(self, api: Api, clock: ManualClock, token: str) -> None:
        self.api, self.clock, self._token = api, clock, token
        self.done: set[str] = set()

    async def exchange(
        self, route: str, name: str, body: Any = None, other: Any = None, *, query: str = "", **ids: str
    ) -> Any:
        """The answer: done once, replayed, refused for `other`, and refused while it is in progress."""
        method, template = route.split(" ", 1)
        path = f"/gwi{template}".replace("{tenant:str}", TENANT) + query
        for parameter, id in ids.items():
            path = path.replace(f"{{{parameter}:str}}", id)
        key, body = f"{route}{sorted(ids.items())}", body or {}
        status, first, headers = await self._ask(name, method, path, body, key)
        assert (status < 300, "Idempotency-Replayed" in headers) == (True, False), (route, status, first)
        again = await self._ask(name, method, path, body, key)
        assert (*again[:2], again[2].get("Idempotency-Replayed")) == (status, first, "true"), route
        refused = await self._ask(name, method, path, other or {"other": True}, key)
        assert (refused[0], refused[1]["error"]) == (422, "key_reused"), (route, refused)
        await self._hold(name, key)
        held = await self._ask(name, method, path, body, key)
        assert (held[0], held[1]["error"], "Retry-After" in held[2]) == (409, "in_progress", True), route
        self.done.add(route)
        return first

    async def _ask(self, name: str, method: str, path: str, body: Any, key: str) -> tuple[int, Any, Any]:
        if name != PLATFORM:
            return await self.api.request(name, method, path, body, key=key)
        headers = {"idempotency-key": key}
        return await self.api.harness.ask(method, path, token=self._token, json=body, headers=headers)

    async def _hold(self, name: str, key: str) -> None:
        """Leave the record as it is while a request is being answered."""
        store = self.api.harness.runtime.store
        by_token = await ApiTokens(store).verify(self._token)
        assert by_token is not None
        person = by_token.user_id if name == PLATFORM else user_id(name)
        assert person is not None
        caller = hashlib.sha256(person.encode()).hexdigest()[:16]
        until = self.clock.now() + timedelta(seconds=30)
        changes = {"status": "processing", "result": None, "completed_at": None, "held_until": until}
        for tenant_id in (TENANT, NO_TENANT):
            id = record_id(tenant_id, f"{caller}:{key}")
            if await store.tenant(tenant_id).get(RequestRecord, id) is not None:
                await store.tenant(tenant_id).commit(patch(RequestRecord, id, changes=changes))
                return
        raise AssertionError(f"the key {key} has no record")

    async def change(self, kind: Any, *key: str, **changes: Any) -> None:
        await self.api.harness.runtime.store.tenant(TENANT).commit(patch(kind, *key, changes=changes))


@pytest.fixture
async def requests(tmp_path: Path, clock: ManualClock) -> AsyncIterator[KeyedRequests]:
    async with gwi_api(tmp_path, clock) as api:
        yield KeyedRequests(api, clock, await api.harness.token("owner"))


async def test_every_mutating_route_does_a_keyed_request_once(requests: KeyedRequests) -> None:
    await _tenants_and_members(requests)
    await _repos_and_connectors(requests)
    item_id = await _work(requests)
    await _candidates(requests, item_id)
    await _runs(requests)
    await _automation(requests)
    await requests.exchange(f"DELETE {T}", PLATFORM, query="?confirm=acme")
    declared = {
        f"{method} {path}"
        for route in ROUTES if route.opt.get("operation") is not None
        for path in route.paths
        for method in route.http_methods
    }  # fmt: skip
    assert requests.done == declared


async def _tenants_and_members(requests: KeyedRequests) -> None:
    ask = requests.exchange
    await ask("POST /tenants", "olga", ORG, ORG | {"githubOrgLogin": "other"})
    await ask("PUT /me", "olga", {"theme": "dark"}, {"theme": "light"})
    await ask(f"POST {T}/plan", "olga", {"plan": "enterprise"}, {"plan": "pro"})
    await ask(f"PUT {T}/settings", "olga", {"autoRunOnPrOpen": True}, {"autoRunOnPrOpen": False})
    why, other = {"reason": "one"}, {"reason": "two"}
    for act in ("pause", "resume", "suspend", "deactivate", "activate"):
        await ask(f"POST {T}/{act}", "olga", *([why, other] if act != "resume" else []))
    for name, role in {"adam": "admin", "dora": "developer", "dean": "developer"}.items():
        await requests.api.join(name, role)
    invited = [{"email": f"{name}@people.example"} for name in ("ann", "bob")]
    sent = await ask(f"POST {T}/invites", "olga", *invited)
    await ask("POST /invites/{token:str}/accept", "ann", token=sent["token"])
    sent = await requests.api.done("olga", "POST", f"/gwi/tenants/{TENANT}/invites", invited[1])
    await ask(f"DELETE {T}/invites/{{invite_id:str}}", "olga", invite_id=sent["invite"]["id"])
    ann = {"user_id": user_id("ann")}
    await ask(f"PUT {T}/members/{{user_id:str}}", "olga", {"role": "viewer"}, {"role": "admin"}, **ann)
    await ask(f"DELETE {T}/members/{{user_id:str}}", "olga", **ann)


async def _repos_and_connectors(requests: KeyedRequests) -> None:
    ask, connector = requests.exchange, f"{T}/connectors/{{connector_id:str}}/config"
    one, two = ({"repos": [{"githubRepoId": id, "githubFullName": f"acme/r{id}"}]} for id in (41, 42))
    await ask(f"POST {T}/repos:connect", "adam", one, two)
    await ask(f"DELETE {T}/repos/{{repo_id:str}}", "adam", repo_id="gh-repo-41")
    await requests.api.done("adam", "POST", f"/gwi/tenants/{TENANT}/repos:connect", two)
    on, off = {"autoTriage": True}, {"autoTriage": False}
    await ask(f"PUT {T}/repos/{{repo_id:str}}", "adam", on, off, repo_id="gh-repo-42")
    await ask(f"PUT {connector}", "adam", {"settings": {"a": 1}}, {"settings": {"a": 2}}, connector_id="jira")
    await ask(f"DELETE {connector}", "adam", connector_id="jira")
    await ask(f"PUT {T}/policy", "adam", {"document": {}}, {"document": {"rules": []}})


async def _work(requests: KeyedRequests) -> str:
    ask, api = requests.exchange, requests.api

    def signal(number: int) -> dict[str, Any]:
        about = {"repo": REPO, "resourceType": "issue", "resourceNumber": number, "title": f"Issue {number}"}
        return {"externalId": f"d{number}", "context": about}

    await ask(f"POST {W}/signals", "dora", signal(1), signal(2))
    await api.done("dora", "POST", f"/gwi/v1/tenants/{TENANT}/signals", signal(3))
    await ask(f"POST {W}/signals/process", "dora")
    (first, second) = (await api.done("dora", "GET", f"/gwi/v1/tenants/{TENANT}/queue"))["items"]
    failed = (await api.done("dora", "POST", f"/gwi/v1/tenants/{TENANT}/signals", signal(4)))["id"]
    await requests.change(WorkSignal, TENANT, failed, status="failed")
    await ask(f"POST {W}/signals/{{signal_id:str}}/retry", "dora", signal_id=failed)
    mine, nobody = {"assignedTo": user_id("dora")}, {"assignedTo": None}
    both = [{"ids": [first["id"], second["id"]], "change": change} for change in (mine, nobody)]
    await ask(f"POST {W}/queue/bulk", "dora", *both)
    await ask(f"POST {W}/queue/{{item_id:str}}", "dora", nobody, mine, item_id=first["id"])
    why, other = {"reason": "one"}, {"reason": "two"}
    await ask(f"POST {W}/queue/{{item_id:str}}/dismiss", "dora", why, other, item_id=second["id"])
    return str(first["id"])


async def _candidates(requests: KeyedRequests, item_id: str) -> None:
    ask, patched = requests.exchange, {"patch": PATCH}
    made = await ask(f"POST {W}/queue/{{item_id:str}}/candidate", "dora", None, patched, item_id=item_id)
    ids = {"candidate_id": made["id"]}
    await ask(f"POST {CANDIDATE}", "dora", patched, {"patch": PATCH | {"commitMessage": "Other"}}, **ids)
    await ask(f"POST {CANDIDATE}/approve", "dean", {"comment": "one"}, {"comment": "two"}, **ids)
    await ask(f"POST {CANDIDATE}/revoke", "dean", **ids)
    await requests.api.done("dean", "POST", f"/gwi/v1/candidates/{made['id']}/approve")
    await ask(f"POST {CANDIDATE}/apply", "adam", **ids)


async def _runs(requests: KeyedRequests) -> None:
    ask, why, other = requests.exchange, {"reason": "one"}, {"reason": "two"}
    start, another = ({"type": type, "repoId": "gh-repo-42"} for type in ("triage", "plan"))
    run = await ask(f"POST {T}/runs", "dora", start, another)
    await ask(f"POST {T}/runs/{{run_id:str}}/cancel", "dora", why, other, run_id=run["id"])
    for act in ("approve", "reject"):
        run = await requests.api.done("dora", "POST", f"/gwi/tenants/{TENANT}/runs", start)
        await requests.change(AgentRun, run["id"], approval_status="pending")
        await ask(f"POST {T}/runs/{{run_id:str}}/{act}", "adam", why, other, run_id=run["id"])
    await ask(f"POST {T}/usage/rebuild", "adam", {"mend": False}, {"mend": True})


async def _automation(requests: KeyedRequests) -> None:
    ask = requests.exchange
    templates = [{"name": name, "runType": "plan"} for name in ("One", "Two")]
    await ask("POST /v1/templates", PLATFORM, *templates)
    named = [{"templateId": "tmpl-plan", "name": name, "repoId": "gh-repo-42"} for name in ("One", "Two")]
    instance = await ask(f"POST {W}/instances", "dora", *named)
    ids = {"instance_id": instance["id"]}
    await ask(f"POST {INSTANCE}/run", "dora", **ids)
    crons = [{"cron": f"0 {hour} * * *"} for hour in (3, 4)]
    schedule = await ask(f"POST {INSTANCE}/schedules", "dora", *crons, **ids)
    enable = f"POST {W}/schedules/{{schedule_id:str}}/enable"
    await ask(enable, "dora", {"enabled": False}, {"enabled": True}, schedule_id=schedule["id"])
