"""What came in, and working on it again."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from litestar.params import FromPath, FromQuery

from holdfast.errors import NotFoundError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.inbox import InboxItem
from holdfast.kit.inbox.models import Status
from holdfast.operations.act import run_audited
from holdfast.routing import Actor, Cursor, Limit, TenantId, action_route, read_route


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message without its body, which may hold what only the service should see."""

    id: str
    source: str
    message_id: str
    status: Status
    reason: str
    tries: int
    received_at: datetime
    due_at: datetime | None
    finished_at: datetime | None


class InboxPage(msgspec.Struct, frozen=True):
    items: list[InboxRow]
    cursor: str | None


class Again(msgspec.Struct, frozen=True):
    id: str
    replayed: bool


def row(item: InboxItem) -> InboxRow:
    return InboxRow(**{name: getattr(item, name) for name in InboxRow.__struct_fields__})


@read_route("/inbox", "admin", area="inbox")
async def inbox(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    status: FromQuery[Status] = "pending",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> InboxPage:
    """Messages of one status, newest first."""
    items, after = await runtime.inbox.page(status, tenant_id=tenant_id, limit=limit, cursor=cursor)
    return InboxPage([row(item) for item in items], after)


@action_route("/inbox/{item_id:str}/replay", "admin", area="inbox", action="replay")
async def replay(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    actor: Actor,
    item_id: FromPath[str],
) -> Again:
    """Let a finished or parked message be worked on again."""
    if await runtime.store.tenant(tenant_id).get(InboxItem, item_id) is None:
        raise NotFoundError(f"no message {item_id!r}")
    again = await run_audited(
        runtime, tenant_id, lambda tx: runtime.inbox.replay_one(item_id, tx), actor=actor,
        action="inbox.replayed", subject=item_id,
    )  # fmt: skip
    return Again(item_id, again)


ROUTES: Final = (inbox, replay)
