"""The service's console pages: chats, and one chat with its accounts and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from holdfast.errors import NotFoundError
from holdfast.service import Page, PageRequest
from holdfast.services.c4lendar.models import ChatStatus
from holdfast.services.c4lendar.operations import ChatOperations
from holdfast.services.c4lendar.reports import account_statuses, event_row

ROWS: Final = 50
STATUSES: Final = get_args(ChatStatus)


class ChatViews:
    """Data of the pages."""

    def __init__(self, operations: ChatOperations, *, in_use: bool) -> None:
        self._operations, self._in_use = operations, in_use

    async def chats(self, ask: PageRequest) -> Mapping[str, Any]:
        status: Any = ask.choice("status", STATUSES, default="approved")
        page = await self._operations.chats(status, limit=ROWS, cursor=ask.cursor)
        rows = [(one, self._operations.zone_of(one).key) for one in page.docs]
        return {
            "rows": rows, "after": page.cursor, "status": status, "statuses": STATUSES,
            "in_use": self._in_use,
        }  # fmt: skip

    async def chat(self, ask: PageRequest) -> Mapping[str, Any]:
        chat_id = ask.path["chat_id"]
        chat = await self._operations.chat(chat_id)
        if chat is None:
            raise NotFoundError(f"the bot knows no chat {chat_id!r}")
        accounts = await self._operations.accounts(chat_id)
        recent = await self._operations.recent(chat_id)
        uids, events = [one.uid for one in recent], []
        for one in recent:
            mappings = await self._operations.mappings(chat_id, one.uid)
            statuses = account_statuses(one, mappings, accounts=accounts)
            events.append((event_row(one, mappings, uids=uids), statuses))
        return {
            "title": chat.title or chat_id, "chat": chat, "zone": self._operations.zone_of(chat).key,
            "accounts": accounts, "grants": await self._operations.grant_statuses(chat_id), "events": events,
            "failed": sum(status.status == "failed" for _, statuses in events for status in statuses),
        }  # fmt: skip


def pages_of(operations: ChatOperations, *, in_use: bool) -> list[Page]:
    """Return the service's pages."""
    views = ChatViews(operations, in_use=in_use)
    return [
        Page(
            path="", title="Chats", template="chats.html", data=views.chats, live=("c4lendar",), platform=True
        ),
        Page(
            path="/chats/{chat_id}", title="Chat", template="chat.html", data=views.chat, live=("c4lendar",),
            nav=False, platform=True,
        ),
    ]  # fmt: skip
