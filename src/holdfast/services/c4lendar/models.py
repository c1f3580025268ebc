"""Documents of the service: chats, their events, which calendar event each is in each account.

    BotChat ──► BotEvent (one per event, versioned) ──► EventMapping (`event_map`: one per account)
       │             │
       │             └─ BotMessage: the bot's message about it       SelectedEvent: a person's chosen event
       └──────► GoogleConnection (`google_connections`: one per account in the chat)

A chat is a tenant. `event_map` and `google_connections` have the names and fields that other programs know.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Final, Literal

import msgspec

from holdfast.model import (
    ADMINS_READ,
    HIDDEN,
    SERVICE_ONLY,
    CompositeId,
    Document,
    Index,
    ProvidedId,
    Retention,
    UlidId,
    document,
)

DAY_S: Final = 86_400
MAPPING_S: Final = 90 * DAY_S
REVOKED_S: Final = 30 * DAY_S
SELECTION_S: Final = DAY_S
RECENT_MAX: Final = 50
ChatStatus = Literal["pending", "approved", "revoked", "left"]


@document(
    "c4lendar_chats/{chat_id}",
    id=ProvidedId(),
    tenant="chat_id",
    indexes=[Index("status", "-updated_at", across="tenants"), Index("-updated_at", across="tenants")],
    access=ADMINS_READ,
)
class BotChat(Document):
    """A Telegram chat that the bot knows; only an approved one is served.

    `noticed_at` is when the bot last told an unapproved chat that it must be approved. `member_update_id` is
    the newest update that said whether the bot is in the chat: an older one that comes late is ignored.
    """

    chat_id: str
    title: str = ""
    kind: str = "private"
    status: ChatStatus = "pending"
    time_zone: str = ""
    added_by: int | None = None
    approved_by: str = ""
    noticed_at: datetime | None = None
    member_update_id: int = 0
    created_at: datetime
    updated_at: datetime


@document(
    "google_connections/{id}",
    id=CompositeId("chat_id", "google_sub"),
    tenant="chat_id",
    indexes=[
        Index("revoked"),
        Index("google_email"),
        Index("google_email", across="tenants"),
        Index("google_sub", across="tenants"),
    ],
    retention=Retention("purge_at", after_s=0),
    access=SERVICE_ONLY,
)
class GoogleConnection(Document):
    """A Google account in a chat. The tokens are those of the connection `connection_id`.

    `refresh_token_encrypted` holds an imported token until it was used for the first time.
    """

    id: str = ""
    chat_id: str
    google_sub: str
    google_email: str
    refresh_token_encrypted: Annotated[str, HIDDEN] = ""
    scopes: str = ""
    revoked: int = 0
    connected_by_telegram_user_id: int | None = None
    connection_id: str = ""
    created_at: datetime
    updated_at: datetime
    purge_at: datetime | None = None


@document(
    "event_map/{id}",
    id=CompositeId("chat_id", "bot_event_uid", "google_sub"),
    tenant="chat_id",
    indexes=[
        Index("bot_event_uid"),
        Index("google_sub"),
        Index("google_event_id", across="tenants"),
        Index("-created_at"),
    ],
    # Updating a row renews its life.
    retention=Retention("updated_at", after_s=MAPPING_S),
    access=ADMINS_READ,
)
class EventMapping(Document):
    """One event in one account's calendar.

    `version` is that of the event which the calendar has: 0 while it has none, for the reason in `error`.
    """

    id: str = ""
    chat_id: str
    bot_event_uid: str
    google_sub: str
    google_event_id: str
    event_title: str = ""
    event_start: str = ""
    version: int = 0
    error: str = ""
    created_at: datetime
    updated_at: datetime


@document(
    "c4lendar_events/{uid}",
    id=UlidId(),
    tenant="chat_id",
    indexes=[Index("-created_at"), Index("starts_at"), Index("changed_key")],
    retention=Retention("expires_at", after_s=0),
    access=ADMINS_READ,
)
class BotEvent(Document):
    """An event of a chat, as all its accounts are to have it; `version` grows with each change.

    A timed event has `start_time` and `end_time`, an all-day one `start_date` and the exclusive `end_date`.
    `changed_key` is the act of the last change. `before` is what `#undo` brings back until ten minutes
    after `changed_at`; empty for a new event.
    """

    uid: str = ""
    chat_id: str
    title: str
    start_time: datetime | None = None
    end_time: datetime | None = None
    start_date: date | None = None
    end_date: date | None = None
    time_zone: str
    location: str = ""
    recurrence: str = ""
    deleted: bool = False
    version: int = 1
    before: str = ""
    changed_key: str = ""
    changed_by: int | None = None
    changed_at: datetime
    created_by: int | None = None
    created_at: datetime
    starts_at: datetime
    expires_at: datetime


@document(
    "c4lendar_selections/{id}",
    id=CompositeId("chat_id", "user_id"),
    tenant="chat_id",
    retention=Retention("selected_at", after_s=SELECTION_S),
    access=SERVICE_ONLY,
)
class SelectedEvent(Document):
    """The event that a person works on in a chat, for a day."""

    id: str = ""
    chat_id: str
    user_id: str
    uid: str
    selected_at: datetime


@document(
    "c4lendar_messages/{id}",
    id=CompositeId("chat_id", "message_id"),
    tenant="chat_id",
    indexes=[Index("uid", "-sent_at")],
    retention=Retention("sent_at", after_s=MAPPING_S),
    access=SERVICE_ONLY,
)
class BotMessage(Document):
    """The bot's message about an event, so that a reply to it names the event; or a question.

    A reply to a question is read together with the `argument` of the `command` that it was about.
    """

    id: str = ""
    chat_id: str
    message_id: str
    uid: str = ""
    command: str = ""
    argument: str = ""
    sent_at: datetime


class QueuedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update whose run has not decided yet."""

    update_id: int
    run_id: str


@document("c4lendar_queues/{chat_id}", id=ProvidedId(), tenant="chat_id", access=SERVICE_ONLY)
class ChatQueue(Document):
    """A chat's updates that are not decided yet, in order; deleted with the last one."""

    chat_id: str
    updates: list[QueuedUpdate] = []


DOCUMENTS: Final[tuple[type[Document], ...]] = (
    BotChat, BotEvent, BotMessage, ChatQueue, EventMapping, GoogleConnection, SelectedEvent,
)  # fmt: skip
