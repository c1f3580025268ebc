"""Three properties with residents that nobody is: risks are calculated, events go to the simulated RMS."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from holdfast.demo.rms import RMS_CONTROLS, answers
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
    """It needs none: where events go is kept with each property."""
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
    rms, endpoints = stage.world.the(RmsSimulator), _renewals(stage).endpoints(NO_TENANT)
    for property_id in await _properties(stage):
        await endpoints.set(property_id, EndpointRequest(url=rms.webhook_url(property_id), rate_per_s=50.0))


async def seed(stage: Stage) -> None:
    """Residents, where their events go, a calculation of each property, and the first events."""
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
    """What became of some residents by now: those at higher risk left more often."""
    portfolio, dice, made = _portfolio(stage), random.Random(1), list[Outcome]()
    for property_id in properties:
        run = await portfolio.latest(property_id)
        page = await portfolio.risk(run, property_id, limit=DECIDED) if run else None
        for score in page.docs[::2] if page else ():
            left = dice.random() < 0.05 + 0.9 * score.risk_score / 100
            day = today - timedelta(days=dice.randrange(1, 40))
            made.append(_outcome(score, left=left, day=day, now=stage.clock.now()))
    await stage.store.tenant(NO_TENANT).commit(*(put(one) for one in made))


def _outcome(score: RiskScore, *, left: bool, day: date, now: datetime) -> Outcome:
    return Outcome(
        property_id=score.property_id, resident_id=score.resident_id, risk_score=score.risk_score,
        lease_id=score.resident_id.replace("resident", "lease"), risk_tier=score.risk_tier,
        outcome="left" if left else "renewed", decided_on=day, recorded_at=now,
        calculated_at=now - timedelta(days=DAYS_AGO[0]),
    )  # fmt: skip


async def act(stage: Stage) -> None:
    """A manager has the RMS told of a resident at risk."""
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
    return "Every property is calculated anew: the history of each resident grows by one."


async def trigger(stage: Stage) -> str:
    told, off = list[Triggered](), list[str]()
    for property_id in await _properties(stage):
        try:
            told += await _portfolio(stage).trigger_many(property_id, tiers=["high"])
        except ConflictError:
            # A receiver that is gone for good has its endpoint switched off by whichever event comes first.
            off.append(property_id)
    made = sum(one.status == "created" for one in told)
    said = f"{made} events are on their way, {len(told) - made} were there already."
    return f"{said} Switched off until the RMS is mended: {', '.join(off)}." if off else said


async def enable(stage: Stage) -> None:
    """Those that the RMS's answers switched off; what somebody paused stays so."""
    endpoints = _renewals(stage).endpoints(NO_TENANT)
    found, _ = await endpoints.all(limit=PROPERTIES_MAX, cursor=None)
    for one in found:
        if one.status == "disabled":
            await endpoints.act(one.property_id, "enable", reason="mended", by="demo")


async def replay(stage: Stage) -> str:
    report = await _renewals(stage).deliveries(NO_TENANT).replay_all(dry_run=False)
    return f"{report.changed} events go out again, under the ids they had."


async def facts(stage: Stage) -> list[Fact]:
    standings, _ = await _portfolio(stage).standings(limit=PROPERTIES_MAX)
    runs = [one.latest for one in standings if one.latest is not None]
    deliveries = _renewals(stage).deliveries(NO_TENANT)
    counts = [await deliveries.counts(one.property_id) for one in standings]
    return [
        ("Residents at high risk", str(sum(run.high for run in runs))),
        ("Events delivered", str(sum(one.get("delivered", 0) for one in counts))),
        ("Events given up", str(sum(one.get("dlq", 0) for one in counts))),
        ("The RMS answers", answers(stage)),
    ]


scene = Scene(
    title="Renewals",
    about="Who will probably not renew their lease, and why; the revenue-management system (RMS) is told.",
    settings=settings,
    open=open_endpoints,
    seed=seed,
    act=act,
    mended=enable,
    every_s=10.0,
    controls=[
        Control(name="trigger", label="Tell the RMS of all at high risk", kind="primary", run=trigger),
        Control(name="calculate", label="Calculate anew", run=calculate),
        *RMS_CONTROLS,
        Control(name="replay", label="Replay what was given up", run=replay),
    ],
    facts=facts,
    live=["renewals", "runs"],
)
