"""The chats that the bot knows: their names, whether it is in them, and when they were last told to wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.clock import Clock
from holdfast.errors import AlreadyExistsError
from holdfast.services.c4lendar.incoming import Incoming
from holdfast.services.c4lendar.models import BotChat
from holdfast.store import Store, Transaction, create, put

NOTICE_S: Final = 3_600.0


class KnownChats:
    """Remembers chats as messages come from them; who may use the bot is for operations to say."""

    def __init__(self, store: Store, *, owner_id: int, clock: Clock) -> None:
        self._store, self._owner_id, self._clock = store, owner_id, clock

    async def remember(self, incoming: Incoming) -> BotChat:
        """Return the chat of a message; a new one waits for approval."""
        store, now = self._store.tenant(incoming.tenant_id), self._clock.now()
        stored = await store.get(BotChat, incoming.tenant_id)
        if stored is not None:
            return await self._named(stored.doc, incoming)
        # The owner's own chat needs nobody's approval.
        own = incoming.private and incoming.user_id == self._owner_id
        chat = BotChat(
            chat_id=incoming.tenant_id, title=incoming.chat_title[:200], kind=incoming.chat_kind,
            status="approved" if own else "pending", added_by=incoming.user_id, created_at=now,
            updated_at=now,
        )  # fmt: skip
        with suppress(AlreadyExistsError):
            await store.commit(create(chat))
        stored = await store.get(BotChat, incoming.tenant_id)
        return chat if stored is None else stored.doc

    async def _named(self, chat: BotChat, incoming: Incoming) -> BotChat:
        """The chat under its present name; one that was connected before anybody wrote has none yet."""
        title, kind = incoming.chat_title[:200], incoming.chat_kind
        if not title or (chat.title, chat.kind) == (title, kind):
            return chat
        await self._change(
            chat.chat_id, lambda stored: msgspec.structs.replace(stored, title=title, kind=kind)
        )
        return msgspec.structs.replace(chat, title=title, kind=kind)

    async def note_membership(self, incoming: Incoming) -> bool:
        """Note whether the bot is in the chat; False for an update that is older than the one noted."""

        def change(chat: BotChat) -> BotChat | None:
            if incoming.update_id < chat.member_update_id:
                return None
            back = "pending" if chat.status == "left" else chat.status
            status = back if incoming.present else "left"
            return msgspec.structs.replace(chat, status=status, member_update_id=incoming.update_id)

        return await self._change(incoming.tenant_id, change)

    async def note_notice(self, chat_id: str) -> bool:
        """Note that an unapproved chat is told to wait; False where it was told within the hour."""
        now = self._clock.now()

        def change(chat: BotChat) -> BotChat | None:
            if chat.noticed_at is not None and (now - chat.noticed_at).total_seconds() < NOTICE_S:
                return None
            return msgspec.structs.replace(chat, noticed_at=now)

        return await self._change(chat_id, change)

    async def _change(self, chat_id: str, change: Callable[[BotChat], BotChat | None]) -> bool:
        async def act(tx: Transaction) -> bool:
            stored = await tx.get(BotChat, chat_id)
            changed = change(stored.doc) if stored is not None else None
            if changed is None:
                return False
            tx.write(put(msgspec.structs.replace(changed, updated_at=self._clock.now())))
            return True

        return await self._store.tenant(chat_id).transact(act)
