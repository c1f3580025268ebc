"""Platform administrators see every tenant by default: pages, HTTP and commands mean the same by it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import WrongTenantError
from holdfast.kit.access import ApiTokens
from holdfast.kit.outbox import DeadLetter
from holdfast.kit.runs import RunDocument
from holdfast.runtime.document_registry import documents_of
from holdfast.store import create
from tests.console.console_harness import ConsoleHarness, Visitor, console
from tests.http.tenant_documents import seed
from tests.operations.outboxes import SERVICES, Setting

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
MARKERS = {"acme": "Mark-acme-5d21", "other": "Mark-other-9c47"}
LISTS = (
    "/deliveries?status=all", "/dead-letters", "/endpoints", "/inbox", "/channels", "/connections", "/runs",
    "/schedules", "/audit", "/usage", "/documents/holdfast_endpoints", "/documents/holdfast_runs",
)  # fmt: skip
ROUTES = (
    "deliveries?status=pending", "dead-letters", "endpoints", "inbox?status=pending", "channels",
    "connections", "runs", "schedules", "audit", "usage/allowances",
)  # fmt: skip


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=SERVICES) as made:
        yield made


async def _seed(harness: ConsoleHarness) -> None:
    for tenant_id, marker in MARKERS.items():
        await seed(harness.runtime.store, documents_of(SERVICES), tenant_id, marker)


def _rows(text: str) -> list[str]:
    return re.findall(r"<tr data-key.*?</tr>", text, re.DOTALL)


def _selector(text: str) -> str:
    return text.partition('<form class="tenant-choice"')[2].partition("</form>")[0]


async def test_every_list_shows_all_tenants_rows_and_each_leads_to_its_own_tenant(
    harness: ConsoleHarness,
) -> None:
    await _seed(harness)
    ann = await harness.signed_in("ann")
    for path in LISTS:
        text = await ann.page(f"/console{path}")
        assert ">Tenant</th>" in text, path
        assert '<option value="*" selected>All tenants</option>' in _selector(text), path
        for tenant_id, marker in MARKERS.items():
            rows = [row for row in _rows(text) if f">{tenant_id}</a>" in row]
            assert rows, (path, tenant_id)
            for row in rows:
                links = [unescape(one) for one in re.findall(r'(?:href|data-act)="([^"]+)"', row)]
                # A value of a document leads to all that share it, whoever they belong to.
                own = [one for one in links if "by=" not in one or "/documents/" not in one]
                assert all(f"tenant={tenant_id}" in one for one in own), (path, own)
                assert marker.lower() in row.lower() or path == "/usage", (path, row)
                first = next(one for one in links if "/console/" in one)
                assert (await ann.ask("GET", first))[0] == 200, first


async def test_choosing_a_tenant_keeps_to_it_in_every_link_and_the_question_in_the_selector(
    harness: ConsoleHarness,
) -> None:
    await _seed(harness)
    ann = await harness.signed_in("ann")
    text = await ann.page("/console/deliveries?status=all&tenant=acme&outbox=holdfast")
    assert ">Tenant</th>" not in text
    assert MARKERS["other"] not in text
    assert '<option value="acme" selected>' in _selector(text)
    assert '<input type="hidden" name="status" value="all">' in _selector(text)
    navigation = text.partition("<nav")[2].partition("</nav>")[0]
    assert all("tenant=acme" in one for one in re.findall(r'href="([^"]+)"', navigation))
    # The platform itself is a choice like any other, and not the default.
    shown = await ann.page("/console/deliveries?tenant=-")
    assert 'href="/console/runs?tenant=-"' in shown
    assert 'href="/console/runs"' in await ann.page("/console/deliveries")


async def test_a_document_reached_without_its_tenant_is_shown_with_acts_on_that_tenant(
    harness: ConsoleHarness,
) -> None:
    setting = Setting(harness.runtime)
    delivery_id = await setting.deliver(await setting.endpoint(), "windfall")
    ann = await harness.signed_in("ann")
    shown = await ann.page(f"/console/deliveries/orchard/{delivery_id}")
    assert f"/api/v1/deliveries/orchard/{delivery_id}/cancel?tenant=acme" in shown
    assert (await ann.act(f"/api/v1/deliveries/orchard/{delivery_id}/cancel?tenant=acme"))[0] == 200


async def test_pages_over_all_tenants_go_on_where_the_last_ended(harness: ConsoleHarness) -> None:
    for tenant_id in ("acme", "other"):
        letters = [
            DeadLetter(
                id=f"{tenant_id}-{n:03}~rms", tenant_id=tenant_id, event_id=f"{n:03}", endpoint_id="rms",
                event_type="lease.renewed", reason="no", died_at=AT + timedelta(seconds=n),
            )
            for n in range(40)
        ]  # fmt: skip
        await harness.runtime.store.tenant(tenant_id).commit(*map(create, letters))
    ann, path, seen = await harness.signed_in("ann"), "/console/dead-letters?outbox=holdfast", list[str]()
    for rows in (50, 30):
        text = await ann.page(path)
        seen += re.findall(r'data-key="([^"]+)"', text)
        assert len(_rows(text)) == rows
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = unescape(following[1]) if following else ""
        assert "tenant=" not in path
    assert len(set(seen)) == 80


async def test_filters_over_all_tenants_find_what_one_tenant_has(harness: ConsoleHarness) -> None:
    setting = Setting(harness.runtime)
    delivery_id = await setting.deliver(await setting.endpoint(), "windfall")
    await setting.kill(delivery_id)
    ann = await harness.signed_in("ann")
    for path in (
        "/deliveries?outbox=orchard&endpoint=tree-1", "/deliveries?outbox=orchard&q=windfall",
        f"/deliveries?outbox=orchard&q={delivery_id}", "/dead-letters?outbox=orchard&endpoint=tree-1",
    ):  # fmt: skip
        assert len(_rows(await ann.page(f"/console{path}"))) == 1, path
    assert not _rows(await ann.page("/console/deliveries?outbox=orchard&endpoint=none"))


async def test_a_person_with_one_tenant_sees_no_selector_and_never_another_tenant(
    harness: ConsoleHarness,
) -> None:
    await _seed(harness)
    ben = await harness.signed_in("ben", role="owner", tenant_id="acme")
    text = await ben.page("/console/deliveries?status=all")
    assert not _selector(text)
    assert ">Tenant</th>" not in text
    assert MARKERS["other"] not in text
    for path in ("/console/deliveries?tenant=*", "/api/v1/deliveries?tenant=*", "/console?tenant=*"):
        assert (await ben.ask("GET", path))[0] == 403, path


async def test_a_role_in_a_tenant_named_like_all_of_them_is_no_role_in_all(harness: ConsoleHarness) -> None:
    await _seed(harness)
    with pytest.raises(WrongTenantError, match="stands for all tenants"):
        harness.runtime.store.tenant("*")
    eve = await harness.signed_in("eve", role="owner", tenant_id="*")
    for path in (*LISTS, ""):
        assert (await eve.ask("GET", f"/console{path}"))[0] == 403, path
    for route in ROUTES:
        assert (await eve.ask("GET", f"/api/v1/{route}"))[0] == 403, route


async def _listed(caller: Visitor, route: str, token: str) -> set[str]:
    headers = {"authorization": f"Bearer {token}"}
    status, text, _ = await caller.ask("GET", f"/api/v1/{route}", headers=headers)
    assert status == 200, text
    return {one["tenantId"] for one in msgspec.json.decode(text)["items"]}


async def test_http_lists_all_tenants_to_platform_tokens_unless_they_name_one(
    harness: ConsoleHarness,
) -> None:
    await _seed(harness)
    token = await ApiTokens(harness.runtime.store).create("ops", role="admin")
    caller = harness.visitor()
    for route in ROUTES:
        assert {"acme", "other"} <= await _listed(caller, route, token), route
        join = "&" if "?" in route else "?"
        assert {"acme", "other"} <= await _listed(caller, f"{route}{join}tenant=*", token), route
        assert await _listed(caller, f"{route}{join}tenant=acme", token) == {"acme"}, route
    headers = {"authorization": f"Bearer {token}"}
    path = "/api/v1/dead-letters/holdfast/replay?tenant=*"
    status, text, _ = await caller.ask("POST", path, json={}, headers=headers)
    assert (status, "name it" in text) == (422, True)


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_lists_over_all_tenants_are_indexed_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    async with console(tmp_path, services=SERVICES, store=url) as harness:
        await _seed(harness)
        now = harness.runtime.clock.now()
        for tenant_id in MARKERS:
            run = RunDocument(tenant_id=tenant_id, type="sync", created_at=now, updated_at=now)
            await harness.runtime.store.tenant(tenant_id).commit(create(run))
        ann = await harness.signed_in("ann")
        for path in (
            *LISTS, "/deliveries?status=pending", "/endpoints?status=active", "/runs?status=pending",
            "/runs?type=sync", "/runs?type=sync&status=pending", "/connections?status=connected",
            "/audit?by=action&value=Mark-acme-5d21", "/audit?by=actor&value=Mark-acme-5d21",
            "/audit?by=subject&value=Mark-acme-5d21", "/dead-letters?outbox=orchard",
        ):  # fmt: skip
            assert _rows(await ann.page(f"/console{path}")), path
