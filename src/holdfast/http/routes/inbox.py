"""Routes for the inbox."""

from __future__ import annotations

from typing import Final

from litestar.params import FromPath, FromQuery, JSONBody

from holdfast.http.dependencies import RuntimeDependency
from holdfast.idempotent_route import ATOMIC
from holdfast.kit.inbox.models import Status
from holdfast.operations import inbox
from holdfast.operations.inbox import InboxPage, InboxReplay, InboxReplays
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route


class ReplayMessages(RequestBody, frozen=True):
    ids: inbox.Selection
    dry_run: bool = False


@read_route("/inbox", "admin", area="inbox", all_tenants=True)
async def list_messages(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    status: FromQuery[Status] = "pending",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> InboxPage:
    """Messages of one status, newest first."""
    return await inbox.list_messages(runtime, tenant_id, status=status, limit=limit, cursor=cursor)


@action_route("/inbox/{item_id:str}/replay", inbox.replay, idempotent=ATOMIC)
async def replay(runtime: RuntimeDependency, by: By, item_id: FromPath[str]) -> InboxReplay:
    """Let a finished or parked message be worked on again."""
    return await inbox.replay(runtime, by, item_id)


@action_route("/inbox/replay", inbox.replay_selection)
async def replay_selection(
    runtime: RuntimeDependency, by: By, data: JSONBody[ReplayMessages]
) -> InboxReplays:
    """Let finished or parked messages be worked on again; those that wait already stay as they are."""
    return await inbox.replay_selection(runtime, by, data.ids, dry_run=data.dry_run)


ROUTES: Final = (list_messages, replay, replay_selection)
