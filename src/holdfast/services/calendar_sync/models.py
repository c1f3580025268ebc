"""Documents of the service: channels, mappings, the sync state of calendars, attendees it added.

    UserMapping ──► WatchChannel (one live per primary)      ChannelEvent: what became of channels
         │                │ notification
         └──────────► CalendarState ──► sync ──► SyncedEvent (one per event: the attendees we added)

`watchChannels` has the seven fields that other programs know, and no more; the state of syncs is in
`CalendarState`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.kit.channels import CHANNEL_ID, CHANNEL_INDEXES, CHANNEL_LIFE, EXPIRED_KEPT, ChannelFields
from holdfast.model import ADMINS_READ, MEMBERS_READ, Claim, Document, Index, Retention, UlidId, document

DAY_S: Final = 86_400
CHANNEL_STATUSES: Final = ("active", "expired", "stopped")
SYNC_STATUSES: Final = ("fine", "unreachable", "failing", "attention")
ADDRESS_PATTERN: Final = (
    r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@"
    r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)+$"
)
Address = Annotated[str, Meta(pattern=ADDRESS_PATTERN, max_length=254)]
Act = Literal["opened", "stopped", "expired", "attention"]
SyncStatus = Literal["fine", "unreachable", "failing", "attention"]
OrderKind = Literal["reload", "renewal", "registration"]
Result = Literal["added", "removed", "changed", "skipped", "failed"]


@document(
    "watchChannels/{channel_id}",
    id=CHANNEL_ID,
    indexes=(*CHANNEL_INDEXES, Index("watched_id")),
    lifecycle=CHANNEL_LIFE,
    immutable=["registered_at"],
    retention=EXPIRED_KEPT,
    access=ADMINS_READ,
)
class WatchChannel(ChannelFields, rename="camel"):
    """A Google Calendar push channel that delivers the changes of one calendar."""

    watched_id: Address = msgspec.field(name="calendarId")


@document("calendarSyncMappings/{primary_email}", access=MEMBERS_READ)
class UserMapping(Document, rename="camel"):
    """A primary address and the secondary ones that belong on the same events."""

    primary_email: Address
    secondary_emails: Annotated[list[Address], Meta(min_length=1)]
    updated_at: datetime


class BadMappingRow(msgspec.Struct, frozen=True):
    """A row that could not be used, by its number in the source."""

    row: int
    reason: str


@document("calendarSyncReloads/{id}", access=MEMBERS_READ)
class MappingReload(Document, rename="camel"):
    """Result of the last reload; `digest` identifies the map.

    While `unapplied`, some calendars whose mapping changed were not yet requested to be synced.
    """

    id: str
    digest: str = ""
    mappings: int = 0
    bad_rows: list[BadMappingRow] = []
    loaded_at: datetime | None = None
    tried_at: datetime | None = None
    failures: int = 0
    error: str = ""
    unapplied: bool = False


class EventResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a sync did to one event, and why."""

    event_id: str
    result: Result
    reason: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@document(
    "calendarSyncCalendars/{calendar_id}",
    indexes=[Index("status"), Index("-synced_at")],
    claim=Claim(due="due_at", fence="fence", owner="owner"),
    access=MEMBERS_READ,
)
class CalendarState(Document, rename="camel"):
    """Sync state of one calendar; held by one process at a time.

    `asked` grows with each reason to sync that came in, `taken` is its value when the sync at work, or the
    last one, began: while they differ, another sync is due. `secondaries` are those that the last full sync
    was requested for, `former_secondaries` those of earlier mappings, which it takes off. With `unmapped_at`
    it has one full sync to come, which takes all of these off again, or adds what could not be added without
    this organizer's credentials; then it is deleted.
    """

    calendar_id: Address
    sync_token: str = ""
    generation: int = 0
    asked: int = 0
    taken: int = 0
    due_at: datetime | None = None
    began_at: datetime | None = None
    notified_at: datetime | None = None
    message_number: int = 0
    synced_at: datetime | None = None
    syncs: int = 0
    status: SyncStatus = "fine"
    failures: int = 0
    error: str = ""
    results: list[EventResult] = []
    secondaries: list[str] = []
    former_secondaries: list[str] = []
    unmapped_at: datetime | None = None
    fence: int = 0
    owner: str = ""


@document(
    "calendarSyncEvents/{id}",
    indexes=[Index("event_id"), Index("calendar_id"), Index("added[]")],
    retention=Retention("ends_at", after_s=30 * DAY_S),
    access=MEMBERS_READ,
)
class SyncedEvent(Document, rename="camel"):
    """The attendees that this service added to one event, whichever calendar it was seen on.

    `pending` are those not yet confirmed: recorded before Google is asked, with the version of the event
    (`etag`) that they were to be added to.
    """

    id: str
    event_id: str
    calendar_id: str
    organizer: str = ""
    added: list[str] = []
    pending: list[str] = []
    etag: str = ""
    ends_at: datetime | None = None
    updated_at: datetime
    error: str = ""


@document(
    "calendarSyncChannelEvents/{id}",
    id=UlidId(),
    indexes=[Index("channel_id", "-at"), Index("calendar_id", "-at"), Index("-at")],
    append_only=True,
    retention=Retention("at", after_s=365 * DAY_S),
    access=MEMBERS_READ,
)
class ChannelEvent(Document, rename="camel"):
    """A transition of a channel; stays when its document is deleted."""

    id: str = ""
    channel_id: str
    calendar_id: str
    act: Act
    reason: str = ""
    at: datetime


@document(
    "calendarSyncOrders/{id}", claim=Claim(due="due_at", fence="fence", owner="owner"), access=ADMINS_READ
)
class Order(Document, rename="camel"):
    """An administrator's order that is not done yet; held by the process that carries it out."""

    id: str
    kind: OrderKind
    actor: str
    reason: str = ""
    threshold_ms: int = 0
    ordered_at: datetime
    due_at: datetime | None = None
    fence: int = 0
    owner: str = ""


DOCUMENTS: Final[tuple[type[Document], ...]] = (
    CalendarState, ChannelEvent, MappingReload, Order, SyncedEvent, UserMapping, WatchChannel,
)  # fmt: skip
