"""The inbox: list messages by status, show one, replay one or a selection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.inbox import InboxItem
from holdfast.kit.inbox.models import Status
from holdfast.operation import Operator, operation
from holdfast.runtime import Runtime

SELECTION_MAX: Final = 500

Selection = Annotated[list[str], msgspec.Meta(min_length=1, max_length=SELECTION_MAX)]


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message without its body, which may hold what only the service should see."""

    id: str
    tenant_id: str
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


class InboxReplay(msgspec.Struct, frozen=True):
    id: str
    replayed: bool


class InboxReplays(msgspec.Struct, frozen=True, rename="camel"):
    """The messages that are due again, or would be in a dry run, and the ids nothing is stored under."""

    replayed: list[str]
    missing: list[str]
    dry_run: bool


async def list_messages(
    runtime: Runtime, tenant_id: str, *, status: Status, limit: int = 50, cursor: str | None = None
) -> InboxPage:
    """Messages of one status, newest first."""
    of = None if tenant_id == ALL_TENANTS else tenant_id
    items, after = await runtime.inbox.page(status, tenant_id=of, limit=limit, cursor=cursor)
    return InboxPage([msgspec.convert(item, InboxRow, from_attributes=True) for item in items], after)


async def get(runtime: Runtime, tenant_id: str, item_id: str) -> InboxItem:
    """Return one message as it is stored, or raise NotFoundError."""
    stored = await runtime.store_of(tenant_id).get(InboxItem, item_id)
    if stored is None:
        raise NotFoundError(f"no message {item_id!r} here; it may belong to another tenant")
    return stored.doc


@operation("inbox.replayed", area="inbox", verb="replay", needs="admin", subject="item_id")
async def replay(runtime: Runtime, by: Operator, item_id: str) -> InboxReplay:
    """Let a finished or parked message be worked on again."""
    await get(runtime, by.tenant_id, item_id)
    replayed = await by.commit(lambda tx: runtime.inbox.replay_one(item_id, tx))
    return InboxReplay(item_id, replayed)


@operation("inbox.replayed", area="inbox", verb="replay", needs="admin")
async def replay_selection(
    runtime: Runtime, by: Operator, ids: Sequence[str], *, dry_run: bool = False
) -> InboxReplays:
    """Let finished or parked messages be worked on again, each in its own commit."""
    stored = await runtime.store.tenant(by.tenant_id).get_many(InboxItem, ids)
    missing = [id for id, one in zip(ids, stored, strict=True) if one is None]
    replayed = await runtime.inbox.replay([one.doc.id for one in stored if one], dry_run=True)
    if not dry_run:
        replayed = [id for id in replayed if await _replay_one(runtime, by, id)]
    return InboxReplays(replayed, missing, dry_run)


async def _replay_one(runtime: Runtime, by: Operator, item_id: str) -> bool:
    return await by.commit(lambda tx: runtime.inbox.replay_one(item_id, tx), subject=item_id)
