"""Order across retries: only the head of an ordered lane is due, and finishing it makes the next one due.

A lane's document is written against its version whenever a delivery is added or the lane falls idle, so the
two can't miss each other: one of them is refused, looks again and sees what the other did.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.errors import NotFoundError, VersionConflictError
from holdfast.kit.outbox.models import Delivery, OutboxModels
from holdfast.store import Query, Snapshot, Store, Transaction, Write, patch, put

CONFLICTS_MAX: Final = 100


async def join(tx: Transaction, delivery: Delivery, *, models: OutboxModels, now: datetime) -> None:
    """Give a new delivery its place behind the others: due at once only when nobody is before it."""
    found = await tx.get(models.fifo_lane, delivery.endpoint_id)
    if found is None:
        lane = models.fifo_lane(id=delivery.endpoint_id, tenant_id=delivery.tenant_id, last_at=now)
    else:
        lane = found.doc
        lane.last_at = max(now, lane.last_at + timedelta(microseconds=1))
    delivery.created_at = lane.last_at
    delivery.next_attempt_at = None if lane.busy else now
    lane.busy = True
    tx.write(put(lane))


async def rejoin(tx: Transaction, delivery: Delivery, *, models: OutboxModels, now: datetime) -> None:
    """Put an old delivery back among those that wait, in its first order."""
    found = await tx.get(models.fifo_lane, delivery.endpoint_id)
    lane = found.doc if found else models.fifo_lane(
        id=delivery.endpoint_id, tenant_id=delivery.tenant_id, last_at=now
    )  # fmt: skip
    delivery.next_attempt_at = None if lane.busy else now
    lane.busy = True
    tx.write(put(lane))


async def leave(
    store: Store, delivery: Delivery, writes: Sequence[Write], *, models: OutboxModels, now: datetime
) -> None:
    """Commit what finishes the head, together with what makes the next one due or the lane idle."""
    home = store.tenant(delivery.tenant_id)
    for attempt in range(1, CONFLICTS_MAX + 1):
        try:
            await home.commit(*writes, *await advance(home, delivery, models=models, now=now))
        except (VersionConflictError, NotFoundError):
            if attempt == CONFLICTS_MAX:
                raise
        else:
            return


async def advance(home: Store, delivery: Delivery, *, models: OutboxModels, now: datetime) -> list[Write]:
    """The writes that make the delivery after this head due, or the lane idle."""
    # The lane before the query: what is added after this look changes the lane's version.
    lane = await home.get(models.fifo_lane, delivery.endpoint_id)
    following = await _first_waiting(home, delivery, models=models)
    if following is not None:
        return [
            patch(
                models.delivery, following.doc.id,
                changes={"next_attempt_at": now}, expect=following.unchanged,
            )
        ]  # fmt: skip
    if lane is None:
        return []
    lane.doc.busy = False
    return [put(lane.doc, lane.unchanged)]


async def _first_waiting(home: Store, head: Delivery, *, models: OutboxModels) -> Snapshot[Delivery] | None:
    query = (
        Query(models.delivery)
        .where("endpoint_id", "==", head.endpoint_id)
        .where("status", "==", "pending")
        .order_by("created_at")
        .limit(2)
    )
    page = await home.query(query)
    return next((item for item in page.items if item.doc.id != head.id), None)
