"""Routes for dead letters, over all outboxes."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import FromPath, JSONBody, QueryParameter

from holdfast.http.dependencies import OutboxName, RuntimeDependency
from holdfast.idempotent_route import ATOMIC, REPEATABLE
from holdfast.kit.outbox import Report
from holdfast.operations import dead_letters
from holdfast.operations.dead_letters import DeadLetterPage, DeadLetterResponse, ResolutionNote
from holdfast.operations.deliveries import ReplayResponse
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route
from holdfast.runtime import KIT_PART

_LETTER: Final = "/dead-letters/{outbox:str}/{delivery_id:str}"


class ReplayRequest(RequestBody, frozen=True):
    """Which dead letters; without `dryRun: false` the response only says what would happen."""

    dry_run: bool = True
    endpoint_id: str | None = None
    event_type: str | None = None


class ResolveRequest(RequestBody, frozen=True):
    """`note` says how it was resolved."""

    note: ResolutionNote


@read_route("/dead-letters", area="dead-letters", all_tenants=True)
async def list_dead_letters(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    outbox: OutboxName = KIT_PART,
    resolved: Annotated[bool, QueryParameter(description="Those that were resolved, instead.")] = False,
    endpoint: Annotated[str | None, QueryParameter(max_length=200)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DeadLetterPage:
    """Dead letters of one outbox, newest first."""
    return await dead_letters.list_dead_letters(
        runtime, tenant_id, outbox, resolved=resolved, endpoint_id=endpoint, limit=limit, cursor=cursor
    )


@action_route("/dead-letters/{outbox:str}/replay", dead_letters.replay_all, idempotent=REPEATABLE)
async def replay_dead_letters(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], data: JSONBody[ReplayRequest]
) -> Report:
    """Send dead letters again, at most a thousand at a time; says what it did, or would do."""
    return await dead_letters.replay_all(
        runtime, by, outbox, endpoint_id=data.endpoint_id, event_type=data.event_type, dry_run=data.dry_run
    )


@action_route(f"{_LETTER}/replay", dead_letters.replay, idempotent=ATOMIC)
async def replay_dead_letter(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], delivery_id: FromPath[str]
) -> ReplayResponse:
    """Send one again, under its old event id with its old body; `replayed` is false where that was done."""
    return await dead_letters.replay(runtime, by, outbox, delivery_id)


@action_route(f"{_LETTER}/resolve", dead_letters.resolve)
async def resolve_dead_letter(
    runtime: RuntimeDependency,
    by: By,
    outbox: FromPath[str],
    delivery_id: FromPath[str],
    data: JSONBody[ResolveRequest],
) -> DeadLetterResponse:
    """Mark one as resolved without sending it."""
    return await dead_letters.resolve(runtime, by, outbox, delivery_id, note=data.note)


ROUTES: Final = (list_dead_letters, replay_dead_letters, replay_dead_letter, resolve_dead_letter)
