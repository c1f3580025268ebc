"""Signals and the queue over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId
from holdfast.services.gwi.candidate_revision import PatchRequest
from holdfast.services.gwi.domain.patches import ChangePlan
from holdfast.services.gwi.domain.subjects import SignalSource, WorkType
from holdfast.services.gwi.models.work import (
    Candidate,
    SignalContext,
    SignalStatus,
    WorkItem,
    WorkSignal,
    WorkStatus,
)
from holdfast.services.gwi.operations.candidates import Candidates
from holdfast.services.gwi.operations.queue import (
    ITEMS_MAX,
    REASON_CHARACTERS_MAX,
    ItemChange,
    QueueFilter,
    QueueStats,
    WorkQueue,
)
from holdfast.services.gwi.operations.signals import BATCH, ProcessReport, Signals
from holdfast.services.gwi.routes.dependencies import REPEATABLE, TENANT, Operations, action_route, read_route

WORK_PATH: Final = "/v1/tenants/{tenant:str}"
_SIGNALS: Final = f"{WORK_PATH}/signals"
_QUEUE: Final = f"{WORK_PATH}/queue"
_ITEM: Final = f"{_QUEUE}/{{item_id:str}}"
PROCESS_S: Final = 120.0
ExternalId = Annotated[str, Meta(min_length=1, max_length=300)]


class SignalRequest(RequestBody, frozen=True):
    """A signal of one's own; `externalId` is unique among those of its source."""

    external_id: ExternalId
    context: SignalContext
    source: SignalSource = "api"
    occurred_at: datetime | None = None
    payload: dict[str, Any] = {}


class SignalsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of signals."""

    signals: list[WorkSignal]
    cursor: str | None


class QueueResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of work items."""

    items: list[WorkItem]
    cursor: str | None


class DismissRequest(RequestBody, frozen=True):
    """Why nobody is going to do it."""

    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] = ""


class BulkRequest(RequestBody, frozen=True):
    """Items to change alike, all or none."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=ITEMS_MAX)]
    change: ItemChange


class CandidateRequest(RequestBody, frozen=True):
    """A plan, a patch or both; without a plan the usual one is made."""

    plan: ChangePlan | None = None
    patch: PatchRequest | None = None


@read_route(_SIGNALS, tenant=TENANT)
async def signals(
    operations: Operations,
    tenant_id: TenantId,
    status: FromQuery[SignalStatus | None] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> SignalsResponse:
    """The signals, the newest first."""
    page = await operations.signals.page(tenant_id, status=status, limit=limit, cursor=cursor)
    return SignalsResponse(signals=page.docs, cursor=page.cursor)


@action_route(_SIGNALS, Signals.record, tenant=TENANT, status=201)
async def record(operations: Operations, by: By, data: JSONBody[SignalRequest]) -> WorkSignal:
    """Record a signal, which is processed soon after."""
    return await operations.signals.record(
        by, source=data.source, external_id=data.external_id, context=data.context,
        occurred_at=data.occurred_at, payload=data.payload,
    )  # fmt: skip


@action_route(
    f"{_SIGNALS}/process", Signals.process, tenant=TENANT, idempotent=REPEATABLE, time_limit_s=PROCESS_S
)
async def process(
    operations: Operations, by: By, limit: Annotated[int, QueryParameter(ge=1, le=500)] = BATCH
) -> ProcessReport:
    """Turn pending signals into work items now, the oldest first."""
    return await operations.signals.process(by, limit=limit)


@read_route(f"{_SIGNALS}/{{signal_id:str}}", tenant=TENANT)
async def signal(operations: Operations, tenant_id: TenantId, signal_id: FromPath[str]) -> WorkSignal:
    """One signal."""
    return await operations.signals.get(tenant_id, signal_id)


@action_route(f"{_SIGNALS}/{{signal_id:str}}/retry", Signals.retry, tenant=TENANT)
async def retry(operations: Operations, by: By, signal_id: FromPath[str]) -> WorkSignal:
    """Have a failed signal processed again."""
    return await operations.signals.retry(by, signal_id)


@read_route(_QUEUE, tenant=TENANT)
async def queue(
    operations: Operations,
    tenant_id: TenantId,
    status: Annotated[
        list[WorkStatus] | None, QueryParameter(description="Items in these states; live ones by default.")
    ] = None,
    type: FromQuery[WorkType | None] = None,
    repo: Annotated[str | None, QueryParameter(description="Of this repository, owner/name.")] = None,
    assignee: Annotated[str | None, QueryParameter(description="Assigned to this person.")] = None,
    min_score: Annotated[
        int | None, QueryParameter(name="minScore", ge=0, le=100, description="With at least this score.")
    ] = None,
    snoozed: Annotated[bool, QueryParameter(description="Those that are snoozed, too.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> QueueResponse:
    """The work items by score, the highest first."""
    chosen = QueueFilter(
        statuses=tuple(dict.fromkeys(status or ())), type=type, repo=repo, assignee=assignee,
        min_score=min_score, snoozed=snoozed,
    )  # fmt: skip
    page = await operations.queue.page(tenant_id, chosen, limit=limit, cursor=cursor)
    return QueueResponse(items=page.docs, cursor=page.cursor)


@read_route(f"{_QUEUE}/stats", tenant=TENANT)
async def stats(operations: Operations, tenant_id: TenantId) -> QueueStats:
    """How many items there are, by status and type."""
    return await operations.queue.stats(tenant_id)


@action_route(f"{_QUEUE}/bulk", WorkQueue.change, tenant=TENANT)
async def bulk(operations: Operations, by: By, data: JSONBody[BulkRequest]) -> QueueResponse:
    """Assign, snooze, date or move some items, all or none of them."""
    items = await operations.queue.change(by, data.ids, data.change)
    return QueueResponse(items=items, cursor=None)


@read_route(_ITEM, tenant=TENANT)
async def item(operations: Operations, tenant_id: TenantId, item_id: FromPath[str]) -> WorkItem:
    """One work item."""
    return await operations.queue.get(tenant_id, item_id)


@action_route(_ITEM, WorkQueue.change, tenant=TENANT)
async def change(
    operations: Operations, by: By, item_id: FromPath[str], data: JSONBody[ItemChange]
) -> WorkItem:
    """Assign, snooze, date or move one item."""
    (changed,) = await operations.queue.change(by, [item_id], data)
    return changed


@action_route(f"{_ITEM}/dismiss", WorkQueue.dismiss, tenant=TENANT)
async def dismiss(
    operations: Operations, by: By, item_id: FromPath[str], data: JSONBody[DismissRequest]
) -> WorkItem:
    """Dismiss an item."""
    return await operations.queue.dismiss(by, item_id, reason=data.reason)


@action_route(f"{_ITEM}/candidate", Candidates.create, tenant=TENANT, status=201)
async def propose(
    operations: Operations, by: By, item_id: FromPath[str], data: JSONBody[CandidateRequest]
) -> Candidate:
    """Propose a change: ready to be voted on with a patch, else a draft."""
    return await operations.candidates.create(by, item_id, plan=data.plan, patch=data.patch)


ROUTES: Final = (
    signals, record, process, signal, retry, queue, stats, bulk, item, change, dismiss, propose,
)  # fmt: skip
