"""Acts on chats, their events and accounts; each and its audit event are one commit.

The bot acts for the people of a chat (`telegram:<user id>` in the audit trail), operators through HTTP,
commands and console. `key` identifies the act: repeated after a crash it finds its own effect and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from holdfast.errors import ConflictError, InvalidError, NotFoundError
from holdfast.ids import join_segments
from holdfast.kit.connections import Connection, Connections
from holdfast.kit.vault import Vault
from holdfast.operation import Operator, operation
from holdfast.services.c4lendar.domain.kv_layout import KvPair, KvRow
from holdfast.services.c4lendar.domain.parser import EventDetails
from holdfast.services.c4lendar.events import (
    UNDO_S,
    details_of,
    former_version,
    remember,
    uid_of,
    with_details,
)
from holdfast.services.c4lendar.incoming import Incoming
from holdfast.services.c4lendar.kv_store import KvReport, KvStore, Tell
from holdfast.services.c4lendar.models import (
    RECENT_MAX,
    REVOKED_S,
    BotChat,
    BotEvent,
    ChatStatus,
    EventMapping,
    GoogleConnection,
)
from holdfast.store import Query, QueryPage, Store, Transaction, delete, put

AREA: Final = "c4lendar"
BATCH: Final = 200
StartRun = Callable[[Transaction, Incoming], Awaitable[None]]


class ChatOperations:
    """The service's operations, and the reads of one chat.

    Example: `event = await operations.create_event(by, details, key=step.key)`
    """

    def __init__(
        self, store: Store, connections: Connections, *, vault: Vault, time_zone: str, start_run: StartRun
    ) -> None:
        self._store, self._connections, self.clock = store, connections, store.clock
        self._time_zone, self._start_run = time_zone, start_run
        self.kv = KvStore(store, vault, time_zone=time_zone)

    # -- the former store ---------------------------------------------------------------------------

    @operation("c4lendar.kv_imported", area=AREA, verb="import", needs="admin", platform=True)
    async def import_kv(self, by: Operator, rows: list[KvRow], *, tell: Tell | None = None) -> KvReport:
        """Import a Workers KV dump; what is stored already stays as it is."""
        await by.append(details={"pairs": len(rows)})
        return await self.kv.load(rows, tell=tell)

    @operation("c4lendar.kv_exported", area=AREA, verb="export", needs="admin", platform=True)
    async def export_kv(self, by: Operator, *, tokens: bool = False) -> list[KvPair]:
        """Return the store in Workers KV's layout; with `tokens`, those encrypted as the former bot did."""
        pairs = [pair async for pair in self.kv.dump(tokens=tokens)]
        await by.append(details={"pairs": len(pairs), "tokens": tokens})
        return pairs

    # -- chats --------------------------------------------------------------------------------------

    @operation("c4lendar.chat_approved", area=AREA, verb="approve", needs="admin", subject="chat_id")
    async def approve_chat(self, by: Operator, chat_id: str) -> BotChat:
        """Serve a chat from now on."""
        return await self._set_status(by, chat_id, "approved")

    @operation("c4lendar.chat_revoked", area=AREA, verb="revoke", needs="admin", subject="chat_id")
    async def revoke_chat(self, by: Operator, chat_id: str) -> BotChat:
        """Stop serving a chat; its events and accounts stay."""
        return await self._set_status(by, chat_id, "revoked")

    async def _set_status(self, by: Operator, chat_id: str, status: ChatStatus) -> BotChat:
        async def act(tx: Transaction) -> BotChat:
            chat = await self._chat(tx, chat_id)
            changed = msgspec.structs.replace(
                chat, status=status, approved_by=by.actor if status == "approved" else chat.approved_by,
                updated_at=self.clock.now(),
            )  # fmt: skip
            tx.write(put(changed))
            return changed

        return await by.commit(act)

    @operation("c4lendar.time_zone_set", area=AREA, verb="set", needs="admin", subject="chat_id")
    async def set_time_zone(self, by: Operator, chat_id: str, *, time_zone: str) -> BotChat:
        """Set the zone in which a chat's texts are read."""
        zone = find_zone(time_zone)

        async def act(tx: Transaction) -> BotChat:
            chat = await self._chat(tx, chat_id)
            changed = msgspec.structs.replace(chat, time_zone=zone, updated_at=self.clock.now())
            tx.write(put(changed))
            return changed

        return await by.commit(act, details={"timeZone": zone})

    async def _chat(self, tx: Transaction, chat_id: str) -> BotChat:
        stored = await tx.get(BotChat, chat_id)
        if stored is None:
            raise NotFoundError(f"the bot knows no chat {chat_id!r}; add it to the chat first")
        return stored.doc

    async def chat(self, chat_id: str) -> BotChat | None:
        stored = await self._store.tenant(chat_id).get(BotChat, chat_id)
        return None if stored is None else stored.doc

    def zone_of(self, chat: BotChat) -> ZoneInfo:
        """The zone of a chat, or the one of the settings."""
        return ZoneInfo(chat.time_zone or self._time_zone)

    async def chats(
        self, status: ChatStatus | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> QueryPage[BotChat]:
        """Chats, the last changed first."""
        query = Query(BotChat).order_by("-updated_at").limit(limit).after(cursor)
        if status is not None:
            query = query.where("status", "==", status)
        return await self._store.privileged().query(query)

    # -- events -------------------------------------------------------------------------------------

    @operation("c4lendar.event_created", area=AREA, verb="create", needs="admin")
    async def create_event(
        self, by: Operator, details: EventDetails, *, key: str, made_at: datetime, zone: ZoneInfo,
        user_id: int | None = None,
    ) -> BotEvent:  # fmt: skip
        """Make an event of the chat; its accounts get it next."""
        uid, now = uid_of(key, made_at), self.clock.now()
        blank = BotEvent(
            uid=uid, chat_id=by.tenant_id, title=details.title, time_zone=zone.key, changed_key=key,
            changed_by=user_id, changed_at=now, created_by=user_id, created_at=now, starts_at=now,
            expires_at=now,
        )  # fmt: skip
        event = with_details(blank, details)

        async def act(tx: Transaction) -> BotEvent | bool:
            if await tx.get(BotEvent, uid) is not None:
                return False
            tx.write(put(event))
            return event

        await by.commit(act, subject=uid, details={"title": details.title})
        return event

    @operation("c4lendar.event_changed", area=AREA, verb="change", needs="admin", subject="uid")
    async def change_event(
        self, by: Operator, uid: str, *, details: EventDetails, key: str, version: int,
        user_id: int | None = None,
    ) -> BotEvent:  # fmt: skip
        """Change an event that has this version; ConflictError when it was changed meanwhile."""
        return await self._change(by, uid, key=key, version=version, user_id=user_id, details=details)

    @operation("c4lendar.event_deleted", area=AREA, verb="delete", needs="admin", subject="uid")
    async def delete_event(self, by: Operator, uid: str, *, key: str, user_id: int | None = None) -> BotEvent:
        """Delete an event; its accounts lose it next."""
        return await self._change(by, uid, key=key, user_id=user_id, deleted=True)

    @operation("c4lendar.change_undone", area=AREA, verb="undo", needs="admin", subject="uid")
    async def undo(self, by: Operator, uid: str, *, key: str, user_id: int | None = None) -> BotEvent:
        """Take the last change of an event back, within ten minutes; a new event is deleted."""
        event = await self.event(by.tenant_id, uid)
        if event.changed_key == key:
            return event
        if (self.clock.now() - event.changed_at).total_seconds() > UNDO_S:
            raise ConflictError("the last change is older than 10 minutes; use #alt or #del")
        former = former_version(event)
        if former is None:
            return await self._change(by, uid, key=key, user_id=user_id, deleted=True, version=event.version)
        return await self._change(
            by, uid, key=key, user_id=user_id, deleted=former.deleted, details=details_of(former),
            version=event.version,
        )  # fmt: skip

    @operation("c4lendar.event_retried", area=AREA, verb="retry", needs="admin", subject="uid")
    async def retry_event(self, by: Operator, uid: str) -> BotEvent:
        """Bring an event into the accounts that failed now, and correct the bot's message about it."""
        event = await self.event(by.tenant_id, uid)
        incoming = Incoming(kind="retry", chat_id=int(event.chat_id), user_id=0, text=uid)
        await by.commit(lambda tx: self._start_run(tx, incoming))
        return event

    async def _change(
        self, by: Operator, uid: str, *, key: str, user_id: int | None, details: EventDetails | None = None,
        deleted: bool = False, version: int | None = None,
    ) -> BotEvent:  # fmt: skip
        async def act(tx: Transaction) -> BotEvent | bool:
            stored = await tx.get(BotEvent, uid)
            if stored is None:
                raise NotFoundError(f"no event {uid}")
            event = stored.doc
            if event.changed_key == key:
                return False
            if version is not None and event.version != version:
                raise ConflictError("the event was changed by somebody else meanwhile; look at it and repeat")
            changed = msgspec.structs.replace(
                event, deleted=deleted, version=event.version + 1, before=remember(event), changed_key=key,
                changed_by=user_id, changed_at=self.clock.now(),
            )  # fmt: skip
            changed = with_details(changed, details or details_of(event))
            tx.write(put(changed))
            return changed

        await by.commit(act, details={} if details is None else {"title": details.title})
        return await self.event(by.tenant_id, uid)

    async def event(self, chat_id: str, uid: str) -> BotEvent:
        """An event of a chat, also a deleted one."""
        stored = await self._store.tenant(chat_id).get(BotEvent, uid)
        if stored is None:
            raise NotFoundError(f"no event {uid}")
        return stored.doc

    async def changed_by_act(self, chat_id: str, key: str) -> BotEvent | None:
        """The event that an act has changed, when it was done before a crash."""
        query = Query(BotEvent).where("changed_key", "==", key).limit(1)
        return next(iter((await self._store.tenant(chat_id).query(query)).docs), None)

    async def recent(self, chat_id: str, *, limit: int = RECENT_MAX, deleted: bool = False) -> list[BotEvent]:
        """The newest events of a chat, newest first."""
        query = Query(BotEvent).order_by("-created_at")
        found: list[BotEvent] = []
        async for one in self._store.tenant(chat_id).scan(query):
            if deleted or not one.doc.deleted:
                found.append(one.doc)
            if len(found) == limit:
                break
        return found

    async def starting(self, chat_id: str, *, since: datetime, until: datetime) -> list[BotEvent]:
        """Events of a chat that start in this span, in order."""
        query = (
            Query(BotEvent)
            .where("starts_at", ">=", since)
            .where("starts_at", "<", until)
            .order_by("starts_at")
        )
        found = [one.doc async for one in self._store.tenant(chat_id).scan(query)]
        return [event for event in found if not event.deleted]

    async def mappings(self, chat_id: str, uid: str) -> list[EventMapping]:
        """An event's rows of `event_map`."""
        query = Query(EventMapping).where("bot_event_uid", "==", uid)
        return [one.doc async for one in self._store.tenant(chat_id).scan(query)]

    # -- accounts -----------------------------------------------------------------------------------

    @operation(
        "c4lendar.account_disconnected", area=AREA, verb="disconnect", needs="admin", subject="google_sub"
    )
    async def disconnect(self, by: Operator, google_sub: str) -> GoogleConnection:
        """Disconnect an account from this chat; the grant ends at Google when no other chat uses it."""
        id = join_segments(by.tenant_id, google_sub)

        async def act(tx: Transaction) -> GoogleConnection | bool:
            stored = await tx.get(GoogleConnection, id)
            if stored is None:
                raise NotFoundError("this account is not connected to the chat")
            if stored.doc.revoked:
                return False
            now = self.clock.now()
            changed = msgspec.structs.replace(
                stored.doc, revoked=1, updated_at=now, purge_at=now + timedelta(seconds=REVOKED_S)
            )
            tx.write(put(changed))
            await self._connections.end(tx, changed.connection_id, reason="disconnected from the chat")
            return changed

        await by.commit(act, across=True)
        stored = await self._store.tenant(by.tenant_id).get(GoogleConnection, id)
        assert stored is not None
        await self._connections.notify_provider(await self._connections.get(stored.doc.connection_id))
        await self._delete_mappings(by.tenant_id, google_sub)
        return stored.doc

    async def _delete_mappings(self, chat_id: str, google_sub: str) -> None:
        store = self._store.tenant(chat_id)
        query = Query(EventMapping).where("google_sub", "==", google_sub).limit(BATCH)
        while rows := (await store.query(query)).docs:
            await store.commit(*(delete(EventMapping, row.id) for row in rows))

    async def accounts(self, chat_id: str, *, revoked: bool = False) -> list[GoogleConnection]:
        query = Query(GoogleConnection).where("revoked", "==", int(revoked))
        found = [one.doc async for one in self._store.tenant(chat_id).scan(query)]
        return sorted(found, key=lambda one: one.google_email)

    async def grant_statuses(self, chat_id: str) -> dict[str, str]:
        """The status of the grant of each account in a chat, by `google_sub`."""
        accounts = await self.accounts(chat_id)
        ids = {one.connection_id: one.google_sub for one in accounts if one.connection_id}
        found = await self._store.privileged().get_many(Connection, list(ids)) if ids else []
        return {ids[one.doc.id]: one.doc.status for one in found if one is not None}


def find_zone(text: str) -> str:
    """The IANA name of a zone, in any case; the last part alone will do where it is unique."""
    wanted = text.strip().replace(" ", "_").lower()
    names = available_timezones()
    exact = [name for name in names if name.lower() == wanted]
    cities = [name for name in names if name.lower().rpartition("/")[2] == wanted]
    found: list[Any] = exact or cities
    if len(found) != 1:
        raise InvalidError(f"{text.strip()[:60]!r} is no time zone; for example Europe/Berlin", "time_zone")
    return str(found[0])
