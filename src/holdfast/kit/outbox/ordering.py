"""The order of an endpoint's deliveries: by the time they were created, which is unique in each queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from holdfast.clock import from_us, to_us
from holdfast.errors import NotFoundError, VersionConflictError
from holdfast.kit import ordered_queue
from holdfast.kit.outbox.models import Delivery, OutboxModels
from holdfast.store import Query, Store, Transaction, Write

CONFLICTS_MAX: Final = 100


async def join(tx: Transaction, delivery: Delivery, *, models: OutboxModels, now: datetime) -> None:
    """Give a new delivery its place behind the others: due at once only when it is the head."""
    position, is_head = await ordered_queue.join(
        tx, models.fifo_lane, delivery.endpoint_id, tenant_id=delivery.tenant_id, floor=to_us(now)
    )
    delivery.created_at = from_us(position)
    delivery.next_attempt_at = now if is_head else None


async def rejoin(tx: Transaction, delivery: Delivery, *, models: OutboxModels, now: datetime) -> None:
    """Put an old delivery back among those that wait, in its first order."""
    is_head = await ordered_queue.rejoin(
        tx, models.fifo_lane, delivery.endpoint_id, tenant_id=delivery.tenant_id
    )
    delivery.next_attempt_at = now if is_head else None


async def leave(
    store: Store, delivery: Delivery, writes: Sequence[Write], *, models: OutboxModels, now: datetime
) -> None:
    """Commit what finishes the head, together with what makes the next one due or the queue idle."""
    tenant = store.tenant(delivery.tenant_id)
    for attempt in range(1, CONFLICTS_MAX + 1):
        try:
            await tenant.commit(*writes, *await advance(tenant, delivery, models=models, now=now))
        except (VersionConflictError, NotFoundError):
            if attempt == CONFLICTS_MAX:
                raise
        else:
            return


async def advance(store: Store, delivery: Delivery, *, models: OutboxModels, now: datetime) -> list[Write]:
    """Return the writes that make the delivery after this head due, or the queue idle."""
    waiting = (
        Query(models.delivery)
        .where("endpoint_id", "==", delivery.endpoint_id)
        .where("status", "==", models.delivery.stored_state("pending"))
        .order_by("created_at")
    )
    return await ordered_queue.advance(
        store, models.fifo_lane, delivery.endpoint_id, waiting=waiting, head_id=delivery.id,
        due={"next_attempt_at": now},
    )  # fmt: skip
