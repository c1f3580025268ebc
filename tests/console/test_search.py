"""The search in every page's header: exact ids first, then beginnings, never another tenant's."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.kit.outbox import Endpoint
from holdfast.store import create
from tests.console.console_harness import ConsoleHarness, console
from tests.operations.outboxes import AT, SERVICES, TENANT, Setting

HIT = re.compile(r'<td class="main" data-label="Id"><a href="([^"]+)"')


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=SERVICES) as made:
        yield made


async def test_an_event_is_found_by_its_beginning_and_leads_to_its_page(harness: ConsoleHarness) -> None:
    setting = Setting(harness.runtime)
    id = await setting.deliver(await setting.endpoint(), "windfall-7")
    other = Endpoint(id="wind-mill", tenant_id="zoo", url="https://zoo.example", created_at=AT)
    await harness.runtime.store.tenant("zoo").commit(create(other))
    vera = await harness.signed_in("vera", role="viewer", tenant_id=TENANT)
    page = await vera.page("/console/search?q=windf")
    assert HIT.findall(page) == [f"/console/deliveries/orchard/{id}"]
    assert 'action="/console/search"' in await vera.page("/console")
    # What a viewer may not see is not searched, nor is another tenant's.
    assert HIT.findall(await vera.page("/console/search?q=tree-1")) == []
    assert HIT.findall(await vera.page("/console/search?q=wind-mill")) == []
    dev = await harness.signed_in("dev", role="developer", tenant_id=TENANT)
    assert HIT.findall(await dev.page("/console/search?q=tree-1")) == ["/console/endpoints/orchard/tree-1"]
    adam = await harness.signed_in("adam", role="admin", tenant_id=TENANT)
    for asked in ("wind-mill", "wind-", "zoo"):
        assert "wind-mill" not in "".join(HIT.findall(await adam.page(f"/console/search?q={asked}")))


async def test_the_owner_finds_all_tenants_documents_and_people_exact_ones_first(
    harness: ConsoleHarness,
) -> None:
    setting = Setting(harness.runtime)
    await setting.endpoint(id="tree-1")
    await setting.endpoint(id="tree-10")
    ann = await harness.signed_in("ann")
    await harness.person("tree-lover", role="viewer")
    shown = json.loads(await ann.page("/api/v1/search?q=tree-1"))
    assert [(one["ids"], one["exact"], one["tenantId"]) for one in shown["groups"][0]["items"]] == [
        (["tree-1"], True, TENANT), (["tree-10"], False, TENANT),
    ]  # fmt: skip
    people = json.loads(await ann.page("/api/v1/search?q=lover"))["groups"]
    assert [(one["name"], one["items"][0]["ids"]) for one in people] == [("people", ["tree-lover"])]
    page = await ann.page("/console/search?q=tree-1")
    for link in HIT.findall(page):
        await ann.page(link.replace("&amp;", "&"))


@pytest.mark.parametrize(
    "text", ["", "zz", "nothing-like-this", "a/b", "..", "__x__", "%00", "'\"<b>", "é/ü/ö"]
)
async def test_an_empty_result_says_what_was_searched(harness: ConsoleHarness, text: str) -> None:
    ann = await harness.signed_in("ann")
    page = await ann.page("/console/search?q=" + text.replace("%00", "%2500"))
    assert HIT.findall(page) == []
    assert "people, " in page.partition("Searched: ")[2]
    assert "<b>" not in page
