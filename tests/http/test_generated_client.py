"""A client that a generator makes of `/openapi.json` calls a real server and understands its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from holdfast import server
from holdfast.config import load_config
from holdfast.kit.access import ApiTokens
from holdfast.model import Caller
from holdfast.runtime import KIT_PART, Runtime
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.tenants import NewTenant
from tests.http.generated_client import GeneratedClient, generate_client
from tests.http.server_harness import PLENTY
from tests.services.renewals.server import P, settle_in
from tests.serving import served

ORGANISATION = "gh-org-77"
# An answer that never ends.
ENDLESS = {"changes"}
# What a token may not do, and what is not there.
REFUSED = {
    "gwi_me": 403, "gwi_tenants": 403, "gwi_templates": 403, "gwi_schedules": 403,
    "hackernews_hidden": 401,
    "hackernews_worker_hackernews_ah_worker": 403, "hackernews_worker_hackernews_api_v1_ah_worker": 403,
    "connections_get_connection": 404, "deliveries_get_attempt": 404, "gwi_connector": 404,
    "renewals_trigger_job": 404, "renewals_show_source": 404,
}  # fmt: skip


async def test_a_generated_client_calls_every_get_route_and_parses_each_answer(tmp_path: Path) -> None:
    settings = {"home": tmp_path / "h", "allow": "127.0.0.1", "limits": PLENTY}
    runtime = await Runtime.open(load_config(settings, environ={}))
    token = await ApiTokens(runtime.store).create("generated", role="admin")
    try:
        surface = server.compose(runtime)
        surface.ready = True
        async with served(server.settings(surface)) as address:
            async with aiohttp.ClientSession(address, headers={"authorization": f"Bearer {token}"}) as http:
                described = await (await http.get("/openapi.json")).json()
            assert generate_client(described, tmp_path) == []
            api = GeneratedClient(described, address, token)
            async with api.client:
                await _call_every_get_route(api, await _fill(runtime, api))
    finally:
        await runtime.close()


async def _call_every_get_route(api: GeneratedClient, ids: dict[str, dict[str, Any]]) -> None:
    wrong: list[str] = []
    for id, operation in api.operations.items():
        api.import_operation(id)
        if operation.method != "get" or id in ENDLESS:
            continue
        known = ids.get(operation.described["tags"][0], ids[""])
        given = {name: known[name] for name in operation.required}
        try:
            status, parsed = await api.call(id, **given)
            assert status == REFUSED.get(id, 200), parsed
        except Exception as fault:
            wrong.append(f"{id}: {fault!r}")
    assert not wrong, "\n".join(wrong)


async def _fill(runtime: Runtime, api: GeneratedClient) -> dict[str, dict[str, Any]]:
    """Store something of each kind, by the client where a token may; returns ids by service."""
    return {
        "renewals": (renewals := await _fill_renewals(runtime, api)),
        "gwi": await _fill_gwi(runtime, api),
        "": await _fill_platform(api, run_id=renewals["job_id"]),
    }


async def _fill_platform(api: GeneratedClient, *, run_id: str) -> dict[str, Any]:
    body = {"id": "there", "url": "https://receiver.example/hook"}
    endpoint = await api.act("endpoints_create_endpoint", outbox=KIT_PART, body=body)
    where = {"outbox": KIT_PART, "endpoint_id": endpoint.id}
    delivery = await api.act("endpoints_send_test", **where)
    await api.act("endpoints_pause_endpoint", **where, body={"reason": "a test"})
    created = await api.act("tokens_create", body={"name": "ci", "role": "viewer", "scopes": ["runs:*"]})
    await api.act("tokens_revoke", token_id=created.token[3:19])
    await api.act("users_add", body={"name": "ann", "role": "viewer"})
    await api.act("audit_verify")
    await api.act("usage_rebuild", body={})
    assert (await api.call("tokens_revoke", token_id="none"))[0] == 404
    return {
        **where, "delivery_id": delivery.id, "connection_id": "none", "run_id": run_id, "number": 1,
        "collection": "renewal_calculation_jobs", "id": [run_id], "q": "there",
    }  # fmt: skip


async def _fill_renewals(runtime: Runtime, api: GeneratedClient) -> dict[str, Any]:
    await settle_in(runtime.store.tenant("-"))
    job = await api.act("renewals_calculate", property_id=P, body={"asOfDate": "2026-03-01"})
    await api.act("work_drain", body={"seconds": 30})
    body = {"id": P, "url": "https://rms.example/1"}
    await api.act("endpoints_create_endpoint", outbox="renewals", body=body)
    sent = await api.act("renewals_trigger", property_id=P, resident_id="john")
    return {
        "property_id": P, "job_id": job.job_id, "run_id": job.job_id, "delivery_id": sent.delivery_id,
        "resident_id": "john",
    }  # fmt: skip


async def _fill_gwi(runtime: Runtime, api: GeneratedClient) -> dict[str, Any]:
    gwi: Gwi = runtime.parts["gwi"].operations
    olga = Caller(user_id="oidc:olga", email="olga@people.example", roles={ORGANISATION: "owner"})
    organisation = NewTenant(github_org_id=77, github_org_login="acme")
    await gwi.tenants.create(runtime.operator(olga, ORGANISATION), organisation)
    there = {"tenant": ORGANISATION}
    repos = {"repos": [{"githubRepoId": 5, "githubFullName": "acme/shop"}]}
    connected = await api.act("gwi_connect", **there, body=repos)
    (repo,) = connected.repos
    await api.act("gwi_invite", **there, body={"email": "ann@example.com", "role": "developer"})
    shop = {"owner": "acme", "name": "shop", "fullName": "acme/shop"}
    about = {"repo": shop, "resourceType": "issue", "resourceNumber": 1, "title": "It fails"}
    signal = {"externalId": "1", "source": "github_issue", "context": about}
    recorded = await api.act("gwi_record", **there, body=signal)
    await api.act("gwi_process", **there)
    queue = await api.act("gwi_queue", **there)
    (item,) = queue.items
    candidate = await api.act("gwi_propose", **there, item_id=item.id, body={})
    run = await api.act("gwi_start_run", **there, body={"type": "plan", "repoId": repo.id})
    nightly = {"templateId": "tmpl-plan", "name": "Nightly", "repoId": repo.id}
    instance = await api.act("gwi_create_instance", **there, body=nightly)
    return {
        **there, "repo_id": repo.id, "signal_id": recorded.id, "item_id": item.id, "run_id": run.id,
        "candidate_id": candidate.id, "instance_id": instance.id, "connector_id": "none",
    }  # fmt: skip
