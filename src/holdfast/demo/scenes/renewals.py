"""Renewals: three properties with sample residents; risk events go to the simulated RMS."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from holdfast.demo.rms import RMS_CONTROLS, describe_behaviour
from holdfast.demo.scene import Control, Fact, Scene, Stage
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import ConflictError
from holdfast.kit import NO_TENANT
from holdfast.services.renewals.endpoints import EndpointRequest
from holdfast.services.renewals.jobs.risk_events import Triggered
from holdfast.services.renewals.models import Outcome, RiskScore
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.services.renewals.sample_data import SamplePlan, keep
from holdfast.simulators.rms import RmsSimulator
from holdfast.store import put

RESIDENTS: Final = 240
PER_PROPERTY: Final = 80
PROPERTIES_MAX: Final = 50
CALCULATED_S: Final = 30.0
DAYS_AGO: Final = (60, 30, 0)
DECIDED: Final = 80


def settings(world: SimulatorSet) -> Mapping[str, Any]:
    """None: the endpoint is stored with each property."""
    return {}


def _renewals(stage: Stage) -> Renewals:
    renewals: Renewals = stage.operations("renewals")
    return renewals


def _portfolio(stage: Stage) -> Portfolio:
    return _renewals(stage).portfolio(NO_TENANT)


async def _properties(stage: Stage) -> list[str]:
    standings, _ = await _portfolio(stage).standings(limit=PROPERTIES_MAX)
    return [one.property_id for one in standings]


async def open_endpoints(stage: Stage) -> None:
    """Each property has its own path at the RMS, whose address is new at every start."""
    rms, endpoints = stage.world.get(RmsSimulator), _renewals(stage).endpoints(NO_TENANT)
    for property_id in await _properties(stage):
        await endpoints.set(property_id, EndpointRequest(url=rms.webhook_url(property_id), rate_per_s=50.0))


async def seed(stage: Stage) -> None:
    """Residents, endpoints, a calculation of each property, and the first events."""
    plan = SamplePlan(
        residents=RESIDENTS, per_property=PER_PROPERTY, as_of=stage.clock.now().date(), tenant_id=NO_TENANT
    )
    async for _ in keep(stage.store.tenant(NO_TENANT), plan):
        pass
    await open_endpoints(stage)
    portfolio, properties = _portfolio(stage), await _properties(stage)
    for days in DAYS_AGO:
        as_of = plan.as_of - timedelta(days=days)
        jobs = [await portfolio.jobs.start(one, as_of=as_of, by="demo") for one in properties]
        for job in jobs:
            await portfolio.jobs.ended(job.id, within_s=CALCULATED_S)
    await portfolio.trigger_many(properties[0], tiers=["high"])
    await _decide(stage, properties, plan.as_of)


async def _decide(stage: Stage, properties: Sequence[str], today: date) -> None:
    """Outcomes of some residents: those at higher risk left more often."""
    portfolio, rng, created = _portfolio(stage), random.Random(1), list[Outcome]()
    for property_id in properties:
        run = await portfolio.latest(property_id)
        page = await portfolio.risk(run, property_id, limit=DECIDED) if run else None
        for score in page.docs[::2] if page else ():
            left = rng.random() < 0.05 + 0.9 * score.risk_score / 100
            day = today - timedelta(days=rng.randrange(1, 40))
            created.append(_outcome(score, left=left, day=day, now=stage.clock.now()))
    await stage.store.tenant(NO_TENANT).commit(*(put(one) for one in created))


def _outcome(score: RiskScore, *, left: bool, day: date, now: datetime) -> Outcome:
    return Outcome(
        property_id=score.property_id, resident_id=score.resident_id, risk_score=score.risk_score,
        lease_id=score.resident_id.replace("resident", "lease"), risk_tier=score.risk_tier,
        outcome="left" if left else "renewed", decided_on=day, recorded_at=now,
        calculated_at=now - timedelta(days=DAYS_AGO[0]),
    )  # fmt: skip


async def act(stage: Stage) -> None:
    """Send the event of one resident at risk."""
    portfolio, property_id = _portfolio(stage), random.choice(await _properties(stage))
    run = await portfolio.latest(property_id)
    if run is not None:
        flagged = await portfolio.risk(run, property_id, tiers=["high", "medium"], limit=100)
        if flagged.docs:
            await portfolio.triggers.one(random.choice(flagged.docs))


async def calculate(stage: Stage) -> str:
    portfolio = _portfolio(stage)
    for property_id in await _properties(stage):
        await portfolio.jobs.start(property_id, by="demo")
    return "Every property is recalculated: each resident gets one more score."


async def trigger(stage: Stage) -> str:
    triggered, disabled = list[Triggered](), list[str]()
    for property_id in await _properties(stage):
        try:
            triggered += await _portfolio(stage).trigger_many(property_id, tiers=["high"])
        except ConflictError:
            # The first event that gets 410 Gone disables its endpoint.
            disabled.append(property_id)
    created = sum(one.status == "created" for one in triggered)
    message = f"{created} events are being delivered, {len(triggered) - created} existed already."
    return f"{message} Disabled until the RMS is restored: {', '.join(disabled)}." if disabled else message


async def enable(stage: Stage) -> None:
    """Enable endpoints that the RMS's responses disabled; what somebody paused stays so."""
    endpoints = _renewals(stage).endpoints(NO_TENANT)
    found, _ = await endpoints.all(limit=PROPERTIES_MAX, cursor=None)
    for one in found:
        if one.status == "disabled":
            await endpoints.act(one.property_id, "enable", reason="RMS restored", by="demo")


async def replay(stage: Stage) -> str:
    report = await _renewals(stage).deliveries(NO_TENANT).replay_all(dry_run=False)
    return f"{report.changed} events are sent again under their ids."


async def facts(stage: Stage) -> list[Fact]:
    standings, _ = await _portfolio(stage).standings(limit=PROPERTIES_MAX)
    runs = [one.latest for one in standings if one.latest is not None]
    deliveries = _renewals(stage).deliveries(NO_TENANT)
    counts = [await deliveries.counts(one.property_id) for one in standings]
    return [
        ("Residents at high risk", str(sum(run.high for run in runs))),
        ("Events delivered", str(sum(one.get("delivered", 0) for one in counts))),
        ("Dead letters", str(sum(one.get("dlq", 0) for one in counts))),
        ("RMS response", describe_behaviour(stage)),
    ]


scene = Scene(
    title="Renewals",
    about="Residents who will probably not renew their lease; sent to the revenue-management system (RMS).",
    settings=settings,
    open=open_endpoints,
    seed=seed,
    act=act,
    on_restored=enable,
    every_s=10.0,
    controls=[
        Control(name="trigger", label="Send all at high risk to the RMS", kind="primary", run=trigger),
        Control(name="calculate", label="Recalculate", run=calculate),
        *RMS_CONTROLS,
        Control(name="replay", label="Replay dead letters", run=replay),
    ],
    facts=facts,
    live=["renewals", "runs"],
)
