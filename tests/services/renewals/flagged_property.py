"""A property with many flagged residents, its endpoint, and a worker for its trigger jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from holdfast.kit.outbox import RetryPolicy
from holdfast.kit.runs import Runner
from holdfast.services.renewals.domain.scoring import SIGNALS, Signal, Tier
from holdfast.services.renewals.jobs.trigger_jobs import TriggerJobs, trigger_workflow
from holdfast.services.renewals.models import (
    EVENT_TYPE,
    TRIGGER_JOBS,
    DeliveryState,
    Property,
    PropertyState,
    RiskScore,
    RmsEndpoint,
    Summary,
)
from holdfast.store import Query, Store, create
from tests.services.renewals.operators import renewals_on
from tests.services.renewals.server import AS_OF, P


async def flag(store: Store, *, high: int, medium: int = 0, property_id: str = P) -> Summary:
    """A property whose latest run flags so many; nothing else is known of them."""
    at = store.clock.now() - timedelta(hours=1)
    run = Summary("run-1", at, AS_OF, high + medium, 0, high, medium, 0)
    home, tiers = store.tenant("-"), ["high"] * high + ["medium"] * medium
    await home.commit(
        create(Property(id=property_id, name=f"House {property_id}")),
        create(PropertyState(property_id=property_id, job_id="run-1", latest=run)),
    )
    scores = [_score(n, tier, run, property_id) for n, tier in enumerate(tiers)]
    for start in range(0, len(scores), 400):
        await home.commit(*(create(one) for one in scores[start : start + 400]))
    return run


def _score(n: int, tier: str, run: Summary, property_id: str) -> RiskScore:
    chosen: Tier = "high" if tier == "high" else "medium"
    signals = {name: Signal(None, 0, "No data.") for name in SIGNALS}
    return RiskScore(
        property_id=property_id, resident_id=f"r-{n:05}", lease_id=f"lease-{n}", unit_id=f"unit-{n}",
        name=f"Resident {n}", notice_given=False, as_of_date=AS_OF, risk_score=90 - n % 50,
        risk_tier=chosen, days_to_expiry=10, signals=signals, calculated_at=run.calculated_at,
    )  # fmt: skip


async def connect(store: Store, property_id: str = P) -> None:
    """Where its events go, with nobody there."""
    endpoint = RmsEndpoint(
        id=property_id, url="https://rms.example/1", event_types=[EVENT_TYPE], retry=RetryPolicy(),
        created_at=store.clock.now(),
    )  # fmt: skip
    await store.tenant("-").commit(create(endpoint))


def trigger_jobs_of(store: Store) -> TriggerJobs:
    return renewals_on(store).trigger_jobs("-")


@contextlib.asynccontextmanager
async def trigger_worker(store: Store, *, batch: int = 200) -> AsyncIterator[TriggerJobs]:
    """A worker that carries trigger jobs."""
    stop = asyncio.Event()
    runner = Runner(
        store.privileged(), [trigger_workflow(store, batch=batch)], models=TRIGGER_JOBS, lease_s=1.5,
        renew_s=0.5, poll_s=0.1,
    )  # fmt: skip
    task = asyncio.create_task(runner.run(stop))
    try:
        yield trigger_jobs_of(store)
    finally:
        stop.set()
        await task


async def residents_sent(store: Store, property_id: str = P) -> Sequence[str]:
    """The residents of all events, each as often as there is one."""
    query = Query(DeliveryState).where("endpoint_id", "==", property_id).order_by("-created_at").limit(1_000)
    return [item.doc.resident_id async for item in store.tenant("-").scan(query)]
