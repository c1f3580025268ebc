"""An open circuit is in the store for people to see, and gone when it closes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.kit.outbox import BreakerPolicy, Endpoint, RetryPolicy
from holdfast.kit.outbox.circuits import circuit_of, describe, open_circuits
from holdfast.kit.outbox.models import EndpointCircuit
from holdfast.store import Store
from tests.kit.outbox_fixture import DOCUMENTS as DOCUMENTS
from tests.kit.outbox_fixture import FAIL, dispatching, endpoint_at, receiving, send, state_is
from tests.kit.receiver import OK

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


async def _count(store: Store) -> int:
    return await store.privileged().count(open_circuits(Endpoint, store.clock.now()))


async def _counted(store: Store, count: int) -> None:
    async with asyncio.timeout(30):
        while await _count(store) != count:  # noqa: ASYNC110 - told by nobody
            await asyncio.sleep(0.02)


async def test_a_circuit_is_stored_when_it_opens_and_deleted_when_it_closes(live_store: Store) -> None:
    healthy = False
    async with receiving(lambda received: OK if healthy else FAIL) as receiver:
        endpoint = await endpoint_at(
            live_store, receiver.url(), breaker=BreakerPolicy(failures=3, open_s=0.5), concurrency=1,
            retry=RetryPolicy(waits_s=(0.01,) * 50),
        )  # fmt: skip
        await send(live_store, endpoint, "e1")
        async with dispatching(live_store):
            await _counted(live_store, 1)
            circuit = await circuit_of(live_store.tenant("-"), endpoint)
            assert circuit is not None
            assert circuit.endpoint_id == "ep"
            assert circuit.failures >= 3
            healthy = True
            await state_is(live_store, "e1", "delivered")
            await _counted(live_store, 0)


@pytest.mark.parametrize(
    ("failures", "left_s", "said"),
    [
        (10, 4.2, "paused after 10 failures, next probe in 4 s"),
        (1, 0.4, "paused after 1 failure, next probe now"),
        (11, -20.0, "paused after 11 failures, next probe now"),
    ],
)
def test_an_open_circuit_says_when_it_is_tried_next(failures: int, left_s: float, said: str) -> None:
    circuit = EndpointCircuit(
        id="c", collection="endpoints", endpoint_id="ep", failures=failures,
        probe_at=NOW + timedelta(seconds=left_s),
    )  # fmt: skip
    assert describe(circuit, NOW) == said
