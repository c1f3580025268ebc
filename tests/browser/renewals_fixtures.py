"""A portfolio as a property manager meets it: several runs, events that arrived and some that did not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from holdfast.clock import SystemClock
from holdfast.kit.outbox import BreakerPolicy, RetryPolicy
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.operations import endpoints
from holdfast.operations.endpoints import NewEndpoint
from holdfast.runtime import Runtime
from holdfast.services.renewals import service
from holdfast.services.renewals.domain.dates import months_before
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.jobs.risk_events import TriggerResult
from holdfast.services.renewals.models import DeliveryState, Property, Resident, RmsEndpoint
from holdfast.services.renewals.models.deliveries import RmsDeliveryStatus
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.sample_data import SamplePlan, keep, today
from holdfast.simulators.rms import Behave, RmsSimulator
from holdfast.store import Query, patch, put
from tests.console.console_harness import ConsoleHarness, console

TENANT: Final = "-"
OUTBOX: Final = "renewals"
PROPERTIES: Final = ("property-0001", "property-0002", "property-0003")
# Quick enough for a test, slow enough to be seen.
WAITS_S: Final = (0.5, 0.5)


def renewals_of(runtime: Runtime) -> Renewals:
    operations: Renewals = runtime.parts["renewals"].operations
    return operations


def operator(runtime: Runtime) -> Operator:
    return runtime.operator(SERVICE, TENANT, actor="scene")


async def create_endpoint(runtime: Runtime, property_id: str, url: str = "https://rms.example/1") -> None:
    new = NewEndpoint(id=property_id, url=url)
    await endpoints.create(runtime, operator(runtime), OUTBOX, new)


async def trigger(
    runtime: Runtime, property_id: str, *, tiers: Sequence[Tier] = FLAGGED
) -> list[TriggerResult]:
    sent = await renewals_of(runtime).trigger_tiers(operator(runtime), property_id, tiers=tiers)
    assert isinstance(sent, list)
    return sent


async def settle(runtime: Runtime, *, residents: int = 60, per_property: int | None = None) -> None:
    """Sampled residents, as of today."""
    plan = SamplePlan(
        residents=residents, per_property=per_property or residents, as_of=today(runtime.clock.now()),
        tenant_id=TENANT,
    )  # fmt: skip
    async for _ in keep(runtime.store.tenant(TENANT), plan):
        pass


async def connect(
    runtime: Runtime,
    rms: RmsSimulator,
    property_id: str = PROPERTIES[0],
    *,
    waits_s: tuple[float, ...] = WAITS_S,
) -> None:
    """The property's events go to the simulated RMS."""
    await create_endpoint(runtime, property_id, rms.webhook_url(property_id))
    store = runtime.store.tenant(TENANT)
    found = await store.get(RmsEndpoint, property_id)
    assert found is not None
    # An open breaker would hold the last tries back for as long as a test may take.
    patient = msgspec.structs.replace(
        found.doc, retry=RetryPolicy(waits_s=waits_s), breaker=BreakerPolicy(failures=1_000)
    )
    await store.commit(put(patient, found.unchanged))


async def pause(runtime: Runtime, property_id: str, *, reason: str) -> None:
    await endpoints.pause(runtime, operator(runtime), OUTBOX, property_id, reason=reason)


async def calculate(runtime: Runtime, property_id: str = PROPERTIES[0], *, months_back: int = 0) -> None:
    jobs = renewals_of(runtime).jobs(TENANT)
    as_of = months_before(today(runtime.clock.now()), months_back)
    job = await jobs.start(property_id, as_of=as_of, by="scene")
    assert (await jobs.wait(job.id, within_s=30)).status == "completed"


async def record_outcomes(runtime: Runtime, property_id: str = PROPERTIES[0]) -> None:
    """Those at high risk leave more often than the others."""
    renewals = renewals_of(runtime)
    portfolio = renewals.portfolio(TENANT)
    run = await portfolio.runs.latest(property_id)
    assert run is not None
    day = runtime.clock.now().date() + timedelta(days=2)
    for number, score in enumerate((await portfolio.risk(run, property_id, limit=500)).docs):
        left = (number * 37) % 100 < score.risk_score
        await renewals.record_outcome(
            operator(runtime), score.resident_id, score.lease_id, outcome="left" if left else "renewed",
            decided_on=day,
        )  # fmt: skip


async def settled(runtime: Runtime, property_id: str, *, status: RmsDeliveryStatus, count: int) -> None:
    """Until so many of a property's deliveries are in this state."""
    store = runtime.store.tenant(TENANT)
    query = Query(DeliveryState).where("endpoint_id", "==", property_id).where("status", "==", status)
    subscription = store.watch(DeliveryState)
    async with asyncio.timeout(60):
        while await store.count(query.order_by("-created_at")) < count:
            await subscription.wait(0.5)
    subscription.close()


async def hurry(runtime: Runtime, property_id: str = PROPERTIES[0]) -> None:
    """The next try of what waits is now, so that a test need not wait for it nor hurry before it."""
    page = await renewals_of(runtime).deliveries(TENANT).page(property_id, ["failed"])
    now = runtime.clock.now()
    writes = [patch(DeliveryState, one.id, changes={"next_attempt_at": now}) for one in page.docs]
    await runtime.store.tenant(TENANT).commit(*writes)


async def fill(runtime: Runtime, rms: RmsSimulator) -> None:
    """Three properties: one that goes well, one whose RMS fails, one that was never calculated."""
    await settle(runtime, residents=180, per_property=60)
    for property_id in PROPERTIES[:2]:
        await connect(runtime, rms, property_id, waits_s=(0.05, 0.05))
        for months_back in (5, 4, 3, 2, 1, 0):
            await calculate(runtime, property_id, months_back=months_back)
    sent = await trigger(runtime, PROPERTIES[0], tiers=["high"])
    await settled(runtime, PROPERTIES[0], status="delivered", count=len(sent))
    rms.run(Behave(failure_rate=1.0, failure_status=503))
    sent = await trigger(runtime, PROPERTIES[1], tiers=["high"])
    await settled(runtime, PROPERTIES[1], status="dlq", count=len(sent))
    rms.run(Behave())
    await pause(runtime, PROPERTIES[1], reason="five failures in a row")
    await trigger(runtime, PROPERTIES[1], tiers=["medium"])
    await record_outcomes(runtime)


@asynccontextmanager
async def played(home: Path) -> AsyncIterator[tuple[ConsoleHarness, Mapping[str, str]]]:
    """The whole scene, with where to look."""
    async with (
        RmsSimulator(clock=SystemClock()) as rms,
        console(home, services=[service], work=True) as harness,
    ):
        await fill(harness.runtime, rms)
        yield harness, await paths(harness.runtime)


async def rename(runtime: Runtime, name: str) -> None:
    """Call everything in the first property this, and calculate it again."""
    store = runtime.store.tenant(TENANT)
    found = await store.get(Property, PROPERTIES[0])
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, name=name, city=name), found.unchanged))
    residents = Query(Resident).where("property_id", "==", PROPERTIES[0])
    residents = residents.order_by("last_name", "first_name").limit(500)
    for one in (await store.query(residents)).docs:
        await store.commit(put(msgspec.structs.replace(one, first_name="", last_name=name)))
    await calculate(runtime)


async def paths(runtime: Runtime) -> dict[str, str]:
    """Every page of the scene by a name for its picture."""
    portfolio = renewals_of(runtime).portfolio(TENANT)
    run = await portfolio.runs.latest(PROPERTIES[0])
    assert run is not None
    (riskiest,) = (await portfolio.risk(run, PROPERTIES[0], limit=1)).docs
    (_, earlier, *_), _ = await portfolio.runs.all(PROPERTIES[0])
    first, second, third = (f"/renewals/properties/{id}" for id in PROPERTIES)
    return {
        "renewals-portfolio": "/renewals",
        "renewals-property": first,
        "renewals-high": f"{first}?tier=high&sort=days",
        "renewals-notice": f"{first}?tier=notice+given",
        "renewals-nobody": f"{first}?q=nobody",
        "renewals-earlier-run": f"{first}?run={earlier.job_id}",
        "renewals-runs": f"{first}/runs",
        "renewals-paused": second,
        "renewals-not-calculated": third,
        "renewals-rules": f"{first}/rules",
        "renewals-what-if": f"{first}/what-if?expiry=60&delinquency=20&no_offer=10&market_rent=10",
        "renewals-resident": f"/renewals/residents/{riskiest.resident_id}",
        "renewals-calibration": "/renewals/calibration",
    }
