"""Two services with every part of the kit under their own names, in one process: apart, and both shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from holdfast.app import open_store
from holdfast.cli import app, document_classes
from holdfast.cli.checkup import schema as checkup_schema
from holdfast.errors import DeclarationError
from holdfast.http.metrics import Metrics
from holdfast.kit.audit import AuditEvent
from holdfast.kit.connections import Connection
from holdfast.kit.metering import UsageEvent
from holdfast.kit.outbox import Delivery
from holdfast.kit.retention import Sweeper
from holdfast.kit.runs import RunDocument, Runs
from holdfast.model import Document
from holdfast.runtime import Runtime, documents_of, runtime, sealed_fields
from holdfast.runtime.document_registry import hidden_fields
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.console.console_harness import ConsoleHarness, console
from tests.examples.own_parts import ENDPOINT, HARBOUR, ORCHARD, RUNS_KEPT_S, TENANT, OwnParts
from tests.kit.eventually import ended

BOTH = (ORCHARD, HARBOUR)
SERVICES = [one.service() for one in BOTH]
KIT: tuple[type[Document], ...] = (RunDocument, AuditEvent, UsageEvent, Delivery, Connection)
# What is shown of each service, by the page or route that shows it: the query, and a text of its own.
SHOWN = {
    "audit": "trail={name}",
    "usage": "meter={name}",
    "runs": "collection={name}_runs",
    "connections": "collection={name}_connections",
    "deliveries": "outbox={name}",
}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=SERVICES) as made:
        for one in BOTH:
            await one.seed(made.runtime.store)
        yield made


async def _run(harness: ConsoleHarness, one: OwnParts, count: int = 1) -> list[str]:
    """Start runs of a service and have the process's runner finish them."""
    started = [await one.start(harness.runtime.store) for _ in range(count)]
    await harness.runtime.runner.work_off()
    runs = Runs(harness.runtime.store.tenant(TENANT), models=one.runs)
    assert {(await ended(runs, id)).status for id in started} == {"completed"}
    return started


async def test_nothing_of_one_service_is_touched_by_the_other(harness: ConsoleHarness) -> None:
    store = harness.runtime.store
    before = await HARBOUR.stored(store)
    assert before == {"runs": 0, "audit": 0, "usage": 0, "deliveries": 0, "connections": 1}
    await _run(harness, ORCHARD, 2)
    assert await HARBOUR.stored(store) == before
    await _run(harness, HARBOUR)
    expected = {"runs": 2, "audit": 2, "usage": 2, "deliveries": 2, "connections": 1}
    assert await ORCHARD.stored(store) == expected
    assert await HARBOUR.stored(store) == dict.fromkeys(expected, 1)
    for kind in KIT:
        assert (await store.privileged().query(Query(kind).limit(1))).items == [], kind


def _mark(page: str, one: OwnParts, run_id: str) -> str:
    """A text that only this service's documents bring to the page."""
    return {"usage": f"{one.name}.baskets", "connections": f"{one.name}@hoge.jp"}.get(page, run_id)


async def test_every_page_and_route_shows_both_by_name(harness: ConsoleHarness) -> None:
    ids = {one.name: (await _run(harness, one))[0] for one in BOTH}
    ann = await harness.signed_in("ann", role="admin", tenant_id=TENANT)
    for page, query in SHOWN.items():
        for one, other in (BOTH, BOTH[::-1]):
            asked = query.format(name=one.name)
            shown = await ann.page(f"/console/{page}?{asked}")
            answer = await ann.page(f"/api/v1/{page}?{asked}")
            mark, foreign = (_mark(page, x, ids[x.name]) for x in (one, other))
            assert mark in shown, page
            assert mark in answer, page
            assert foreign not in answer, page
            assert f">{query.format(name=other.name).partition('=')[2]}<" in shown, f"{page} offers the other"
        await ann.page(f"/api/v1/{page}?{query.format(name='cellar')}", 404)
    for one in BOTH:
        for actor, events in (("workflow", 1), ("user:ann", 0)):
            found = await ann.page(f"/api/v1/audit?trail={one.name}&actor={actor}")
            assert len(json.loads(found)["items"]) == events
        status, text, _ = await ann.act(f"/api/v1/audit/verify?trail={one.name}")
        assert (status, json.loads(text)) == (200, {"sound": True, "events": 1, "fault": None})
        status, text, _ = await ann.act(f"/api/v1/usage/rebuild?meter={one.name}", {})
        assert json.loads(text)["drifts"] == []
        await ann.page(f"/console/connections/{one.name}-account?collection={one.name}_connections")
        await ann.page(f"/console/runs/{one.name}_runs/{ids[one.name]}")
        await ann.page(f"/console/deliveries/{one.name}/{ids[one.name]}~{ENDPOINT}")


async def test_metrics_health_backlog_and_secrets_cover_both(harness: ConsoleHarness) -> None:
    for one in BOTH:
        await _run(harness, one)
    for one in BOTH:
        await one.start(harness.runtime.store)
    text = (await Metrics().text(harness.runtime)).decode()
    for one in BOTH:
        labels = f'collection="{one.name}_runs",outcome="settled",workflow="gather"'
        assert f"holdfast_runs_since_start{{{labels}}} 1.0" in text
        assert f'holdfast_queue_depth{{queue="{one.name}.{one.name}_runs"}} 1.0' in text
        assert f"{one.name}.{one.name}_runs" in await harness.runtime.backlog()
        assert set(sealed_fields(SERVICES)[one.connections.connection]) >= {"access_token", "refresh_token"}
        assert "accessToken" in hidden_fields(SERVICES)[one.connections.connection]


async def test_a_class_shared_by_two_services_is_refused(harness: ConsoleHarness) -> None:
    thief = OwnParts("thief")
    thief.audit = ORCHARD.audit
    config, vault = harness.runtime.config, harness.runtime.vault
    with pytest.raises(DeclarationError, match="audit trail 'thief' shares OwnEvent with 'orchard'"):
        Runtime(config, harness.runtime.store, [ORCHARD.service(), thief.service()], vault=vault)


def _holdfast(*words: str) -> Result:
    before = structlog.get_config()
    try:
        return CliRunner().invoke(app, words)
    finally:
        structlog.configure(**before)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the two services and no other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    for module in (runtime, document_classes, checkup_schema):
        monkeypatch.setattr(module, "find_services", lambda: SERVICES)


async def _seed(home: Path) -> dict[str, str]:
    """A finished run of each service, by the service's name."""
    async with console(home, services=SERVICES) as made:
        for one in BOTH:
            await one.seed(made.runtime.store)
        return {one.name: (await _run(made, one))[0] for one in BOTH}


def test_every_command_shows_both_by_name(tmp_path: Path, installed: None) -> None:
    ids = asyncio.run(_seed(tmp_path))
    for one in BOTH:
        asked: dict[str, tuple[Any, ...]] = {
            ids[one.name]: ("audit", "list", "--trail", one.name),
            f"{one.name}.baskets": ("usage", "show", "--meter", one.name),
            f'"{ids[one.name]}"': ("runs", "list", "--collection", f"{one.name}_runs"),
            f"{one.name}@hoge.jp": ("connections", "list", "--collection", f"{one.name}_connections"),
            f"{ids[one.name]}~{ENDPOINT}": ("deliveries", "list", "--outbox", one.name),
            '"sound":true': ("audit", "verify", "--trail", one.name),
            '"drifts":[]': ("usage", "rebuild", "--meter", one.name),
        }
        for mark, words in asked.items():
            result = _holdfast(*words, "--tenant", TENANT, "--json")
            assert (result.exit_code, mark in result.output) == (0, True), (words, result.output)
    refused = _holdfast("audit", "list", "--trail", "cellar")
    assert refused.exit_code != 0
    found = {one["name"]: one["fine"] for one in json.loads(_holdfast("doctor", "--json").output)["findings"]}
    assert found["schema"]
    assert all(found[f"settings of {one.name}"] for one in BOTH)


def test_a_copy_takes_the_collections_of_both(tmp_path: Path, installed: None) -> None:
    asyncio.run(_seed(tmp_path))
    source, target = (f"sqlite:///{tmp_path}/{name}.db" for name in ("holdfast", "copy"))
    copied = _holdfast("copy", "--from", source, "--to", target, "--json")
    assert copied.exit_code == 0, copied.output
    tallies = {one["collection"]: one for one in json.loads(copied.output)["walks"][-1]["tallies"]}
    for one in BOTH:
        for name in ("runs", f"runs/{one.name}_steps", "audit", "usage", "deliveries", "connections"):
            tally = tallies[f"{one.name}_{name}"]
            assert (tally["targetDocuments"], tally["targetHash"]) == (1, tally["hash"])


async def test_finished_runs_of_both_are_pruned(harness: ConsoleHarness) -> None:
    for one in BOTH:
        await _run(harness, one)
    later = ManualClock(harness.runtime.store.clock.now() + timedelta(seconds=RUNS_KEPT_S + 60))
    store = await open_store(harness.runtime.config.store, documents_of(SERVICES), clock=later)
    assert await Sweeper(store, documents_of(SERVICES)).sweep() >= len(BOTH)
    assert [(await one.stored(store))["runs"] for one in BOTH] == [0, 0]
    await store.close()
