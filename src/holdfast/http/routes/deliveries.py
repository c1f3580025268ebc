"""What went out and what did not; dead letters; replaying."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from holdfast.errors import NotFoundError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.audit import Audit, AuditEntry
from holdfast.kit.outbox import Attempt, DeadLetter, Deliveries, Delivery, Report, Selection
from holdfast.kit.outbox.models import UNDELIVERED, DeliveryStatus
from holdfast.operations.act import run_audited
from holdfast.routing import Actor, Cursor, Limit, TenantId, action_route, read_route
from holdfast.runtime import Runtime
from holdfast.store import Transaction

REPLAY_MAX: Final = 1_000


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    event_id: str
    event_type: str
    endpoint_id: str
    status: DeliveryStatus
    reason: str
    attempt_count: int
    replay_count: int
    created_at: datetime
    next_attempt_at: datetime | None
    last_status: int | None
    finished_at: datetime | None


class DeliveryDetail(DeliveryRow, frozen=True, kw_only=True, rename="camel"):
    """A delivery with all that became of it; `body` is text, or base64 where it is none."""

    occurred_at: datetime
    content_type: str
    body: str
    body_is_base64: bool
    attempts: list[Attempt]


class DeliveryPage(msgspec.Struct, frozen=True):
    items: list[DeliveryRow]
    cursor: str | None


class DeadLetterPage(msgspec.Struct, frozen=True):
    items: list[DeadLetter]
    cursor: str | None


class ReplayResponse(msgspec.Struct, frozen=True):
    id: str
    replayed: bool


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which dead letters; without `dryRun: false` it is only told what would happen."""

    dry_run: bool = True
    endpoint_id: str | None = None
    event_type: str | None = None


def row(delivery: Delivery) -> DeliveryRow:
    return DeliveryRow(**{name: getattr(delivery, name) for name in DeliveryRow.__struct_fields__})


def detail(delivery: Delivery) -> DeliveryDetail:
    try:
        body, coded = delivery.body.decode(), False
    except UnicodeDecodeError:
        body, coded = base64.b64encode(delivery.body).decode(), True
    return DeliveryDetail(
        **msgspec.structs.asdict(row(delivery)), occurred_at=delivery.occurred_at,
        content_type=delivery.content_type, body=body, body_is_base64=coded, attempts=delivery.attempts,
    )  # fmt: skip


async def replay_letters(
    runtime: Runtime, tenant_id: str, selection: Selection, *, actor: str, dry_run: bool, limit: int | None
) -> Report:
    """Put them out again; each commit that does has its entry on the audit trail."""
    audit = Audit(runtime.store, tenant_id)

    async def put_on_record(tx: Transaction, count: int) -> None:
        await audit.add(tx, AuditEntry(
            action="dead_letters.replayed", actor=actor, subject=selection.endpoint_id or "",
            details={"changed": count},
        ))  # fmt: skip

    return await _ledger(runtime, tenant_id).replay(
        selection, dry_run=dry_run, limit=limit, also=put_on_record
    )


def _ledger(runtime: Runtime, tenant_id: str) -> Deliveries:
    return Deliveries(runtime.store.tenant(tenant_id))


@read_route("/deliveries", "viewer", area="deliveries")
async def deliveries(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    status: Annotated[
        list[DeliveryStatus] | None, QueryParameter(description="Default: undelivered.")
    ] = None,
    endpoint: Annotated[str | None, QueryParameter(max_length=200)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DeliveryPage:
    """Deliveries, newest first."""
    selection = Selection(statuses=status or UNDELIVERED, endpoint_id=endpoint)
    page = await _ledger(runtime, tenant_id).find(selection, limit=limit, cursor=cursor)
    return DeliveryPage([row(doc) for doc in page.docs], page.cursor)


@read_route("/deliveries/{delivery_id:str}", "viewer", area="deliveries")
async def delivery(
    runtime: RuntimeDependency, tenant_id: TenantId, delivery_id: FromPath[str]
) -> DeliveryDetail:
    """One delivery, with its payload and every attempt."""
    found = await runtime.store.tenant(tenant_id).get(Delivery, delivery_id)
    if found is None:
        raise NotFoundError(f"no delivery {delivery_id!r}")
    return detail(found.doc)


@action_route("/deliveries/{delivery_id:str}/replay", "admin", area="deliveries", action="replay")
async def replay(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    delivery_id: FromPath[str],
) -> ReplayResponse:
    """Put one out again, under its old id with its old body; `replayed` is false where it is on its way."""
    ledger = _ledger(runtime, tenant_id)
    done = await run_audited(
        runtime, tenant_id, lambda tx: ledger.replay_one(delivery_id, tx), actor=actor,
        action="delivery.replayed", subject=delivery_id,
    )  # fmt: skip
    return ReplayResponse(delivery_id, done)


@read_route("/dead-letters", "viewer", area="dead-letters")
async def dead_letters(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    resolved: FromQuery[bool] = False,
    endpoint: Annotated[str | None, QueryParameter(max_length=200)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DeadLetterPage:
    """What was given up, newest first."""
    page = await _ledger(runtime, tenant_id).dead_letters(
        resolved=resolved, endpoint_id=endpoint, limit=limit, cursor=cursor
    )
    return DeadLetterPage(list(page.docs), page.cursor)


@action_route("/dead-letters/replay", "admin", area="dead-letters", action="replay")
async def replay_dead(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    data: JSONBody[ReplayRequest],
) -> Report:
    """Put dead letters out again, at most a thousand at a time; says what it did, or would do."""
    selection = Selection(statuses=["dead"], endpoint_id=data.endpoint_id, event_type=data.event_type)
    return await replay_letters(
        runtime, tenant_id, selection, actor=actor, dry_run=data.dry_run, limit=REPLAY_MAX
    )


ROUTES: Final = (deliveries, delivery, replay, dead_letters, replay_dead)
