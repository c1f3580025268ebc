"""What was sent to the RMS and what was not; what the outbox calls dead is `dlq` here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.clock import from_us, to_us
from holdfast.errors import BadCursorError, InvalidError
from holdfast.kit.outbox import Attempt, DeadLetter, Deliveries, Report, Selection, delivery_id
from holdfast.kit.outbox.models import DeliveryStatus
from holdfast.services.renewals.jobs.risk_events import event_id_of
from holdfast.services.renewals.models import DLQ, OUTBOX_MODELS, DeadLetterRow, DeliveryState, RiskScore
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.store import Query, Store, Transaction

Status = Literal["pending", "sending", "delivered", "failed", "dlq", "skipped", "cancelled"]
STATUSES: Final[tuple[Status, ...]] = (
    "pending", "sending", "delivered", "failed", "dlq", "skipped", "cancelled",
)  # fmt: skip
# What is not on its way at this moment, but will be tried.
WAITING: Final = ("pending", "failed")
Wait = Literal["due", "later"]
REPLAYED_MAX: Final = 1_000
NOTE_MAX: Final = 500


class RmsDeliveryResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    event_id: str
    event_type: str
    property_id: str
    resident_id: str
    status: Status
    reason: str
    attempt_count: int
    replay_count: int
    created_at: datetime
    last_attempt_at: datetime | None
    next_retry_at: datetime | None
    last_status: int | None
    rms_response: str | None
    finished_at: datetime | None


class RmsDeliveryDetail(RmsDeliveryResponse, frozen=True, kw_only=True, rename="camel"):
    """A delivery with its payload, exactly as it is sent, and every attempt."""

    payload: str
    attempts: list[Attempt]


class RmsDeadLetterResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a delivery was given up; its id is the delivery's."""

    id: str
    event_id: str
    event_type: str
    property_id: str
    reason: str
    created_at: datetime
    deaths: int
    resolved: bool
    resolved_at: datetime | None
    resolution: str


class RmsDeliveries:
    """Deliveries and dead letters of one portfolio.

    Example: `rows, cursor = await Deliveries(store).find("property-7", limit=50)`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._ledger = store, Deliveries(store, models=OUTBOX_MODELS)

    async def find(
        self,
        property_id: str,
        *,
        statuses: Sequence[Status] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[list[RmsDeliveryResponse], str | None]:
        """A property's deliveries, newest first."""
        query = Query(DeliveryState).where("endpoint_id", "==", property_id)
        if statuses:
            query = query.where("status", "in", [_inner(one) for one in statuses])
        page = await self._store.query(query.order_by("-created_at").limit(limit).after(cursor))
        return [shown(one) for one in page.docs], page.cursor

    async def waiting(
        self, wait: Wait | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[RmsDeliveryResponse], str | None]:
        """What all properties still have to be told of, the next to be tried first.

        `due` are those whose time has come, `later` those that wait for another try. What is due is judged
        at the moment the first page is asked for: its cursor keeps that, so that pages fit together.
        """
        at, inner = _moment(cursor, self._store.clock.now())
        page = await self._store.query(_waiting(wait, at).limit(limit).after(inner))
        after = None if page.cursor is None else f"{to_us(at)}.{page.cursor}"
        return [shown(one) for one in page.docs], after

    async def count_waiting(self, wait: Wait) -> int:
        return await self._store.count(_waiting(wait, self._store.clock.now()))

    async def of_event(self, event_id: str) -> list[RmsDeliveryResponse]:
        """The delivery of an event, by the id that the RMS knows it by (`X-Event-Id`)."""
        return [shown(one) for one in await self._ledger.of_event(event_id) if isinstance(one, DeliveryState)]

    async def get(self, delivery_id: str) -> RmsDeliveryDetail:
        doc = (await get_or_404(self._store, DeliveryState, delivery_id, what="delivery")).doc
        row = shown(doc)
        return RmsDeliveryDetail(
            **msgspec.structs.asdict(row), payload=doc.body.decode(errors="replace"), attempts=doc.attempts
        )

    async def of_scores(self, scores: Sequence[RiskScore]) -> list[RmsDeliveryResponse | None]:
        """For each of these scores the delivery of its event, where it was put out."""
        ids = [delivery_id(event_id_of(one), one.property_id) for one in scores]
        found = await self._store.get_many(DeliveryState, ids)
        return [None if one is None else shown(one.doc) for one in found]

    async def of_resident(self, resident_id: str, *, limit: int = 20) -> list[RmsDeliveryResponse]:
        """What was put out about a resident, newest first."""
        query = Query(DeliveryState).where("resident_id", "==", resident_id).order_by("-created_at")
        return [shown(one) for one in (await self._store.query(query.limit(limit))).docs]

    async def counts(self, property_id: str) -> dict[Status, int]:
        """How many deliveries of a property are in each state."""
        mine = Query(DeliveryState).where("endpoint_id", "==", property_id)
        counts = await asyncio.gather(
            *(
                self._store.count(mine.where("status", "==", _inner(status)).order_by("-created_at"))
                for status in STATUSES
            )
        )
        return {status: count for status, count in zip(STATUSES, counts, strict=True) if count}

    # -- dead letters -----------------------------------------------------------------------------

    async def dead_letters(
        self,
        property_id: str | None = None,
        *,
        resolved: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[list[RmsDeadLetterResponse], str | None]:
        """What was given up, newest first."""
        page = await self._ledger.dead_letters(
            resolved=resolved, endpoint_id=property_id, limit=limit, cursor=cursor
        )
        return [letter_shown(one) for one in page.docs], page.cursor

    async def replay(self, delivery_id: str, tx: Transaction | None = None) -> bool:
        """Put one out again, under its old event id with its old bytes, in the caller's transaction, if
        given; False where that was done since."""
        await get_or_404(self._store, DeadLetterRow, delivery_id, what="dead letter")
        return await self._ledger.replay_one(delivery_id, tx, only=["dead"])

    async def replay_all(self, property_id: str | None = None, *, dry_run: bool) -> Report:
        """The same for a property's dead letters, or everybody's; at most a thousand at a time."""
        selection = Selection(statuses=["dead"], endpoint_id=property_id)
        return await self._ledger.replay(selection, dry_run=dry_run, limit=REPLAYED_MAX)

    async def resolve(self, delivery_id: str, note: str) -> None:
        """Mark a dead letter as dealt with, without sending it; the note says how."""
        if not 1 <= len(note.strip()) <= NOTE_MAX:
            raise InvalidError(f"a note has 1 to {NOTE_MAX} characters", "note")
        await get_or_404(self._store, DeadLetterRow, delivery_id, what="dead letter")
        await self._ledger.resolve(delivery_id, note)


def _waiting(wait: Wait | None, at: datetime) -> Query[DeliveryState]:
    query = Query(DeliveryState).where("status", "in", list(WAITING))
    if wait is not None:
        query = query.where("next_attempt_at", "<=" if wait == "due" else ">", at)
    return query.order_by("next_attempt_at")


def _moment(cursor: str | None, now: datetime) -> tuple[datetime, str | None]:
    """When a list was first asked for, and where it goes on."""
    if cursor is None:
        return now, None
    us, _, inner = cursor.partition(".")
    if not re.fullmatch(r"[0-9]{1,17}", us) or not inner:
        raise BadCursorError("not a cursor; use the one the last page gave")
    return from_us(int(us)), inner


def _inner(status: Status) -> DeliveryStatus:
    return "dead" if status == DLQ else status


def _outer(status: DeliveryStatus) -> Status:
    return "dlq" if status == "dead" else status


def shown(doc: DeliveryState) -> RmsDeliveryResponse:
    return RmsDeliveryResponse(
        id=doc.id, event_id=doc.event_id, event_type=doc.event_type, property_id=doc.endpoint_id,
        resident_id=doc.resident_id, status=_outer(doc.status), reason=doc.reason,
        attempt_count=doc.attempt_count, replay_count=doc.replay_count, created_at=doc.created_at,
        last_attempt_at=doc.last_attempt_at, next_retry_at=doc.next_attempt_at, last_status=doc.last_status,
        rms_response=doc.rms_response, finished_at=doc.finished_at,
    )  # fmt: skip


def letter_shown(doc: DeadLetter) -> RmsDeadLetterResponse:
    return RmsDeadLetterResponse(
        id=doc.id, event_id=doc.event_id, event_type=doc.event_type, property_id=doc.endpoint_id,
        reason=doc.reason, created_at=doc.died_at, deaths=doc.deaths, resolved=doc.resolved,
        resolved_at=doc.resolved_at, resolution=doc.resolution,
    )  # fmt: skip
