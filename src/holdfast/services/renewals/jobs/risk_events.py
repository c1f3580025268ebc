"""Telling the RMS: one event for each resident and run, kept in the commit of the act that causes it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, get_args
from urllib.parse import quote

import msgspec

from holdfast.errors import AlreadyExistsError, ConflictError, RetryLaterError
from holdfast.kit.outbox import Deliveries, Dispatcher, Event, Outbox, delivery_id
from holdfast.kit.outbox.models import DeliveryStatus
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.models import (
    EVENT_TYPE,
    OUTBOX_MODELS,
    DeliveryState,
    RiskScore,
    RmsEndpoint,
    Told,
)
from holdfast.store import Query, Store, Write

BATCH: Final = 200
TRIES: Final = 20
_IN_HEADERS: Final = "".join(chr(code) for code in range(32, 127) if chr(code) != "%")
# What is written with a batch of events, by what became of each.
Beside = Callable[[Sequence["Triggered"]], Write]
# States in which nothing more is done for a delivery that did not arrive; a failed one waits to be tried.
GIVEN_UP: Final[tuple[DeliveryStatus, ...]] = ("dead", "skipped", "cancelled")


class FlagData(msgspec.Struct, frozen=True, rename="camel"):
    risk_score: int
    risk_tier: Tier
    days_to_expiry: int | None
    signals: dict[str, int | bool | None]


class FlagEvent(msgspec.Struct, frozen=True, rename="camel"):
    """What the RMS is sent."""

    event: str
    event_id: str
    timestamp: datetime
    property_id: str
    resident_id: str
    data: FlagData


class Triggered(msgspec.Struct, frozen=True, rename="camel"):
    """What a trigger came to for one resident."""

    resident_id: str
    event_id: str
    delivery_id: str
    status: Told


def counts_of(told: Sequence[Triggered]) -> dict[Told, int]:
    """How many triggers came to each thing they can come to."""
    counts = Counter(one.status for one in told)
    return {status: counts[status] for status in get_args(Told)}


def summary_of(counts: Mapping[Told, int]) -> str:
    """What triggers came to, for people: every resident is in one of its parts.

    Example: `summary_of(counts)` gives `3 new events are on their way; 1 was delivered before.`
    """
    parts = [
        f"{count:,} {one if count == 1 else several}"
        for status, one, several in _SAID
        if (count := counts.get(status, 0))
    ]
    return "; ".join(parts) + "." if parts else "There was nobody to tell of."


_SAID: Final[tuple[tuple[Told, str, str], ...]] = (
    ("created", "new event is on its way", "new events are on their way"),
    ("re-queued", "that had been given up is sent again", "that had been given up are sent again"),
    ("already queued", "was on its way already", "were on their way already"),
    ("already delivered", "was delivered before", "were delivered before"),
)


def event_id_of(score: RiskScore) -> str:
    """The same for the same resident and run, whoever triggers it and how often.

    It is sent in headers, so it is ASCII, and with the property's id it names a delivery, so it is short:
    ids that are neither are spelt so.
    """
    at: str = msgspec.to_builtins(score.calculated_at)
    room = ID_BYTES_MAX - len(delivery_id(f"evt---{at}", score.property_id).encode())
    home, who = _spelt(score.property_id, room // 3), _spelt(score.resident_id, room - room // 3)
    return f"evt-{home}-{who}-{at}"


def _spelt(id: str, most: int) -> str:
    """The id itself where it can stand in a header; else percent-encoded, and ended by a digest if long."""
    plain = id if id.isascii() and "%" not in id else quote(id, safe=_IN_HEADERS)
    if len(plain) <= most:
        return plain
    return f"{plain[: most - 17]}.{hashlib.sha256(id.encode()).hexdigest()[:16]}"


def event_of(score: RiskScore, now: datetime) -> Event:
    """The event about a score, as it will be sent."""
    id = event_id_of(score)
    values = {name: signal.value for name, signal in score.signals.items()}
    data = FlagData(score.risk_score, score.risk_tier, score.days_to_expiry, values)
    body = FlagEvent(EVENT_TYPE, id, now, score.property_id, score.resident_id, data)
    return Event(
        id=id, type=EVENT_TYPE, body=msgspec.json.encode(body), occurred_at=now,
        fields={"resident_id": score.resident_id},
    )  # fmt: skip


class Triggers:
    """Puts events out for one portfolio.

    Example: `told = await Triggers(store.tenant("-")).one(score)`
    """

    def __init__(self, store: Store, *, local_dispatcher: Dispatcher | None = None) -> None:
        self._store = store
        self._outbox = Outbox(store, local_dispatcher=local_dispatcher, models=OUTBOX_MODELS)
        self._ledger = Deliveries(store, models=OUTBOX_MODELS)

    async def endpoint(self, property_id: str) -> RmsEndpoint:
        """Where a property's events go; `ConflictError` says what to do where nothing would be sent to it."""
        found = await self._store.get(RmsEndpoint, property_id)
        if found is None:
            raise ConflictError(
                f"property {property_id!r} has no RMS endpoint;"
                f" set one with `holdfast renewals endpoints set {property_id} URL`"
            )
        if found.doc.status == "disabled":
            raise ConflictError(
                f"the RMS endpoint of {property_id!r} is disabled ({found.doc.reason or 'no reason given'});"
                f" enable it with `holdfast renewals endpoints act {property_id} enable`"
            )
        return found.doc

    async def one(self, score: RiskScore) -> Triggered:
        """Tell the RMS about a resident; of many callers at once one creates, the others are told so."""
        endpoint = await self.endpoint(score.property_id)
        event = event_of(score, self._store.clock.now())
        try:
            await self._outbox.send(event, [endpoint])
        except AlreadyExistsError:
            (told,) = await self._there([score])
            return _told(score, "already queued") if told is None else told
        return _told(score, "created")

    async def many(self, scores: Sequence[RiskScore]) -> list[Triggered]:
        """The same for many of one property, in as few commits as the store takes them."""
        if not scores:
            return []
        endpoint, told = await self.endpoint(scores[0].property_id), list[Triggered]()
        for start in range(0, len(scores), BATCH):
            told += await self.batch(scores[start : start + BATCH], endpoint)
        return told

    async def batch(
        self, scores: Sequence[RiskScore], endpoint: RmsEndpoint, *, beside: Beside | None = None
    ) -> list[Triggered]:
        """The same for as many as fit one commit: those that are new, and what is written `beside` them."""
        again: dict[str, Triggered] = {}
        for _ in range(TRIES):
            unknown = [one for one in scores if one.resident_id not in again]
            for one, there in zip(unknown, await self._there(unknown), strict=True):
                if there is not None:
                    again[one.resident_id] = there
            now = self._store.clock.now()
            new = [event_of(one, now) for one in scores if one.resident_id not in again]
            told = [again.get(one.resident_id) or _told(one, "created") for one in scores]
            writes = [write for event in new for write in self._outbox.writes(event, [endpoint])]
            writes += [beside(told)] if beside is not None else []
            try:
                if writes:
                    await self._store.commit(*writes)
            except AlreadyExistsError:
                continue  # somebody told of one of them at this moment
            return told
        raise RetryLaterError(f"too many tell the RMS of {endpoint.id!r} at this moment")

    async def _there(self, scores: Sequence[RiskScore]) -> list[Triggered | None]:
        """Of each what is there already, or None: delivered, on its way, or given up and now put out anew."""
        ids = [delivery_id(event_id_of(one), one.property_id) for one in scores]
        found = await self._store.get_many(DeliveryState, ids)
        return [
            None if there is None else await self._again(score, there.doc)
            for score, there in zip(scores, found, strict=True)
        ]

    async def _again(self, score: RiskScore, there: DeliveryState) -> Triggered:
        if there.status == "delivered":
            return _told(score, "already delivered")
        # Of several who do this at once one puts it out: for the others it is on its way by then, or there.
        if there.status in GIVEN_UP and await self._ledger.replay_one(there.id, only=GIVEN_UP):
            return _told(score, "re-queued")
        return _told(score, "already queued")


def _told(score: RiskScore, status: Told) -> Triggered:
    id = event_id_of(score)
    return Triggered(score.resident_id, id, delivery_id(id, score.property_id), status)


async def scores_of_run(
    store: Store, property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]
) -> list[RiskScore]:
    """A run's scores of these tiers, the highest first."""
    return [score async for score in scan_run(store, property_id, calculated_at, tiers=tiers)]


async def scan_run(
    store: Store, property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]
) -> AsyncIterator[RiskScore]:
    """The same one by one, however many there are."""
    async for item in store.scan(of_run(property_id, calculated_at, tiers=tiers).limit(1_000)):
        yield item.doc


def of_run(property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]) -> Query[RiskScore]:
    """The question for them."""
    query = Query(RiskScore).where("property_id", "==", property_id)
    query = query.where("calculated_at", "==", calculated_at).where("risk_tier", "in", list(tiers))
    return query.order_by("-risk_score")
