"""Events at 200 a second to a healthy RMS: how long until the first attempt, and until it is delivered.

Taken from what is kept of each delivery, so that it is what an operator would see.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Final

from bench.measure import Goal, Open, Place, Ways, Workload
from bench.receiver import receiving
from holdfast.app import open_store
from holdfast.kit.outbox import Dispatcher, EndpointSecrets, new_secret
from holdfast.kit.vault import Vault, new_key
from holdfast.net import AddressGuard, RawSender
from holdfast.services.renewals.domain.scoring import SIGNALS, Signal
from holdfast.services.renewals.jobs.risk_events import RiskEvents, TriggerResult
from holdfast.services.renewals.models import (
    DOCUMENTS,
    EVENT_TYPE,
    OUTBOX_MODELS,
    DeliveryState,
    Property,
    RiskScore,
    RmsEndpoint,
)
from holdfast.store import Store, create

PER_S: Final = 200
PROPERTY: Final = "property-0001"
Length = Callable[[DeliveryState], timedelta]


def score(number: int) -> RiskScore:
    return RiskScore(
        property_id=PROPERTY, resident_id=f"resident-{number:07}", lease_id="l", unit_id="u", name="N",
        notice_given=False, as_of_date=date(2026, 3, 1), risk_score=80, risk_tier="high", days_to_expiry=5,
        signals={name: Signal(True, 20, "So it is.") for name in SIGNALS},
        calculated_at=datetime(2026, 3, 1, tzinfo=UTC),
    )  # fmt: skip


def to_first_attempt(delivery: DeliveryState) -> timedelta:
    return delivery.attempts[0].at - delivery.created_at


def to_delivered(delivery: DeliveryState) -> timedelta:
    assert delivery.finished_at is not None
    return delivery.finished_at - delivery.created_at


async def trigger(store: Store, number: int, dispatcher: Dispatcher) -> TriggerResult:
    events = RiskEvents(store, local_dispatcher=dispatcher)
    (result,) = await store.transact(lambda tx: events.add(tx, [score(number)]))
    return result


async def steadily(store: Store, numbers: list[int], dispatcher: Dispatcher) -> list[TriggerResult]:
    """Call one after another at a fixed rate; a late one does not delay those after it."""
    loop, tasks = asyncio.get_running_loop(), []
    start = loop.time()
    for n, number in enumerate(numbers):
        await asyncio.sleep(max(0.0, start + n / PER_S - loop.time()))
        tasks.append(asyncio.create_task(trigger(store, number, dispatcher)))
    return await asyncio.gather(*tasks)


async def finished(store: Store, told: list[TriggerResult]) -> list[DeliveryState]:
    while True:
        found = [one.doc for one in await store.get_many(DeliveryState, [t.delivery_id for t in told]) if one]
        if all(one.status == "delivered" for one in found):
            return found
        await asyncio.sleep(0.1)


def p95_of(length: Length, limit_ms: float) -> Open:
    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Ways]:
        store = await open_store(place.url(engine), [*DOCUMENTS, *OUTBOX_MODELS.all])
        await store.migrate()
        home, vault, numbers = store.tenant("-"), Vault.from_settings(new_key("bench")), count()
        sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
        dispatcher = Dispatcher(store, sender, signing=EndpointSecrets(vault).signing, models=OUTBOX_MODELS)
        stop = asyncio.Event()
        working = asyncio.create_task(dispatcher.run(stop))
        with receiving() as port:
            endpoint = RmsEndpoint(
                id=PROPERTY, url=f"http://127.0.0.1:{port}/", event_types=[EVENT_TYPE],
                created_at=store.clock.now(), concurrency=10,
            )  # fmt: skip
            endpoint.secrets = [EndpointSecrets(vault).seal(endpoint, new_secret())]
            await home.commit(create(Property(id=PROPERTY, name="Bench")), create(endpoint))

            async def ours() -> float:
                chosen = [next(numbers) for _ in range(place.scale(600, 200))]
                told = await steadily(home, chosen, dispatcher)
                lengths = [length(one).total_seconds() * 1_000 for one in await finished(home, told)]
                return statistics.quantiles(lengths, n=20)[-1]

            async def limit() -> float:
                return limit_ms

            yield Ways(ours, limit)
            stop.set()
            await working
        await sender.close()
        await store.close()

    return opened


def _workload(name: str, length: Length, limit_ms: float) -> Workload:
    return Workload(
        name=name, engines=("sqlite full", "postgres"), unit="ms", goal=Goal(1.0, at_most=True),
        other_name="limit", open=p95_of(length, limit_ms),
    )  # fmt: skip


WORKLOADS = [
    _workload("renewal event to its first attempt, p95 at 200/s", to_first_attempt, 100.0),
    _workload("renewal event to delivered, p95 at 200/s", to_delivered, 2_000.0),
]
