"""The layout of the bot's former store, Workers KV: keys, values, and the older keys before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

CONNECTION: Final = "gc:conn:"
EVENT: Final = "gc:event:"
RECENT: Final = "gc:event:recent:"
EMAIL_INDEX: Final = "gc:idx:email:"
OLD_TOKENS: Final = "gc_tokens:chat:"
OLD_SELECTION: Final = "selected_event:"
# Of an account that the older layout knows by its address alone, until it is connected again.
UNKNOWN_SUB: Final = "email-"
DEFAULT_SCOPE: Final = "https://www.googleapis.com/auth/calendar.events"


class KvPair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pair of a bulk dump; `expiration` is in seconds since 1970."""

    key: str
    value: str
    expiration: int | None = None
    metadata: Any = None


class KvConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `gc:conn:{chat_id}:{google_sub}`."""

    chat_id: str
    google_sub: str
    google_email: str
    refresh_token_encrypted: str = ""
    scopes: str = DEFAULT_SCOPE
    revoked: int = 0
    connected_by_telegram_user_id: int | None = None
    created_at: str
    updated_at: str


class KvMapping(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `gc:event:{chat_id}:{bot_event_uid}:{google_sub}`."""

    chat_id: str
    bot_event_uid: str
    google_sub: str
    google_event_id: str
    event_title: str = ""
    event_start: str = ""
    created_at: str
    updated_at: str


class KvOldTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `gc_tokens:chat:{chat_id}`: one account for a chat, with its token in the open."""

    refresh_token: str = ""
    email: str = ""
    linked_by: int | None = msgspec.field(name="linkedBy", default=None)
    linked_at: str = msgspec.field(name="linkedAt", default="")
    scope: str = DEFAULT_SCOPE


class KvRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pair as read: its value, or why it is left out (`skipped`) or can't be read (`fault`)."""

    number: int
    key: str
    expiration: int | None = None
    chat_id: str = ""
    value: KvConnection | KvMapping | KvOldTokens | None = None
    skipped: str = ""
    fault: str = ""


def read_pairs(content: bytes) -> list[KvRow]:
    """Read a dump, each pair by itself: a bad one is named and the rest is read."""
    pairs = msgspec.json.decode(content, type=list[msgspec.Raw])
    return [_read(number, raw) for number, raw in enumerate(pairs, 1)]


def _read(number: int, raw: msgspec.Raw) -> KvRow:
    key = ""
    try:
        pair = msgspec.json.decode(raw, type=KvPair)
        key = pair.key
        return msgspec.structs.replace(_read_pair(number, pair), expiration=pair.expiration)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as fault:
        return KvRow(number=number, key=key[:200], fault=str(fault)[:200])


def _read_pair(number: int, pair: KvPair) -> KvRow:
    key = pair.key
    if key.startswith((EMAIL_INDEX, RECENT)):
        return KvRow(number=number, key=key, skipped="an index, which queries replace")
    if key.startswith(OLD_SELECTION):
        return KvRow(number=number, key=key, skipped="a selection of a day, in an older form")
    kind, prefix = _kind_of(key)
    if kind is None:
        return KvRow(number=number, key=key, skipped="not of this bot")
    value = msgspec.json.decode(pair.value, type=kind)
    if isinstance(value, KvOldTokens):
        return KvRow(number=number, key=key, chat_id=key.removeprefix(prefix), value=value)
    if key_of(value) != key:
        raise ValueError(f"the value belongs to {key_of(value)}")
    return KvRow(number=number, key=key, chat_id=value.chat_id, value=value)


def _kind_of(key: str) -> tuple[Any, str]:
    for prefix, kind in ((CONNECTION, KvConnection), (EVENT, KvMapping), (OLD_TOKENS, KvOldTokens)):
        if key.startswith(prefix):
            return kind, prefix
    return None, ""


def key_of(value: KvConnection | KvMapping) -> str:
    if isinstance(value, KvConnection):
        return f"{CONNECTION}{value.chat_id}:{value.google_sub}"
    return f"{EVENT}{value.chat_id}:{value.bot_event_uid}:{value.google_sub}"


def index_pairs(connections: Iterable[KvConnection], mappings: Iterable[KvMapping]) -> list[KvPair]:
    """The index pairs that the layout keeps beside its values: chats by address, recent events by chat."""
    chats: dict[str, list[str]] = {}
    for one in connections:
        if one.chat_id not in chats.setdefault(one.google_email, []):
            chats[one.google_email].append(one.chat_id)
    recent: dict[str, dict[str, KvMapping]] = {}
    for row in mappings:
        recent.setdefault(row.chat_id, {}).setdefault(row.bot_event_uid, row)
    pairs = [_pair(f"{EMAIL_INDEX}{email}", ids) for email, ids in chats.items()]
    for chat_id, rows in recent.items():
        newest = sorted(rows.values(), key=lambda row: row.created_at, reverse=True)[:50]
        pairs.append(_pair(f"{RECENT}{chat_id}", [_summary(row) for row in newest]))
    return pairs


def _summary(row: KvMapping) -> dict[str, str]:
    return {
        "bot_event_uid": row.bot_event_uid, "event_title": row.event_title, "event_start": row.event_start,
        "created_at": row.created_at,
    }  # fmt: skip


def _pair(key: str, value: object) -> KvPair:
    return KvPair(key=key, value=msgspec.json.encode(value).decode())


def value_pair(value: KvConnection | KvMapping, *, expiration: int | None = None) -> KvPair:
    return KvPair(key=key_of(value), value=msgspec.json.encode(value).decode(), expiration=expiration)
