"""Open circuits in the store: written by a dispatcher when a breaker opens, deleted when it closes.

The breaker itself stays in the dispatcher's memory; nothing is decided by these documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import structlog

from holdfast.errors import HoldfastError
from holdfast.kit.outbox.deliveries import CANCELLABLE
from holdfast.kit.outbox.endpoint_queue import EndpointQueue
from holdfast.kit.outbox.models import JOINT, Delivery, Endpoint, EndpointCircuit, OutboxModels
from holdfast.model import schema_of
from holdfast.plural import plural
from holdfast.store import Query, Store, delete, put

# A probe takes its time; a circuit whose dispatcher died is believed no longer than this.
PROBE_MARGIN_S: Final = 30.0
_log: Final = structlog.get_logger("holdfast.outbox")


class CircuitRecorder:
    """Stores the states of a dispatcher's breakers, one write at a time: the last is the last state."""

    def __init__(self, store: Store) -> None:
        self._store, self._writing = store, asyncio.Lock()

    async def record(self, queue: EndpointQueue) -> None:
        """Store or delete the circuit of a queue by its state now; a failing store is only logged."""
        async with self._writing:
            endpoint, breaker = queue.endpoint, queue.breaker
            if endpoint is None or breaker is None or breaker.state == "half-open":
                return
            id, clock = circuit_id(type(endpoint), endpoint.id), self._store.clock
            write = delete(EndpointCircuit, id)
            if breaker.state == "open":
                left = timedelta(seconds=breaker.open_until - clock.monotonic())
                write = put(
                    EndpointCircuit(
                        id=id, tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id,
                        collection=_collection(type(endpoint)), failures=breaker.failures_in_row,
                        probe_at=clock.now() + left,
                    )
                )  # fmt: skip
            try:
                await self._store.tenant(endpoint.tenant_id).commit(write)
            except HoldfastError as fault:
                _log.warning("an endpoint's circuit is not stored", endpoint=endpoint.id, code=fault.code)


def circuit_id(kind: type[Endpoint], endpoint_id: str) -> str:
    """Return the id of an endpoint's circuit; all outboxes share the collection."""
    return f"{_collection(kind)}{JOINT}{endpoint_id}"


def _collection(kind: type[Endpoint]) -> str:
    return schema_of(kind).path.names[0]


def open_circuits(kind: type[Endpoint], now: datetime) -> Query[EndpointCircuit]:
    """The open circuits of an outbox's endpoints, those first whose probe is last."""
    since = now - timedelta(seconds=PROBE_MARGIN_S)
    query = Query(EndpointCircuit).where("collection", "==", _collection(kind)).where("probe_at", ">=", since)
    return query.order_by("-probe_at")


async def circuit_of(store: Store, endpoint: Endpoint) -> EndpointCircuit | None:
    """Return the open circuit of an endpoint that would be sent to, if it has one."""
    if endpoint.status != "active":
        return None
    found = await store.get(EndpointCircuit, circuit_id(type(endpoint), endpoint.id))
    return None if found is None or not _is_current(found.doc, store.clock.now()) else found.doc


def _is_current(circuit: EndpointCircuit, now: datetime) -> bool:
    return circuit.probe_at >= now - timedelta(seconds=PROBE_MARGIN_S)


async def hold_reasons(
    store: Store, deliveries: Iterable[Delivery], *, models: OutboxModels, now: datetime
) -> dict[str, str]:
    """Return why deliveries that wait are not sent when they are due, by their ids.

    `endpoint is paused`, or `endpoint paused after 10 failures, next probe in 4 s`.
    """
    waiting = {one.id: one.endpoint_id for one in deliveries if one.state in CANCELLABLE}
    if not waiting:
        return {}
    found = await store.get_many(models.endpoint, sorted(set(waiting.values())))
    endpoints = [one.doc for one in found if one is not None]
    reasons = {one.id: f"endpoint is {one.status}" for one in endpoints if one.status != "active"}
    active = [circuit_id(models.endpoint, one.id) for one in endpoints if one.status == "active"]
    circuits = [one.doc for one in await store.get_many(EndpointCircuit, active) if one is not None]
    reasons |= {
        one.endpoint_id: f"endpoint {describe(one, now)}" for one in circuits if _is_current(one, now)
    }
    return {id: reasons[endpoint_id] for id, endpoint_id in waiting.items() if endpoint_id in reasons}


def describe(circuit: EndpointCircuit, now: datetime) -> str:
    """Return what an open circuit means: `paused after 10 failures, next probe in 4 s`."""
    left_s = (circuit.probe_at - now).total_seconds()
    probe = f"in {left_s:.0f} s" if left_s >= 0.5 else "now"
    return f"paused after {plural(circuit.failures, 'failure')}, next probe {probe}"
