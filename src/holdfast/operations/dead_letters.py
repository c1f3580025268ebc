"""Dead letters of every outbox: list, replay one or a selection, resolve."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from holdfast.errors import InvalidError, NotFoundError
from holdfast.kit.outbox import DeadLetter, Report, Selection
from holdfast.operation import Operator, operation
from holdfast.operations.deliveries import ReplayResponse
from holdfast.operations.outboxes import deliveries_in, endpoint_tenant, outbox_named
from holdfast.projection import project
from holdfast.runtime import KIT_PART, Runtime
from holdfast.store import Transaction

REPLAY_MAX: Final = 1_000
NOTE_CHARACTERS_MAX: Final = 500

ResolutionNote = Annotated[str, msgspec.Meta(min_length=1, max_length=NOTE_CHARACTERS_MAX)]


class DeadLetterResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a delivery is dead; has its delivery's id."""

    id: str
    tenant_id: str
    outbox: str
    event_id: str
    event_type: str
    endpoint_id: str
    reason: str
    died_at: datetime
    deaths: int
    resolved: bool
    resolved_at: datetime | None
    resolution: str


class DeadLetterPage(msgspec.Struct, frozen=True):
    items: list[DeadLetterResponse]
    cursor: str | None


def row(letter: DeadLetter, outbox: str) -> DeadLetterResponse:
    return project(letter, DeadLetterResponse, outbox=outbox)


async def get(runtime: Runtime, tenant_id: str, outbox: str, delivery_id: str) -> DeadLetter:
    """Return one dead letter as it is stored, or raise NotFoundError."""
    models = outbox_named(runtime, outbox).models
    found = await runtime.store.tenant(tenant_id).get(models.dead_letter, delivery_id)
    if found is None:
        raise NotFoundError(f"no dead letter {delivery_id!r}")
    return found.doc


async def list_dead_letters(
    runtime: Runtime,
    tenant_id: str,
    outbox: str = KIT_PART,
    *,
    resolved: bool = False,
    endpoint_id: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> DeadLetterPage:
    """Dead letters of one outbox, newest first."""
    of = await endpoint_tenant(runtime, tenant_id, outbox, endpoint_id)
    if of is None:
        return DeadLetterPage([], None)
    page = await deliveries_in(runtime, of, outbox).dead_letters(
        resolved=resolved, endpoint_id=endpoint_id, limit=limit, cursor=cursor
    )
    return DeadLetterPage([row(doc, outbox) for doc in page.docs], page.cursor)


@operation("dead_letter.replayed", area="dead-letters", verb="replay", needs="admin", subject="delivery_id")
async def replay(runtime: Runtime, by: Operator, outbox: str, delivery_id: str) -> ReplayResponse:
    """Send a dead letter again, under its old event id with its old body."""
    await get(runtime, by.tenant_id, outbox, delivery_id)
    deliveries = deliveries_in(runtime, by.tenant_id, outbox)
    done = await by.commit(
        lambda tx: deliveries.replay_one(delivery_id, tx, only=["dead"]), details={"outbox": outbox}
    )
    return ReplayResponse(delivery_id, done)


@operation("dead_letters.replayed", area="dead-letters", verb="replay", needs="admin", subject="endpoint_id")
async def replay_all(
    runtime: Runtime,
    by: Operator,
    outbox: str,
    *,
    endpoint_id: str | None = None,
    event_type: str | None = None,
    dry_run: bool = True,
    limit: int | None = REPLAY_MAX,
) -> Report:
    """Send unresolved dead letters again, at most `limit`; each commit has its audit event."""
    selection = Selection(statuses=["dead"], endpoint_id=endpoint_id, event_type=event_type)

    async def record(tx: Transaction, count: int) -> None:
        await by.record(tx, details={"outbox": outbox, "changed": count}, subject=endpoint_id or "")

    return await deliveries_in(runtime, by.tenant_id, outbox).replay(
        selection, dry_run=dry_run, limit=limit, also=record
    )


@operation("dead_letter.resolved", area="dead-letters", verb="resolve", needs="admin", subject="delivery_id")
async def resolve(
    runtime: Runtime, by: Operator, outbox: str, delivery_id: str, *, note: str
) -> DeadLetterResponse:
    """Mark a dead letter as resolved without sending it; the note says how."""
    note = note.strip()
    if not 1 <= len(note) <= NOTE_CHARACTERS_MAX:
        raise InvalidError(f"a note has 1 to {NOTE_CHARACTERS_MAX} characters", "note")
    deliveries = deliveries_in(runtime, by.tenant_id, outbox)
    await by.commit(
        lambda tx: deliveries.resolve(delivery_id, note, tx), details={"outbox": outbox, "note": note}
    )
    return row(await get(runtime, by.tenant_id, outbox, delivery_id), outbox)
