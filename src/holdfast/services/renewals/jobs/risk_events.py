"""Events for the RMS: one for each resident and run, created in the commit of the act that causes it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, get_args
from urllib.parse import quote

import msgspec

from holdfast.errors import ConflictError
from holdfast.kit.outbox import Deliveries, Dispatcher, Event, Outbox, delivery_id
from holdfast.kit.outbox.models import DeliveryStatus
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.models import (
    EVENT_TYPE,
    OUTBOX_MODELS,
    CalculationJob,
    DeliveryState,
    RiskScore,
    RmsEndpoint,
    TriggerStatus,
)
from holdfast.store import Snapshot, Store, Transaction

BATCH: Final = 200
_IN_HEADERS: Final = "".join(chr(code) for code in range(32, 127) if chr(code) != "%")
# States of a delivery that did not arrive and is not tried again; a failed one is waiting for its retry.
ABANDONED: Final[tuple[DeliveryStatus, ...]] = ("dead", "skipped", "cancelled")
# Appends the audit event of an act to its transaction, given what the act came to.
Record: TypeAlias = Callable[[Transaction, Any], Awaitable[None]]


class FlagData(msgspec.Struct, frozen=True, rename="camel"):
    risk_score: int
    risk_tier: Tier
    days_to_expiry: int | None
    signals: dict[str, int | bool | None]


class FlagEvent(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a message to the RMS."""

    event: str
    event_id: str
    timestamp: datetime
    property_id: str
    resident_id: str
    data: FlagData


class TriggerResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a trigger came to for one resident."""

    resident_id: str
    event_id: str
    delivery_id: str
    status: TriggerStatus


def counts_of(results: Sequence[TriggerResult]) -> dict[TriggerStatus, int]:
    """Count triggers by what they came to."""
    counts = Counter(one.status for one in results)
    return {status: counts[status] for status in get_args(TriggerStatus)}


def describe_counts(counts: Mapping[TriggerStatus, int]) -> str:
    """Describe what triggers came to; every resident is in one part of the sentence.

    Example: `describe_counts(counts)` gives `3 new events are in flight; 1 was delivered before.`
    """
    parts = [
        f"{count:,} {one if count == 1 else several}"
        for status, one, several in _PHRASES
        if (count := counts.get(status, 0))
    ]
    return "; ".join(parts) + "." if parts else "There was nobody to send."


_PHRASES: Final[tuple[tuple[TriggerStatus, str, str], ...]] = (
    ("created", "new event is in flight", "new events are in flight"),
    ("re-queued", "dead event is sent again", "dead events are sent again"),
    ("already queued", "was in flight already", "were in flight already"),
    ("already delivered", "was delivered before", "were delivered before"),
)


def event_id_of(score: RiskScore) -> str:
    """The same for the same resident and run, whoever triggers it and how often.

    It is sent in headers, so it is ASCII, and with the property's id it names a delivery, so it is short:
    ids that are neither are encoded.
    """
    at: str = msgspec.to_builtins(score.calculated_at)
    room = ID_BYTES_MAX - len(delivery_id(f"evt---{at}", score.property_id).encode())
    home, who = _encode(score.property_id, room // 3), _encode(score.resident_id, room - room // 3)
    return f"evt-{home}-{who}-{at}"


def _encode(id: str, characters_max: int) -> str:
    """The id itself where it fits a header; else percent-encoded, and cut to a digest if long."""
    plain = id if id.isascii() and "%" not in id else quote(id, safe=_IN_HEADERS)
    if len(plain) <= characters_max:
        return plain
    return f"{plain[: characters_max - 17]}.{hashlib.sha256(id.encode()).hexdigest()[:16]}"


def delivery_id_of(score: RiskScore) -> str:
    """The id of the delivery of a score's event: a property has one endpoint."""
    return delivery_id(event_id_of(score), score.property_id)


def event_of(score: RiskScore, now: datetime) -> Event:
    """Build the event about a score, as it will be sent."""
    id = event_id_of(score)
    values = {name: signal.value for name, signal in score.signals.items()}
    data = FlagData(score.risk_score, score.risk_tier, score.days_to_expiry, values)
    body = FlagEvent(EVENT_TYPE, id, now, score.property_id, score.resident_id, data)
    return Event(
        id=id, type=EVENT_TYPE, body=msgspec.json.encode(body), occurred_at=now,
        fields={"resident_id": score.resident_id},
    )  # fmt: skip


class RiskEvents:
    """Adds events of one portfolio to transactions.

    Example: `results = await store.transact(lambda tx: RiskEvents(store).add(tx, scores))`
    """

    def __init__(self, store: Store, *, local_dispatcher: Dispatcher | None = None) -> None:
        self._store = store
        self._outbox = Outbox(store, models=OUTBOX_MODELS, local_dispatcher=local_dispatcher)
        self._deliveries = Deliveries(store, models=OUTBOX_MODELS)

    async def require_endpoint(self, property_id: str) -> RmsEndpoint:
        """The property's endpoint; ConflictError says what to do where it is missing or disabled."""
        return _usable(await self._store.get(RmsEndpoint, property_id), property_id)

    async def add(
        self, tx: Transaction, scores: Sequence[RiskScore], *, calculation_id: str = ""
    ) -> list[TriggerResult]:
        """Create the events of scores of one run, at most `BATCH`; replay those that were abandoned.

        ConflictError once the run is withdrawn.
        """
        if not scores:
            return []
        await _require_current(tx, calculation_id)
        property_id, now = scores[0].property_id, self._store.clock.now()
        endpoint = _usable(await tx.get(RmsEndpoint, property_id), property_id)
        stored = await self._store.get_many(DeliveryState, [delivery_id_of(one) for one in scores])
        results = list[TriggerResult]()
        for score, delivery in zip(scores, stored, strict=True):
            if delivery is None:
                await self._outbox.add(tx, event_of(score, now), [endpoint])
                status: TriggerStatus = "created"
            else:
                status = await self._resume(tx, delivery.doc)
            results.append(
                TriggerResult(score.resident_id, event_id_of(score), delivery_id_of(score), status)
            )
        return results

    async def _resume(self, tx: Transaction, delivery: DeliveryState) -> TriggerStatus:
        if delivery.state == "delivered":
            return "already delivered"
        # Somebody else may have replayed it since it was read.
        if delivery.state in ABANDONED and await self._deliveries.replay_one(delivery.id, tx, only=ABANDONED):
            return "re-queued"
        return "already queued"


async def _require_current(tx: Transaction, calculation_id: str) -> None:
    # Jobs of earlier releases don't name their run; it could not be withdrawn either.
    run = await tx.get(CalculationJob, calculation_id) if calculation_id else None
    if run is not None and run.doc.withdrawn_at is not None:
        raise ConflictError(f"run {calculation_id!r} was {run.doc.error}; send by the latest run")


def _usable(endpoint: Snapshot[RmsEndpoint] | None, property_id: str) -> RmsEndpoint:
    if endpoint is None:
        raise ConflictError(
            f"property {property_id!r} has no RMS endpoint;"
            f" create one with `holdfast endpoints create URL --id {property_id} --outbox renewals`"
        )
    if endpoint.doc.status == "disabled":
        raise ConflictError(
            f"the RMS endpoint of {property_id!r} is disabled ({endpoint.doc.reason or 'no reason given'});"
            f" enable it with `holdfast endpoints enable {property_id} --outbox renewals`"
        )
    return endpoint.doc
