"""The console shows and operates the outboxes of all services, each by its name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from holdfast.kit import ALL_TENANTS
from holdfast.kit.outbox.circuits import circuit_id
from holdfast.kit.outbox.models import EndpointCircuit
from holdfast.operations import deliveries, endpoints
from holdfast.store import create, patch
from tests.console.console_harness import ConsoleHarness, console
from tests.operations.outboxes import ORCHARD, SERVICES, TENANT, Setting

ACT = re.compile(r'data-(?:act|form)="(/api/[^"]+)"')


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=SERVICES) as made:
        yield made


async def test_each_outbox_has_its_lists_and_empty_ones_name_the_others(harness: ConsoleHarness) -> None:
    setting = Setting(harness.runtime)
    await setting.deliver(await setting.endpoint(), "windfall")
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    for page, mark in (("deliveries", "windfall"), ("endpoints", "tree-1")):
        assert mark in await ann.page(f"/console/{page}?outbox=orchard")
        empty = await ann.page(f"/console/{page}?outbox=harbour")
        assert mark not in empty
        assert f'<a href="/console/{page}?' in empty.partition("This is outbox harbour. Look at ")[2]
    await ann.page("/console/deliveries?outbox=cellar", 404)


async def test_a_delivery_shows_the_fields_of_its_own_class_and_what_can_be_done(
    harness: ConsoleHarness,
) -> None:
    setting = Setting(harness.runtime)
    waiting = await setting.deliver(await setting.endpoint(), "event-one")
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    shown = await ann.page(f"/console/deliveries/orchard/{waiting}")
    assert "basket" in shown
    assert 'href="/console/endpoints/orchard/tree-1"' in shown
    assert ACT.findall(shown) == [f"/api/v1/deliveries/orchard/{waiting}/cancel"]
    await setting.kill(waiting)
    assert ACT.findall(await ann.page(f"/console/deliveries/orchard/{waiting}")) == [
        f"/api/v1/deliveries/orchard/{waiting}/replay",
        f"/api/v1/dead-letters/orchard/{waiting}/resolve",
    ]


async def test_an_endpoint_offers_what_its_state_allows(harness: ConsoleHarness) -> None:
    setting = Setting(harness.runtime)
    await setting.endpoint()
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    one = "/api/v1/endpoints/orchard/tree-1"
    always = {"", "/rotate", "/rotate?end_others=true"}
    offered = {
        "active": {"/test", "/pause", "/disable", *always},
        "paused": {"/test", "/resume", "/disable", *always},
        "disabled": {"/enable", *always},
    }
    for status, verb in (("active", ""), ("paused", "pause"), ("disabled", "disable")):
        if verb:
            assert (await ann.act(f"{one}/{verb}", {"reason": "frost & <ice>"}))[0] == 200
        shown = await ann.page("/console/endpoints/orchard/tree-1")
        assert {url.removeprefix(one) for url in ACT.findall(shown)} == offered[status], status
    assert "frost &amp; &lt;ice&gt;" in shown
    dev = await harness.signed_in("dev", role="developer", tenant_id=TENANT)
    assert not ACT.findall(await dev.page("/console/endpoints/orchard/tree-1"))
    vic = await harness.signed_in("vic", role="viewer", tenant_id=TENANT)
    assert "needs developer" in await vic.page("/console/endpoints", 403)


async def test_an_endpoint_shows_how_many_were_skipped_and_replays_them(harness: ConsoleHarness) -> None:
    setting = Setting(harness.runtime)
    made = await setting.endpoint(status="disabled")
    ids = [await setting.deliver(made, f"e{number}") for number in range(2)]
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    page, one = "/console/endpoints/orchard/tree-1", "/api/v1/endpoints/orchard/tree-1"
    disabled = await ann.page(page)
    assert "2 while disabled" in disabled
    assert f"{one}/replay-skipped" not in ACT.findall(disabled)
    await ann.act(f"{one}/enable", {"reason": ""})
    shown = await ann.page(page)
    assert "Replay 2 skipped" in shown
    assert f"{one}/replay-skipped" in ACT.findall(shown)
    assert (await ann.act(f"{one}/replay-skipped", {"dryRun": False}))[0] == 200
    assert {await setting.status(id) for id in ids} == {"pending"}
    assert f"{one}/replay-skipped" not in ACT.findall(await ann.page(page))


async def test_an_open_circuit_shows_on_its_page_in_the_api_and_on_the_overview(
    harness: ConsoleHarness,
) -> None:
    setting = Setting(harness.runtime)
    waiting = await setting.deliver(await setting.endpoint(), "e1")
    probe_at = harness.runtime.clock.now() + timedelta(minutes=10)
    circuit = EndpointCircuit(
        id=circuit_id(ORCHARD.endpoint, "tree-1"), tenant_id=TENANT, collection="orchard_endpoints",
        endpoint_id="tree-1", failures=10, probe_at=probe_at,
    )  # fmt: skip
    await setting.store.commit(create(circuit))
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    assert "after 10 failures, next probe in " in await ann.page("/console/endpoints/orchard/tree-1")
    told = await ann.page(f"/console/deliveries/orchard/{waiting}")
    assert "endpoint paused after 10 failures, next probe in " in told
    for listed in ("status=undelivered", f"q={waiting}"):
        rows = await ann.page(f"/console/deliveries?outbox=orchard&{listed}")
        assert (
            "endpoint paused after 10 failures, next probe in " in rows.partition('data-label="Next try"')[2]
        )
    overview = await ann.page("/console")
    assert "endpoint tree-1 of orchard is paused after 10 failures, next probe in " in overview
    shown = (await endpoints.get(harness.runtime, TENANT, "orchard", "tree-1")).circuit
    assert shown is not None
    assert (shown.failures, shown.next_probe_at) == (10, probe_at)
    assert await endpoints.list_circuits(harness.runtime, TENANT, "harbour") == []
    assert (await ann.act("/api/v1/endpoints/orchard/tree-1/pause", {"reason": ""}))[0] == 200
    assert (await endpoints.get(harness.runtime, TENANT, "orchard", "tree-1")).circuit is None, "by somebody"
    # While it is being sent, the stored time is the end of its lease and no next try.
    sending = await setting.deliver(await setting.endpoint(id="tree-2"), "e2")
    await setting.store.commit(
        patch(ORCHARD.delivery, sending, changes={"status": "sending", "next_attempt_at": probe_at})
    )
    for path in (
        "/console/deliveries?outbox=orchard&status=sending",
        f"/console/deliveries/orchard/{sending}",
    ):
        assert re.search(r'Next try"?(</dt><dd)?>now<', await ann.page(path)), path
    (row,) = (
        await deliveries.list_deliveries(harness.runtime, ALL_TENANTS, "orchard", statuses=["pending"])
    ).items
    assert row.hold_reason == "endpoint is paused"
    await deliveries.cancel(harness.runtime, setting.by(), "orchard", waiting)
    one = await deliveries.detail(harness.runtime, TENANT, "orchard", waiting)
    assert (one.status, one.hold_reason) == ("cancelled", "")


async def test_the_overview_tells_of_every_outbox_and_leads_to_it(harness: ConsoleHarness) -> None:
    setting = Setting(harness.runtime)
    await setting.kill(await setting.deliver(await setting.endpoint(), "e1"))
    await setting.endpoint("harbour", "pier-1", status="paused", reason="storm")
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    overview = await ann.page("/console")
    for text, mark in (
        ("1 dead letter in orchard of acme", "e1"),
        ("endpoint pier-1 of harbour is paused: storm", "pier-1"),
    ):
        found = re.search(rf'<a href="([^"]+)">{text}</a>', overview)
        assert found is not None, text
        assert mark in await ann.page(unescape(found[1]))
    assert 'href="/console/dead-letters?outbox=orchard"' in overview
    vic = await harness.signed_in("vic", role="viewer", tenant_id=TENANT)
    found = re.search(r'<a href="([^"]+)">endpoint pier-1', await vic.page("/console"))
    assert found is not None
    assert "pier-1" in await vic.page(unescape(found[1]))
