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
from holdfast.operations import endpoints
from holdfast.operations.endpoints import EndpointSettings, NewEndpoint
from holdfast.plural import plural
from holdfast.services.renewals.jobs.risk_events import TriggerResult
from holdfast.services.renewals.models import DLQ, DeliveryState, Outcome, RiskScore, RmsEndpoint, TriggerJob
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.services.renewals.sample_data import SamplePlan, keep, today
from holdfast.simulators.rms import RmsSimulator
from holdfast.store import Query, put

OUTBOX: Final = "renewals"
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
    summaries, _ = await _portfolio(stage).summaries(limit=PROPERTIES_MAX)
    return [one.property_id for one in summaries]


async def open_endpoints(stage: Stage) -> None:
    """Each property has its own path at the RMS, whose address is new at every start."""
    rms, by, store = stage.world.get(RmsSimulator), stage.operator(NO_TENANT), stage.store.tenant(NO_TENANT)
    for id in await _properties(stage):
        url = rms.webhook_url(id)
        if await store.get(RmsEndpoint, id) is None:
            new = NewEndpoint(id=id, url=url, rate_per_s=50.0)
            await endpoints.create(stage.runtime, by, OUTBOX, new)
        else:
            settings = EndpointSettings(url=url, rate_per_s=50.0)
            await endpoints.update(stage.runtime, by, OUTBOX, id, settings)


async def seed(stage: Stage) -> None:
    """Residents, endpoints, a calculation of each property, and the first events."""
    plan = SamplePlan(
        residents=RESIDENTS, per_property=PER_PROPERTY, as_of=today(stage.clock.now()), tenant_id=NO_TENANT
    )
    async for _ in keep(stage.store.tenant(NO_TENANT), plan):
        pass
    await open_endpoints(stage)
    renewals, by, properties = _renewals(stage), stage.operator(NO_TENANT), await _properties(stage)
    for days in DAYS_AGO:
        as_of = plan.as_of - timedelta(days=days)
        jobs = [await renewals.calculate(by, one, as_of=as_of) for one in properties]
        for job in jobs:
            await renewals.jobs(NO_TENANT).wait(job.id, within_s=CALCULATED_S)
    await renewals.trigger_tiers(by, properties[0], tiers=["high"])
    await _decide(stage, properties, plan.as_of)


async def _decide(stage: Stage, properties: Sequence[str], as_of: date) -> None:
    """Outcomes of some leases: residents at higher risk left more often."""
    portfolio, rng, created = _portfolio(stage), random.Random(1), list[Outcome]()
    for property_id in properties:
        run = await portfolio.runs.latest(property_id)
        page = await portfolio.risk(run, property_id, limit=DECIDED) if run else None
        for score in page.docs[::2] if page else ():
            left = rng.random() < 0.05 + 0.9 * score.risk_score / 100
            day = as_of - timedelta(days=rng.randrange(1, 40))
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
    run = await portfolio.runs.latest(property_id)
    if run is not None:
        flagged = await portfolio.risk(run, property_id, tiers=["high", "medium"], limit=100)
        if flagged.docs:
            chosen = random.choice(flagged.docs).resident_id
            await _renewals(stage).trigger(stage.operator(NO_TENANT), property_id, chosen)


async def calculate(stage: Stage) -> str:
    for property_id in await _properties(stage):
        await _renewals(stage).calculate(stage.operator(NO_TENANT), property_id)
    return "Every property is recalculated: each resident gets one more score."


async def trigger(stage: Stage) -> str:
    results, disabled = list[TriggerResult](), list[str]()
    for property_id in await _properties(stage):
        by = stage.operator(NO_TENANT)
        try:
            sent = await _renewals(stage).trigger_tiers(by, property_id, tiers=["high"])
            results += [] if isinstance(sent, TriggerJob) else sent
        except ConflictError:
            # The first event to a receiver that is gone for good disables its endpoint.
            disabled.append(property_id)
    created = sum(one.status == "created" for one in results)
    text = f"{plural(created, 'event is', 'events are')} in flight, {len(results) - created} existed already."
    return f"{text} Disabled until the RMS is restored: {', '.join(disabled)}." if disabled else text


async def enable(stage: Stage) -> None:
    """Enable the endpoints that the RMS's answers disabled; a paused one stays paused."""
    page = await endpoints.list_endpoints(stage.runtime, NO_TENANT, OUTBOX, status="disabled")
    for one in page.items:
        by = stage.operator(NO_TENANT)
        await endpoints.enable(stage.runtime, by, OUTBOX, one.id, reason="the RMS is restored")


async def replay(stage: Stage) -> str:
    report = await _renewals(stage).replay_dead_letters(stage.operator(NO_TENANT), dry_run=False)
    return f"{plural(report.changed, 'event is', 'events are')} sent again, under the same id."


async def facts(stage: Stage) -> list[Fact]:
    summaries, _ = await _portfolio(stage).summaries(limit=PROPERTIES_MAX)
    runs = [one.latest for one in summaries if one.latest is not None]
    store = stage.store.tenant(NO_TENANT)
    delivered, dead = [
        await store.count(Query(DeliveryState).where("status", "==", status).order_by("-created_at"))
        for status in ("delivered", DLQ)
    ]
    return [
        ("Residents at high risk", str(sum(run.high for run in runs))),
        ("Events delivered", str(delivered)),
        ("Dead letters", str(dead)),
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
