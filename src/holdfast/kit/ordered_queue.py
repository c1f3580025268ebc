"""Order across retries: only the head of an ordered queue is due, and finishing it makes the next one due.

A queue's document is written against its version whenever a member joins or the queue falls idle, so the two
can't miss each other: one of them conflicts, looks again and sees what the other did.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from holdfast.kit import NO_TENANT
from holdfast.model import Document
from holdfast.store import Query, Store, Transaction, Write, patch, put


class OrderedQueueFields(Document, rename="camel"):
    """Whether a queue has a head at work, since when it has none, and the last position given out."""

    id: str
    tenant_id: str = NO_TENANT
    busy: bool = False
    idle_at: datetime | None = None
    last: int = 0


Q = TypeVar("Q", bound=OrderedQueueFields)


async def join(
    tx: Transaction, kind: type[Q], queue_id: str, *, tenant_id: str, floor: int = 0
) -> tuple[int, bool]:
    """Return a new member's position, at least `floor`, and whether it is the head and so due."""
    found = await tx.get(kind, queue_id)
    queue = found.doc if found else kind(id=queue_id, tenant_id=tenant_id)
    is_head = not queue.busy
    queue.last, queue.busy, queue.idle_at = max(floor, queue.last + 1), True, None
    tx.write(put(queue))
    return queue.last, is_head


async def rejoin(tx: Transaction, kind: type[Q], queue_id: str, *, tenant_id: str) -> bool:
    """Put a finished member back at its old position; return whether it is the head and so due."""
    found = await tx.get(kind, queue_id)
    queue = found.doc if found else kind(id=queue_id, tenant_id=tenant_id)
    is_head, queue.busy, queue.idle_at = not queue.busy, True, None
    tx.write(put(queue))
    return is_head


async def advance(
    store: Store, kind: type[Q], queue_id: str, *, waiting: Query[Any], head_id: str, due: dict[str, Any]
) -> list[Write]:
    """Return the writes that make the member after this head due, or the queue idle.

    `waiting` gives the members that wait, by position; `due` is what changes in the next one.
    """
    # The queue before its members: what joins after this read changes the queue's version.
    queue = await store.get(kind, queue_id)
    page = await store.query(waiting.limit(2))
    following = next((member for member in page.items if member.doc.id != head_id), None)
    if following is not None:
        return [patch(type(following.doc), following.doc.id, changes=due, expect=following.unchanged)]
    if queue is None:
        return []
    queue.doc.busy, queue.doc.idle_at = False, store.clock.now()
    return [put(queue.doc, queue.unchanged)]
