"""Telling the RMS: one event for each resident and run, kept in the commit of the act that causes it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from holdfast.errors import AlreadyExistsError, ConflictError, HoldfastError
from holdfast.kit.outbox import Dispatcher, Event, Ledger, Outbox, delivery_id
from holdfast.kit.outbox.models import DeliveryStatus
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.services.renewals.models import EVENT_TYPE, KINDS, DeliveryState, RiskScore, RmsEndpoint
from holdfast.services.renewals.scoring import Tier
from holdfast.store import Query, Store

Told = Literal["created", "already queued", "already delivered", "re-queued"]
BATCH: Final = 200
_IN_HEADERS: Final = "".join(chr(code) for code in range(32, 127) if chr(code) != "%")
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


def summary_of(told: Sequence[Triggered]) -> str:
    """What triggers came to, for people: every resident is in one of its parts.

    Example: `summary_of(told)` gives `3 new events are on their way; 1 was delivered before.`
    """
    counts = Counter(one.status for one in told)
    parts = [
        f"{count} {one if count == 1 else several}"
        for status, one, several in _SAID
        if (count := counts[status])
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

    def __init__(self, store: Store, *, near: Dispatcher | None = None) -> None:
        self._store = store
        self._outbox = Outbox(store, near=near, kinds=KINDS)
        self._ledger = Ledger(store, kinds=KINDS)

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
            return await self._again(score)
        return _told(score, "created")

    async def many(self, scores: Sequence[RiskScore]) -> list[Triggered]:
        """The same for many of one property, in as few commits as the store takes them."""
        if not scores:
            return []
        endpoint = await self.endpoint(scores[0].property_id)
        now, told = self._store.clock.now(), list[Triggered]()
        for start in range(0, len(scores), BATCH):
            some = scores[start : start + BATCH]
            commits = [self._outbox.writes(event_of(score, now), [endpoint]) for score in some]
            for score, outcome in zip(some, await self._store.settle(commits), strict=True):
                if isinstance(outcome, AlreadyExistsError):
                    told.append(await self._again(score))
                elif isinstance(outcome, HoldfastError):
                    raise outcome
                else:
                    told.append(_told(score, "created"))
        return told

    async def _again(self, score: RiskScore) -> Triggered:
        """What is there already: delivered, on its way, or given up and now put out anew."""
        id = delivery_id(event_id_of(score), score.property_id)
        found = await self._store.get(DeliveryState, id)
        status = None if found is None else found.doc.status
        if status == "delivered":
            return _told(score, "already delivered")
        # Of several who do this at once one puts it out: for the others it is on its way by then, or there.
        if status in GIVEN_UP and await self._ledger.replay_one(id, only=GIVEN_UP):
            return _told(score, "re-queued")
        return _told(score, "already queued")


def _told(score: RiskScore, status: Told) -> Triggered:
    id = event_id_of(score)
    return Triggered(score.resident_id, id, delivery_id(id, score.property_id), status)


async def scores_of_run(
    store: Store, property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]
) -> list[RiskScore]:
    """A run's scores of these tiers, the highest first."""
    query = Query(RiskScore).where("property_id", "==", property_id)
    query = query.where("calculated_at", "==", calculated_at).where("risk_tier", "in", list(tiers))
    return [item.doc async for item in store.scan(query.order_by("-risk_score").limit(1_000))]
