"""Scenarios for the operations of renewals: four residents, a finished run and an endpoint."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import date
from pathlib import Path

from holdfast.operations import endpoints
from holdfast.operations.endpoints import NewEndpoint
from holdfast.services.renewals.domain.rules import RulesRequest
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import DeadLetterRow, DeliveryState
from holdfast.services.renewals.operations import Renewals
from holdfast.store import create, patch
from tests.operations.scenarios import TENANT, World, scenario
from tests.services.renewals.server import AS_OF, P, settle_in


async def _renewals(world: World) -> Renewals:
    renewals: Renewals = world.runtime.parts["renewals"].operations
    await settle_in(renewals.store(TENANT))
    return renewals


async def _calculated(world: World) -> Renewals:
    renewals, stop = await _renewals(world), asyncio.Event()
    working = asyncio.create_task(world.runtime.runner.run(stop))
    job = await renewals.calculate(world.by, P, as_of=AS_OF)
    assert (await renewals.jobs(TENANT).wait(job.id, within_s=30)).status == "completed"
    stop.set()
    await working
    await endpoints.create(
        world.runtime, world.by, "renewals", NewEndpoint(id=P, url="https://rms.example/1")
    )
    return renewals


async def _dead(world: World) -> tuple[Renewals, str]:
    renewals = await _calculated(world)
    result = await renewals.trigger(world.by, P, "john")
    for changes in ({"status": "sending"}, {"status": "dlq", "next_attempt_at": None}):
        await renewals.store(TENANT).commit(patch(DeliveryState, result.delivery_id, changes=changes))
    return renewals, result.delivery_id


@scenario(Renewals.calculate)
async def _(world: World) -> None:
    renewals = await _renewals(world)
    await world.act(renewals.calculate(world.by, P, as_of=AS_OF))


@scenario(Renewals.withdraw)
async def _(world: World) -> None:
    renewals = await _calculated(world)
    (run,) = (await renewals.portfolio(TENANT).runs.all(P))[0]
    await world.act(renewals.withdraw(world.by, P, run.job_id, reason="wrong day"))


@scenario(Renewals.trigger)
async def _(world: World) -> None:
    renewals = await _calculated(world)
    await world.act(renewals.trigger(world.by, P, "john"))


@scenario(Renewals.trigger_residents)
async def _(world: World) -> None:
    renewals = await _calculated(world)
    await world.act(renewals.trigger_residents(world.by, P, ["john", "jane"]))


@scenario(Renewals.trigger_tiers)
async def _(world: World) -> None:
    renewals = await _calculated(world)
    await world.act(renewals.trigger_tiers(world.by, P))


@scenario(Renewals.set_rules)
async def _(world: World) -> None:
    renewals = await _renewals(world)
    await world.act(renewals.set_rules(world.by, P, RulesRequest(send="high")))


@scenario(Renewals.change_rules)
async def _(world: World) -> None:
    renewals = await _renewals(world)
    await world.act(renewals.change_rules(world.by, P, {"high": 60}))


@scenario(Renewals.record_outcome)
async def _(world: World) -> None:
    renewals = await _renewals(world)
    day = date(2026, 3, 1)
    await world.act(renewals.record_outcome(world.by, "jane", "lease-jane", outcome="left", decided_on=day))


@scenario(Renewals.replay_dead_letter)
async def _(world: World) -> None:
    renewals, delivery_id = await _dead(world)
    await _bury(renewals, delivery_id)
    await world.act(renewals.replay_dead_letter(world.by, delivery_id))


@scenario(Renewals.replay_dead_letters)
async def _(world: World) -> None:
    renewals, delivery_id = await _dead(world)
    await _bury(renewals, delivery_id)
    await world.act(renewals.replay_dead_letters(world.by, property_id=P, dry_run=False))


@scenario(
    Renewals.import_tables, follow_up=("Property", "PropertyName"),
    why="rows land between the commit that begins an import and the one that ends it, which both have events",
)  # fmt: skip
async def _(world: World) -> None:
    renewals: Renewals = world.runtime.parts["renewals"].operations
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "properties.csv").write_text("id,name\np1,Elm Court\n")
        await world.act(renewals.import_tables(world.by, Folder(Path(folder))))


async def _bury(renewals: Renewals, delivery_id: str) -> None:
    store = renewals.store(TENANT)
    letter = DeadLetterRow(
        id=delivery_id, endpoint_id=P, event_id="evt", event_type="renewal.risk_flagged", reason="HTTP 400",
        died_at=store.clock.now(),
    )  # fmt: skip
    await store.commit(create(letter))
