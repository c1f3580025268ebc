"""Import of a Workers KV dump into the store, and export in its layout; neither changes its source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from holdfast.errors import DecryptionError, InvalidError
from holdfast.ids import join_segments
from holdfast.kit.connections import Connection, connection_id
from holdfast.kit.vault import Vault
from holdfast.projection import project
from holdfast.services.c4lendar.domain.kv_layout import (
    UNKNOWN_SUB,
    KvConnection,
    KvMapping,
    KvOldTokens,
    KvPair,
    KvRow,
    index_pairs,
    value_pair,
)
from holdfast.services.c4lendar.domain.local_time import add_elapsed
from holdfast.services.c4lendar.domain.parser import DEFAULT_LENGTH, DEFAULT_TITLE, EventDetails
from holdfast.services.c4lendar.events import with_details
from holdfast.services.c4lendar.models import (
    MAPPING_S,
    REVOKED_S,
    BotChat,
    BotEvent,
    EventMapping,
    GoogleConnection,
)
from holdfast.store import Query, Store, Transaction, Write, put

PROVIDER: Final = "google"
BATCH: Final = 50
Tell = Callable[[int, int], None]


class ChatReport(msgspec.Struct, kw_only=True, rename="camel"):
    """What an import stored for one chat; what was there already is unchanged."""

    accounts: int = 0
    events: int = 0
    unchanged: int = 0


class KvReport(msgspec.Struct, kw_only=True, rename="camel"):
    """What became of a dump's pairs."""

    pairs: int = 0
    chats: dict[str, ChatReport] = {}
    skipped: dict[str, int] = {}
    faults: list[str] = []


class KvStore:
    """Reads and writes the layout of the bot's former store.

    Example: `report = await KvStore(store, vault, time_zone="UTC").load(read_pairs(content))`
    """

    def __init__(self, store: Store, vault: Vault, *, time_zone: str) -> None:
        self._store, self._clock, self._zone = store, store.clock, time_zone
        self._vault, self._token = vault, vault.field(Connection, "refresh_token")

    async def load(self, rows: list[KvRow], *, tell: Tell | None = None) -> KvReport:
        """Store a dump's rows; a second time changes nothing, and a bad row does not stop the rest."""
        report = KvReport(pairs=len(rows))
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            # At once: the engine takes waiting commits together.
            faults = await asyncio.gather(*(self._load(row, report) for row in batch))
            report.faults += [fault for fault in faults if fault]
            if tell is not None:
                tell(start + len(batch), len(rows))
        return report

    def _expired(self, row: KvRow) -> str:
        expires_s = row.expiration
        return "expired" if expires_s is not None and expires_s <= self._clock.now().timestamp() else ""

    async def _load(self, row: KvRow, report: KvReport) -> str:
        """Store a row, and return what is wrong with it."""
        if row.fault:
            return f"{row.number}: {row.key or 'no key'}: {row.fault}"
        if reason := row.skipped or self._expired(row):
            report.skipped[reason] = report.skipped.get(reason, 0) + 1
            return ""
        chat = report.chats.setdefault(row.chat_id, ChatReport())
        try:
            if isinstance(row.value, KvMapping):
                stored = await self._transact(row.chat_id, self._mapping_writes, row.value)
                chat.events += stored
            else:
                account = _account(row.value, row.chat_id, self._clock.now())
                stored = await self._transact(row.chat_id, self._account_writes, account)
                chat.accounts += stored
            chat.unchanged += not stored
        except (DecryptionError, InvalidError, ValueError) as fault:
            return f"{row.number}: {row.key}: {fault}"
        return ""

    async def _transact(self, chat_id: str, act: Callable[..., object], value: object) -> bool:
        async def both(tx: Transaction) -> bool:
            writes: list[Write] = await act(tx, value)  # type: ignore[misc]
            if writes and await tx.get(BotChat, chat_id) is None:
                now = self._clock.now()
                # It was served before, so it is served now.
                chat = BotChat(chat_id=chat_id, kind="", status="approved", created_at=now, updated_at=now)
                tx.write(put(chat))
            tx.write(*writes)
            return bool(writes)

        return await self._store.tenant(chat_id).transact(both)

    async def _account_writes(self, tx: Transaction, account: tuple[GoogleConnection, str]) -> list[Write]:
        row, plain = account
        id = connection_id(row.chat_id, PROVIDER, row.google_sub)
        if await tx.get(GoogleConnection, join_segments(row.chat_id, row.google_sub)) is not None:
            return []
        token = self._token.seal(plain, id) if plain else row.refresh_token_encrypted
        if not row.revoked:
            self._token.open(token, id)
        connection = Connection(
            id=id, tenant_id=row.chat_id, provider=PROVIDER, account=row.google_sub, name=row.google_email,
            purpose="c4lendar", scopes=row.scopes.split(), asked=row.scopes.split(), refresh_token=token,
            status="connected", connected_at=row.created_at,
        )  # fmt: skip
        if row.revoked:
            purge_at = row.updated_at + timedelta(seconds=REVOKED_S)
            return [put(msgspec.structs.replace(row, refresh_token_encrypted="", purge_at=purge_at))]
        kept = msgspec.structs.replace(row, refresh_token_encrypted="", connection_id=id)
        return [put(kept), put(connection)]

    async def _mapping_writes(self, tx: Transaction, value: KvMapping) -> list[Write]:
        if await tx.get(EventMapping, join_segments(value.chat_id, value.bot_event_uid, value.google_sub)):
            return []
        created, updated = _instant(value.created_at), _instant(value.updated_at)
        row = project(value, EventMapping, version=1, created_at=created, updated_at=updated)
        if await tx.get(BotEvent, value.bot_event_uid) is not None:
            return [put(row)]
        return [put(row), put(self._event(value, created, updated))]

    def _event(self, value: KvMapping, created: datetime, updated: datetime) -> BotEvent:
        blank = BotEvent(
            uid=value.bot_event_uid, chat_id=value.chat_id, title=value.event_title or DEFAULT_TITLE,
            time_zone=self._zone, changed_at=updated, created_at=created, starts_at=created,
            expires_at=created,
        )  # fmt: skip
        return with_details(blank, _details(value, ZoneInfo(self._zone)))

    async def dump(self, *, tokens: bool = False) -> AsyncIterator[KvPair]:
        """Yield the store in the layout; with `tokens`, those too, encrypted under the legacy key."""
        store = self._store.privileged()
        connections: list[KvConnection] = []
        mappings: list[KvMapping] = []
        async for account in store.scan(Query(GoogleConnection).order_by("google_email")):
            connections.append(await self._connection_value(account.doc, tokens=tokens))
            yield value_pair(connections[-1])
        async for found in store.scan(Query(EventMapping).order_by("google_event_id")):
            if not found.doc.version:
                continue
            mappings.append(_mapping_value(found.doc))
            expires_at = found.doc.updated_at + timedelta(seconds=MAPPING_S)
            yield value_pair(mappings[-1], expiration=int(expires_at.timestamp()))
        for pair in index_pairs(connections, mappings):
            yield pair

    async def _sealed_token(self, row: GoogleConnection) -> str:
        stored = (
            await self._store.privileged().get(Connection, row.connection_id) if row.connection_id else None
        )
        if stored is None or not stored.doc.refresh_token:
            return ""
        return self._vault.seal_legacy(self._token.open(stored.doc.refresh_token, stored.doc.id))

    async def _connection_value(self, row: GoogleConnection, *, tokens: bool) -> KvConnection:
        token = await self._sealed_token(row) if tokens else ""
        times = {"created_at": _text(row.created_at), "updated_at": _text(row.updated_at)}
        return project(row, KvConnection, refresh_token_encrypted=token, **times)


def _account(value: object, chat_id: str, now: datetime) -> tuple[GoogleConnection, str]:
    """The row of an account, and its token where it was in the open."""
    if isinstance(value, KvConnection):
        return project(
            value, GoogleConnection, chat_id=chat_id, google_email=value.google_email.lower(),
            created_at=_instant(value.created_at), updated_at=_instant(value.updated_at),
        ), ""  # fmt: skip
    assert isinstance(value, KvOldTokens)
    if not value.refresh_token or not value.email:
        raise InvalidError("it has no refresh token or no address")
    email = value.email.lower()
    linked_at = _instant(value.linked_at) if value.linked_at else now
    return GoogleConnection(
        chat_id=chat_id, google_sub=f"{UNKNOWN_SUB}{email}", google_email=email, scopes=value.scope,
        connected_by_telegram_user_id=value.linked_by, created_at=linked_at, updated_at=linked_at,
    ), value.refresh_token  # fmt: skip


def _mapping_value(row: EventMapping) -> KvMapping:
    return project(row, KvMapping, created_at=_text(row.created_at), updated_at=_text(row.updated_at))


def _details(value: KvMapping, zone: ZoneInfo) -> EventDetails:
    """The event as far as a mapping tells: an hour long, or a day where it names no time."""
    title, text = value.event_title or DEFAULT_TITLE, value.event_start
    if not text or len(text) == 10:
        day = date.fromisoformat(text) if text else _instant(value.created_at).date()
        return EventDetails(title=title, start=day, end=day + timedelta(days=1))
    start = _instant(text).astimezone(zone)
    return EventDetails(title=title, start=start, end=add_elapsed(start, DEFAULT_LENGTH))


def _instant(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _text(when: datetime) -> str:
    """As JavaScript writes an instant: milliseconds and Z."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
