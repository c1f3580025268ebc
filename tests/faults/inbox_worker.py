"""What a process does that takes a large message in while a test kills it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.kit.inbox import InboxChunk, InboxItem, InboxQueue, InboxUpload
from holdfast.kit.inbox.body import store_body
from holdfast.model import Document
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.store_opener import opener

ALL: list[type[Document]] = [InboxItem, InboxQueue, InboxChunk, InboxUpload]
BODY = bytes(range(256)) * 12_000

opened = opener(ALL)


async def upload(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Stores every chunk, tells, and never commits the item."""
    async with opened(order["url"]) as store:
        item = InboxItem.received(tenant_id="-", source="s", message_id="m", received_at=store.clock.now())
        await store_body(store.privileged(), item, BODY)
        say("stored")
        await hear()


ROLES: dict[str, Role] = {"upload": upload}
